//! Who wins: conditions and revisions, without I/O.
//!
//! All stores decide here; they differ in where they read the state before and put the entries.

use std::collections::HashMap;

use masthead_core::{ObjectKey, Revision};

use crate::limits::{COMMIT_BYTES_MAX, COMMIT_WRITES_MAX, LOG_ENTRY_BYTES};
use crate::{
    CommitError, Committed, Event, EventKind, Op, Requirement, ResourceName, StoreError, Value,
    Write,
};

/// Where an object is stored.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Slot {
    pub(crate) resource: ResourceName,
    pub(crate) key: ObjectKey,
}

/// One line of the log.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) event: Event,
    /// The state that it superseded; none if there was nothing.
    pub(crate) superseded: Option<Revision>,
    /// Bytes that can go when the history up to here is no longer kept.
    pub(crate) history_bytes: u64,
}

/// A group of writes, decided.
pub(crate) struct Group {
    /// What each write gets to hear if the entries become durable.
    pub(crate) results: Vec<Result<Committed, CommitError>>,
    /// What has to become durable, in this order.
    pub(crate) entries: Vec<Entry>,
    /// What the objects of the group are then; none if they are gone.
    pub(crate) states: States,
}

pub(crate) type States = HashMap<Slot, Option<Held>>;

/// What is stored of an object, as far as a decision needs it.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) revision: Revision,
    pub(crate) body_bytes: usize,
    /// The object itself, where it is at hand.
    pub(crate) value: Option<Value>,
}

impl From<Value> for Held {
    fn from(value: Value) -> Self {
        let (revision, body_bytes) = (value.revision(), value.body().len());
        Self { revision, body_bytes, value: Some(value) }
    }
}

/// What is stored.
pub(crate) trait State {
    /// The newest state of an object; none if it is not there.
    fn newest(&self, slot: &Slot) -> Result<Option<Held>, StoreError>;

    /// An object of which [`State::newest`] gave no value.
    fn load(&self, slot: &Slot, revision: Revision) -> Result<Value, StoreError>;
}

/// Decides writes in their order. The state is asked once for each object, since later writes of the
/// group see the earlier ones.
pub(crate) fn decide(
    current: Revision,
    writes: impl IntoIterator<Item = Write>,
    state: &impl State,
) -> Group {
    let mut ledger = Ledger { revision: current, states: HashMap::new(), entries: Vec::new() };
    let results = writes.into_iter().map(|write| ledger.decide(write, state)).collect();
    Group { results, entries: ledger.entries, states: ledger.states }
}

/// Refuses what no store takes. A put under another key than its object's is the caller's bug.
pub(crate) fn admit(writes: &[Write]) -> Result<(), CommitError> {
    for write in writes {
        if let Op::Put(object) = &write.op {
            assert_eq!(object.key(), &write.key, "an object is stored under its own key");
        }
    }
    if writes.len() > COMMIT_WRITES_MAX {
        return Err(CommitError::TooLarge { what: "writes", limit: COMMIT_WRITES_MAX });
    }
    if writes.iter().map(Write::bytes).sum::<usize>() > COMMIT_BYTES_MAX {
        return Err(CommitError::TooLarge { what: "bytes", limit: COMMIT_BYTES_MAX });
    }
    Ok(())
}

struct Ledger {
    /// Of the last write that was accepted.
    revision: Revision,
    /// What the objects of the group are by now.
    states: States,
    entries: Vec<Entry>,
}

impl Ledger {
    fn decide(&mut self, write: Write, state: &impl State) -> Result<Committed, CommitError> {
        let Write { resource, key, condition, requires, op, ttl: _ } = write;
        self.check(requires, state)?;
        let slot = Slot { resource, key };
        let before = self.before(&slot, state).map_err(CommitError::Unreadable)?;
        let current = before.as_ref().map(|held| held.revision);
        if !condition.holds(current) {
            return Err(CommitError::Conflict { current });
        }
        let revision = self.revision.next();
        let (kind, value) = match (op, &before) {
            (Op::Put(object), None) => (EventKind::Added, object.with_revision(revision).into()),
            (Op::Put(object), Some(_)) => {
                (EventKind::Modified, object.with_revision(revision).into())
            }
            (Op::Delete, Some(held)) => {
                let last = last_state(held, &slot, revision, state);
                (EventKind::Deleted, last.map_err(CommitError::Unreadable)?)
            }
            (Op::Delete, None) => return Err(CommitError::Conflict { current: None }),
        };
        self.accept(slot, revision, kind, before, value.clone());
        Ok(Committed { revision, value })
    }

    /// Checks that required objects are where they have to be. What was looked up is kept for the writes
    /// that come next: many objects are made in one namespace.
    fn check(&mut self, requires: Vec<Requirement>, state: &impl State) -> Result<(), CommitError> {
        for Requirement { resource, key, revision } in requires {
            let slot = Slot { resource, key };
            let held = self.before(&slot, state).map_err(CommitError::Unreadable)?;
            let current = held.as_ref().map(|held| held.revision);
            self.states.entry(slot).or_insert(held);
            if current != Some(revision) {
                return Err(CommitError::Superseded);
            }
        }
        Ok(())
    }

    fn before(&mut self, slot: &Slot, state: &impl State) -> Result<Option<Held>, StoreError> {
        match self.states.get(slot) {
            Some(known) => Ok(known.clone()),
            None => state.newest(slot),
        }
    }

    fn accept(
        &mut self,
        slot: Slot,
        revision: Revision,
        kind: EventKind,
        before: Option<Held>,
        value: Value,
    ) {
        let gone = kind == EventKind::Deleted;
        let bytes = before.as_ref().map_or(0, |held| held.body_bytes)
            + if gone { value.body().len() } else { 0 }
            + LOG_ENTRY_BYTES;
        let Slot { resource, key } = slot.clone();
        self.states.insert(slot, (!gone).then(|| value.clone().into()));
        self.revision = revision;
        self.entries.push(Entry {
            event: Event { resource, key, revision, kind, value },
            superseded: before.map(|held| held.revision),
            history_bytes: bytes as u64,
        });
    }
}

fn last_state(
    held: &Held,
    slot: &Slot,
    revision: Revision,
    state: &impl State,
) -> Result<Value, StoreError> {
    let last = match &held.value {
        Some(value) => value.clone(),
        None => state.load(slot, held.revision)?,
    };
    last.at(&slot.key, revision).map_err(|error| StoreError::Damaged {
        what: format!("{} {} at revision {}: {error}", slot.resource, slot.key, held.revision),
    })
}
