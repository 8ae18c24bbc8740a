//! The thread that lets history go: it folds the oldest lines of the log into the base.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use masthead_core::Revision;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::base::Mark;
use super::queue::Queue;
use super::room;
use super::shared::{Shared, read};
use super::window::Line;
use crate::limits::{
    FOLD_BYTES_MAX, FOLD_LINES_MAX, KEEP_CHECK_MAX, KEEP_CHECK_MIN, QUEUE_COMPACTIONS_MAX,
    ROOM_CHECK_EVERY,
};
use crate::{Health, StoreError};

type Answer = oneshot::Sender<Result<Revision, StoreError>>;

/// Calls the keeper.
#[derive(Default)]
pub(crate) struct Bell {
    calls: Mutex<Calls>,
    rung: Condvar,
}

#[derive(Default)]
struct Calls {
    look: bool,
    compactions: Vec<(Revision, Answer)>,
    closed: bool,
}

impl Bell {
    /// There may be something to do.
    pub(crate) fn ring(&self) {
        self.calls.lock().look = true;
        self.rung.notify_one();
    }

    /// Asks for history to go up to a revision.
    pub(crate) fn compact(
        &self,
        before: Revision,
    ) -> Result<oneshot::Receiver<Result<Revision, StoreError>>, StoreError> {
        let (answer, receiver) = oneshot::channel();
        let mut calls = self.calls.lock();
        if calls.closed {
            return Err(StoreError::Closed);
        }
        if calls.compactions.len() == QUEUE_COMPACTIONS_MAX {
            return Err(StoreError::Busy);
        }
        calls.compactions.push((before, answer));
        drop(calls);
        self.rung.notify_one();
        Ok(receiver)
    }

    /// Ends the keeper; who waits is told so by the end of its channel.
    pub(crate) fn close(&self) {
        let mut calls = self.calls.lock();
        calls.closed = true;
        calls.compactions.clear();
        drop(calls);
        self.rung.notify_all();
    }

    fn closed(&self) -> bool {
        self.calls.lock().closed
    }

    /// Waits for a call, or for so long; none when it is closed.
    fn wait(&self, at_most: Duration) -> Option<Vec<(Revision, Answer)>> {
        let mut calls = self.calls.lock();
        if !calls.closed && !calls.look && calls.compactions.is_empty() {
            self.rung.wait_for(&mut calls, at_most);
        }
        calls.look = false;
        (!calls.closed).then(|| std::mem::take(&mut calls.compactions))
    }
}

pub(crate) struct Keeper {
    pub(crate) shared: Arc<Shared>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) bell: Arc<Bell>,
}

impl Keeper {
    /// Works until the bell is closed.
    pub(crate) fn run(self) {
        let every = (self.shared.settings.keep_age / 8).clamp(KEEP_CHECK_MIN, KEEP_CHECK_MAX);
        while let Some(compactions) = self.bell.wait(self.pause(every)) {
            self.shared.try_room();
            for (before, answer) in compactions {
                let done = self.fold(before.min(self.shared.tail.current()));
                // Whoever is no longer there does not want to know.
                let _ = answer.send(done.map(|()| self.shared.tail.oldest()));
            }
            // A failure is the store's state by now, and nobody waits for this.
            let _ = self.fold_surplus();
        }
    }

    /// How long nothing has to be done unless the bell is rung.
    fn pause(&self, every: Duration) -> Duration {
        if self.shared.is_full() { every.min(ROOM_CHECK_EVERY) } else { every }
    }

    fn fold_surplus(&self) -> Result<(), StoreError> {
        let now = self.shared.settings.clock.now();
        let surplus = self.shared.window.read().surplus(now, &self.shared.settings);
        let folded = surplus.map_or(Ok(()), |up_to| self.fold(up_to));
        // Also after a failure: writers are to hear of that.
        self.queue.hold_up(false);
        folded
    }

    /// Makes a revision the oldest, step by step, so that neither commits nor the end have to wait.
    fn fold(&self, up_to: Revision) -> Result<(), StoreError> {
        while self.shared.tail.oldest() < up_to {
            if let Health::ReadOnly { why } = self.shared.health() {
                return Err(StoreError::Disk(Arc::new(std::io::Error::other(why.to_string()))));
            }
            if self.bell.closed() {
                return Err(StoreError::Closed);
            }
            self.shared.check_room_for_fold()?;
            let lines = self.shared.oldest_lines(up_to);
            let Some(last) = lines.last() else { return Ok(()) };
            self.shared.prepare_fold(last)?;
            let step = self.shared.fold(&lines, last);
            step.inspect_err(|error| {
                self.shared.fail("folding history into the base", error);
            })?;
        }
        Ok(())
    }
}

impl Shared {
    /// Fails if the disk is nearly full. What the base writes then fails somewhere in the midst of it, and only a
    /// restart helps against that, while a log that is full goes on when there is room.
    fn check_room_for_fold(&self) -> Result<(), StoreError> {
        if room::is_enough_for_fold(self.dir()) {
            return Ok(());
        }
        let dir = self.dir().display();
        let why = format!("{dir} has no room to fold history; free space on its disk");
        let error = io::Error::new(io::ErrorKind::StorageFull, why);
        Err(StoreError::Disk(Arc::new(error)))
    }

    /// Makes sure that the file of the log that comes last is missed if it goes, also when the base has got to the
    /// next step of a fold.
    fn prepare_fold(&self, last: &Line) -> Result<(), StoreError> {
        self.reached.fold(last.head.revision).map_err(|error| {
            self.fail_write("noting what the log has reached", &error);
            StoreError::Disk(Arc::new(error.into_source()))
        })
    }

    /// Moves lines into the base, which are the oldest.
    ///
    /// First nobody may read before them any more; then the base may change, hidden by the lines
    /// that are still there; then they go. So the lock is never held while the disk works.
    fn fold(&self, lines: &[Line], last: &Line) -> Result<(), StoreError> {
        let mark = Mark { revision: last.head.revision, history: last.head.history };
        let mut change = self.base.change();
        let newest: HashMap<_, _> = lines.iter().map(|line| (&line.head.slot, line)).collect();
        for (slot, line) in newest {
            if line.live() {
                change.put(slot, line.head.revision, read(line)?.body());
            } else {
                change.remove(slot);
            }
        }
        self.forget(mark.revision);
        change.apply(mark)?;
        self.window.write().drop_up_to(mark.revision);
        // What the base has is removed from the log only when the base has it on disk.
        self.base.sync()?;
        self.segments.remove(mark.revision).map_err(|error| StoreError::Disk(Arc::new(error)))
    }

    /// Reads hold the window's lock from their check to their end: there are none before `oldest`
    /// when this returns.
    fn forget(&self, oldest: Revision) {
        let _none_reads = self.window.write();
        self.tail.forget(oldest);
    }

    /// The lines that one step of a fold moves.
    fn oldest_lines(&self, up_to: Revision) -> Vec<Line> {
        let window = self.window.read();
        let mut bytes = 0;
        let lines = window.after(window.oldest()).take(FOLD_LINES_MAX).take_while(|line| {
            let first = bytes == 0;
            bytes += line.head.bytes;
            line.head.revision <= up_to && (first || bytes <= FOLD_BYTES_MAX)
        });
        lines.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_compactions_may_wait_and_no_more() {
        let bell = Bell::default();
        let waiting: Vec<_> =
            (0..QUEUE_COMPACTIONS_MAX).map(|_| bell.compact(Revision(1)).unwrap()).collect();
        assert!(matches!(bell.compact(Revision(1)), Err(StoreError::Busy)));
        bell.close();
        assert!(matches!(bell.compact(Revision(1)), Err(StoreError::Closed)));
        for mut answer in waiting {
            assert!(answer.try_recv().is_err(), "who waits is told of the end");
        }
    }
}
