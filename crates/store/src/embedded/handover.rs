//! What has been decided and waits for the disk.

use masthead_core::Revision;
use parking_lot::{Condvar, Mutex};

use super::queue::{Answers, Submission};
use super::record::Head;
use crate::ledger::Entry;
use crate::limits::{GROUP_BYTES_MAX, GROUP_WRITES_MAX};

/// Some calls, decided and encoded.
pub(crate) struct Part {
    /// The round of decisions that this is one of. See [`Handover::discard`].
    pub(crate) round: u64,
    pub(crate) submissions: Vec<Submission>,
    /// One for each write of the submissions, if the disk does its part.
    pub(crate) answers: Answers,
    pub(crate) entries: Vec<Entry>,
    pub(crate) heads: Vec<Head>,
    pub(crate) records: Vec<u8>,
}

impl Part {
    pub(crate) fn first_revision(&self) -> Option<Revision> {
        self.heads.first().map(|head| head.revision)
    }

    pub(crate) fn last_revision(&self) -> Option<Revision> {
        self.heads.last().map(|head| head.revision)
    }
}

/// Between the decider and the committer: parts gather here, and all of them are the next group.
#[derive(Default)]
pub(crate) struct Handover {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    parts: Vec<Part>,
    writes: usize,
    bytes: usize,
    /// Counts how often decisions were discarded.
    round: u64,
    closed: bool,
}

impl Handover {
    /// The present round of decisions.
    pub(crate) fn round(&self) -> u64 {
        self.waiting.lock().round
    }

    /// Begins a new round. Parts of the rounds before it were decided on the assumption that a group would be
    /// written which was not, so none of them may be written either. The decider begins again from what is
    /// stored.
    pub(crate) fn discard(&self) {
        self.waiting.lock().round += 1;
    }

    /// Adds a part, when there is room for it. Says whether somebody will take it.
    pub(crate) fn give(&self, part: Part) -> bool {
        let mut waiting = self.waiting.lock();
        while !waiting.fits(&part) && !waiting.closed {
            self.changed.wait(&mut waiting);
        }
        let open = !waiting.closed;
        waiting.writes += part.answers.len();
        waiting.bytes += part.records.len();
        waiting.parts.push(part);
        drop(waiting);
        self.changed.notify_one();
        open
    }

    /// Waits for parts and takes them all; none when it is closed and empty.
    pub(crate) fn take(&self) -> Option<Vec<Part>> {
        let mut waiting = self.waiting.lock();
        while waiting.parts.is_empty() && !waiting.closed {
            self.changed.wait(&mut waiting);
        }
        let (round, closed) = (waiting.round, waiting.closed);
        let rest = Waiting { round, closed, ..Waiting::default() };
        let taken = std::mem::replace(&mut *waiting, rest);
        drop(waiting);
        self.changed.notify_one();
        (!taken.parts.is_empty()).then_some(taken.parts)
    }

    /// Nothing is added any more.
    pub(crate) fn close(&self) {
        self.waiting.lock().closed = true;
        self.changed.notify_all();
    }
}

impl Waiting {
    fn fits(&self, part: &Part) -> bool {
        self.parts.is_empty()
            || self.writes + part.answers.len() <= GROUP_WRITES_MAX
                && self.bytes + part.records.len() <= GROUP_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(writes: usize, bytes: usize) -> Part {
        let answers = (0..writes).map(|_| Err(crate::CommitError::Busy)).collect();
        let (submissions, entries, heads) = (Vec::new(), Vec::new(), Vec::new());
        Part { round: 0, submissions, answers, entries, heads, records: vec![0; bytes] }
    }

    #[test]
    fn a_group_is_full_at_its_limits_and_not_before() {
        let mut waiting = Waiting::default();
        assert!(waiting.fits(&part(GROUP_WRITES_MAX, GROUP_BYTES_MAX + 1)), "alone it has to fit");
        (waiting.writes, waiting.bytes) = (GROUP_WRITES_MAX - 1, GROUP_BYTES_MAX - 1);
        waiting.parts.push(part(0, 0));
        assert!(waiting.fits(&part(1, 1)));
        assert!(!waiting.fits(&part(2, 1)) && !waiting.fits(&part(1, 2)));
    }

    #[test]
    fn what_was_given_before_the_end_is_still_taken() {
        let handover = Handover::default();
        assert!(handover.give(part(1, 1)) && handover.give(part(1, 1)));
        handover.close();
        assert_eq!(handover.take().unwrap().len(), 2);
        assert!(handover.take().is_none());
        assert!(!handover.give(part(1, 1)));
    }
}
