//! The thread that decides: it prepares writes while the committer waits for the disk.

use std::collections::HashMap;
use std::sync::Arc;

use masthead_core::{Revision, Time};

use super::handover::{Handover, Part};
use super::queue::{Queue, Submission};
use super::record::{self, Head, Stamp};
use super::shared::Shared;
use crate::ledger::{self, Entry, Group, Held, Slot, State};
use crate::limits::AHEAD_STATES_MAX;
use crate::{StoreError, Value};

pub(crate) struct Decider {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    handover: Arc<Handover>,
    ahead: Ahead,
    /// Of the last record that was encoded.
    last: Last,
    /// The round that `ahead` and `last` belong to.
    round: u64,
}

/// What objects will be when everything has arrived that was decided, and when it was decided. If
/// something does not arrive, nothing after it is written either, and a new round begins. What has arrived long since may
/// still be here: nobody else decides, so it is true.
type Ahead = HashMap<Slot, (Revision, Option<Held>)>;

struct Last {
    revision: Revision,
    time: Time,
    history: u64,
}

impl Last {
    /// Of the last record that is shown.
    fn of(shared: &Shared) -> Self {
        let window = shared.window.read();
        Self { revision: window.current(), time: window.time(), history: window.history() }
    }
}

impl Decider {
    pub(crate) fn new(shared: Arc<Shared>, queue: Arc<Queue>, handover: Arc<Handover>) -> Self {
        let (last, round) = (Last::of(&shared), handover.round());
        Self { shared, queue, handover, ahead: Ahead::new(), last, round }
    }

    /// Works until the queue is closed.
    pub(crate) fn run(mut self) {
        while let Some(submissions) = self.queue.take() {
            let part = self.prepare(submissions);
            if !self.handover.give(part) {
                break;
            }
        }
    }

    /// Forgets what was decided and not written. By the time that a round has begun, all that was written in the
    /// rounds before is shown.
    fn enter_round(&mut self) {
        let round = self.handover.round();
        if self.round != round {
            self.round = round;
            self.ahead.clear();
            self.last = Last::of(&self.shared);
        }
    }

    fn prepare(&mut self, mut submissions: Vec<Submission>) -> Part {
        self.enter_round();
        let writes = submissions.iter_mut().flat_map(|it| std::mem::take(&mut it.writes));
        let state = Seen { ahead: &self.ahead, shared: &self.shared };
        let Group { results, entries, states } = ledger::decide(self.last.revision, writes, &state);
        let (heads, records) = self.encode(&entries);
        let revision = self.last.revision;
        self.ahead.extend(states.into_iter().map(|(slot, held)| (slot, (revision, held))));
        if self.ahead.len() > AHEAD_STATES_MAX {
            let arrived = self.shared.tail.current();
            self.ahead.retain(|_, (decided, _)| *decided > arrived);
        }
        let round = self.round;
        Part { round, submissions, answers: results, entries, heads, records }
    }

    fn encode(&mut self, entries: &[Entry]) -> (Vec<Head>, Vec<u8>) {
        let bytes: usize = entries.iter().map(|entry| record::bytes(&entry.event)).sum();
        let (last, mut records) = (&mut self.last, Vec::with_capacity(bytes));
        last.time = last.time.max(self.shared.settings.clock.now());
        let synced = self.shared.tail.current();
        let heads = entries.iter().map(|entry| {
            last.history += entry.history_bytes;
            last.revision = entry.event.revision;
            let stamp = Stamp { time: last.time, history: last.history, synced };
            record::encode(&mut records, &entry.event, stamp)
        });
        (heads.collect(), records)
    }
}

impl Drop for Decider {
    /// Also after a panic: nobody may wait for somebody who is gone.
    fn drop(&mut self) {
        self.queue.close();
        self.handover.close();
    }
}

/// What is stored and what will be.
struct Seen<'a> {
    ahead: &'a Ahead,
    shared: &'a Shared,
}

impl State for Seen<'_> {
    fn newest(&self, slot: &Slot) -> Result<Option<Held>, StoreError> {
        match self.ahead.get(slot) {
            Some((_, held)) => Ok(held.clone()),
            None => self.shared.newest(slot),
        }
    }

    fn load(&self, slot: &Slot, revision: Revision) -> Result<Value, StoreError> {
        self.shared.load(slot, revision)
    }
}
