//! Writes that wait for their group.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::limits::{GROUP_BYTES_MAX, GROUP_WRITES_MAX, QUEUE_BYTES_MAX, QUEUE_WRITES_MAX};
use crate::{CommitError, Committed, Write};

/// One answer for each write.
pub(crate) type Answers = Vec<Result<Committed, CommitError>>;

/// One call of `commit`.
pub(crate) struct Submission {
    pub(crate) writes: Vec<Write>,
    /// So many writes it had, also when they have been taken out.
    pub(crate) count: usize,
    pub(crate) answer: oneshot::Sender<Answers>,
}

impl Submission {
    fn bytes(&self) -> usize {
        self.writes.iter().map(Write::bytes).sum()
    }
}

/// The queue in front of the committer. While one group is being synced, the next gathers here.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    work: Condvar,
}

#[derive(Default)]
struct Waiting {
    submissions: VecDeque<Submission>,
    writes: usize,
    bytes: usize,
    /// The disk is behind: nothing is taken for now.
    held_up: bool,
    closed: bool,
}

impl Queue {
    /// Puts writes at the end.
    pub(crate) fn submit(
        &self,
        writes: Vec<Write>,
    ) -> Result<oneshot::Receiver<Answers>, CommitError> {
        let (answer, receiver) = oneshot::channel();
        let submission = Submission { count: writes.len(), writes, answer };
        let mut waiting = self.waiting.lock();
        waiting.admit(submission)?;
        drop(waiting);
        self.work.notify_one();
        Ok(receiver)
    }

    /// Waits for writes and takes a group; none when the queue is closed.
    pub(crate) fn take(&self) -> Option<Vec<Submission>> {
        let mut waiting = self.waiting.lock();
        loop {
            if waiting.closed {
                return None;
            }
            if !waiting.submissions.is_empty() {
                return Some(waiting.group());
            }
            self.work.wait(&mut waiting);
        }
    }

    pub(crate) fn hold_up(&self, behind: bool) {
        self.waiting.lock().held_up = behind;
    }

    /// Nothing is taken any more; who waits is told so by the end of its channel.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.closed = true;
        waiting.submissions.clear();
        drop(waiting);
        self.work.notify_all();
    }
}

impl Waiting {
    fn admit(&mut self, submission: Submission) -> Result<(), CommitError> {
        if self.closed {
            return Err(CommitError::Closed);
        }
        let (writes, bytes) = (submission.writes.len(), submission.bytes());
        let full = self.writes + writes > QUEUE_WRITES_MAX || self.bytes + bytes > QUEUE_BYTES_MAX;
        if full || self.held_up {
            return Err(CommitError::Busy);
        }
        self.writes += writes;
        self.bytes += bytes;
        self.submissions.push_back(submission);
        Ok(())
    }

    /// At least one call; more while they fit.
    fn group(&mut self) -> Vec<Submission> {
        let (mut group, mut writes, mut bytes) = (Vec::new(), 0, 0);
        while let Some(next) = self.submissions.front() {
            writes += next.writes.len();
            bytes += next.bytes();
            let fits = writes <= GROUP_WRITES_MAX && bytes <= GROUP_BYTES_MAX;
            if !fits && !group.is_empty() {
                break;
            }
            self.writes -= next.writes.len();
            self.bytes -= next.bytes();
            group.extend(self.submissions.pop_front());
        }
        group
    }
}

#[cfg(test)]
mod tests {
    use masthead_core::{ObjectKey, Resource};

    use super::*;
    use crate::Condition;

    fn writes(count: usize) -> Vec<Write> {
        let key = ObjectKey::new("shop", "web").unwrap();
        vec![Write::delete((&Resource::pods()).into(), key, Condition::Any); count]
    }

    #[test]
    fn the_queue_takes_its_limit_and_refuses_one_more() {
        let queue = Queue::default();
        let mut receivers = Vec::new();
        for _ in 0..QUEUE_WRITES_MAX {
            receivers.push(queue.submit(writes(1)).unwrap());
        }
        assert!(matches!(queue.submit(writes(1)), Err(CommitError::Busy)));
        assert_eq!(queue.take().unwrap().len(), GROUP_WRITES_MAX);
        assert!(queue.submit(writes(GROUP_WRITES_MAX)).is_ok(), "there is room again");
        assert!(matches!(queue.submit(writes(1)), Err(CommitError::Busy)));
    }

    #[test]
    fn a_call_is_never_split_over_two_groups() {
        let queue = Queue::default();
        let _a = queue.submit(writes(GROUP_WRITES_MAX - 1)).unwrap();
        let _b = queue.submit(writes(1)).unwrap();
        let _c = queue.submit(writes(2)).unwrap();
        assert_eq!(queue.take().unwrap().len(), 2);
        assert_eq!(queue.take().unwrap()[0].writes.len(), 2);
    }

    #[test]
    fn closing_ends_the_channels_of_those_who_wait() {
        let queue = Queue::default();
        let mut receiver = queue.submit(writes(1)).unwrap();
        queue.close();
        assert_eq!(receiver.try_recv().unwrap_err(), oneshot::error::TryRecvError::Closed);
        assert!(queue.take().is_none());
        assert!(matches!(queue.submit(writes(1)), Err(CommitError::Closed)));
    }
}
