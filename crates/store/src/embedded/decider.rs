//! The thread that decides: it prepares one group while the committer syncs the one before.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use masthead_core::{Revision, Time};
use parking_lot::Mutex;

use super::queue::{Answers, Queue, Submission};
use super::record::{self, Head};
use super::shared::Shared;
use crate::ledger::{self, Entry, Group, Held, Slot, State, States};
use crate::{StoreError, Value};

/// A group, decided and encoded, on its way to the disk.
pub(crate) struct Prepared {
    pub(crate) submissions: Vec<Submission>,
    /// One for each write of the submissions, if the disk does its part.
    pub(crate) answers: Answers,
    pub(crate) entries: Vec<Entry>,
    pub(crate) heads: Vec<Head>,
    pub(crate) records: Vec<u8>,
}

pub(crate) struct Decider {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    /// Takes a group when the one before is done: at most one is under way while one is prepared.
    committer: SyncSender<Prepared>,
    /// What the group that is under way makes of its objects.
    under_way: States,
    /// Of the last record that was encoded.
    last: Last,
    /// A buffer that the committer is done with.
    spare: Arc<Mutex<Vec<u8>>>,
}

struct Last {
    revision: Revision,
    time: Time,
    history: u64,
}

impl Decider {
    pub(crate) fn new(
        shared: Arc<Shared>,
        queue: Arc<Queue>,
        committer: SyncSender<Prepared>,
        spare: Arc<Mutex<Vec<u8>>>,
    ) -> Self {
        let last = {
            let window = shared.window.read();
            let (revision, time) = (window.current(), window.time());
            Last { revision, time, history: window.history() }
        };
        Self { shared, queue, committer, under_way: States::new(), last, spare }
    }

    /// Works until the queue is closed.
    pub(crate) fn run(mut self) {
        while let Some(group) = self.queue.take() {
            let prepared = self.prepare(group);
            if self.committer.send(prepared).is_err() {
                break;
            }
        }
    }

    fn prepare(&mut self, mut submissions: Vec<Submission>) -> Prepared {
        let writes = submissions.iter_mut().flat_map(|it| std::mem::take(&mut it.writes));
        let state = Ahead { under_way: &self.under_way, shared: &self.shared };
        let Group { results, entries, states } = ledger::decide(self.last.revision, writes, &state);
        self.under_way = states;
        let (heads, records) = self.encode(&entries);
        Prepared { submissions, answers: results, entries, heads, records }
    }

    fn encode(&mut self, entries: &[Entry]) -> (Vec<Head>, Vec<u8>) {
        let mut records = std::mem::take(&mut *self.spare.lock());
        let last = &mut self.last;
        last.time = last.time.max(self.shared.settings.clock.now());
        let heads = entries.iter().map(|entry| {
            last.history += entry.history_bytes;
            last.revision = entry.event.revision;
            record::encode(&mut records, &entry.event, last.time, last.history)
        });
        (heads.collect(), records)
    }
}

impl Drop for Decider {
    /// Also after a panic: nobody may wait for somebody who is gone.
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// What is stored, and what will be when the group that is under way has arrived. If it does not,
/// nothing after it is written either.
struct Ahead<'a> {
    under_way: &'a States,
    shared: &'a Shared,
}

impl State for Ahead<'_> {
    fn newest(&self, slot: &Slot) -> Result<Option<Held>, StoreError> {
        match self.under_way.get(slot) {
            Some(held) => Ok(held.clone()),
            None => self.shared.newest(slot),
        }
    }

    fn load(&self, slot: &Slot, revision: Revision) -> Result<Value, StoreError> {
        self.shared.load(slot, revision)
    }
}
