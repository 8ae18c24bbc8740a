//! Looking ahead: what several changes will read, read before the first of them is made.
//!
//! Almost everything that a change touches was last touched long ago, and each step of the way (the
//! object, its key, the table, the slot, the version before) has to be there for the next to begin. One
//! change after the other would wait for memory some ten times; step by step for many, they wait together.

use std::hint::black_box;

use masthead_core::{Mutation, Object};

use super::State;
use crate::history::Entry;
use crate::index::IndexState;
use crate::limits::{LENT, LOOK_AHEAD};

impl State {
    /// Reads what applying these will read. Changes nothing.
    pub(crate) fn look_ahead(&self, batch: &[Mutation]) {
        if batch.len() < 2 {
            return;
        }
        let mut slots = [None; LOOK_AHEAD];
        let mut hashes = [0; LOOK_AHEAD];
        let mut seen = 0;
        for object in batch.iter().filter_map(object) {
            seen ^= object.revision().0;
        }
        for (hash, mutation) in hashes.iter_mut().zip(batch) {
            *hash = self.table.hash(mutation.key().as_str());
        }
        for ((slot, hash), _) in slots.iter_mut().zip(hashes).zip(batch) {
            // The first with the same hash is mostly the one.
            *slot = self.table.find(hash, Some);
        }
        for id in slots.into_iter().flatten() {
            seen ^= self.slot(id).stamp().seq;
        }
        for object in batch.iter().filter_map(object) {
            let fields = self.indexes.iter().filter_map(IndexState::field);
            seen ^= u64::from(object.touch(fields));
        }
        for ids in slots.chunks(LENT) {
            let newest: [_; LENT] = std::array::from_fn(|at| {
                let id = ids.get(at).copied().flatten();
                id.map(|id| self.slot(id).newest.load())
            });
            for newest in newest.iter().flatten().filter_map(|newest| newest.as_ref()) {
                seen ^= newest.revision.0;
            }
        }
        black_box(seen);
    }
}

/// Reads what dropping the older versions of these will read.
pub(super) fn look_at_older(entries: &[Entry]) {
    if entries.len() < 2 {
        return;
    }
    let older = || entries.iter().filter_map(|entry| entry.older.as_ref());
    let mut seen = older().fold(0, |seen, older| seen ^ older.seq);
    seen = older().fold(seen, |seen, older| seen ^ older.object.revision().0);
    let bytes = |object: &Object| {
        let key = object.key().as_str().as_bytes().first().copied();
        let body = object.body().first().copied();
        u64::from(key.unwrap_or_default() ^ body.unwrap_or_default())
    };
    seen = older().fold(seen, |seen, older| seen ^ bytes(&older.object));
    black_box(seen);
}

fn object(mutation: &Mutation) -> Option<&Object> {
    match mutation {
        Mutation::Put { object, .. } => Some(object),
        Mutation::Delete { last, .. } => last.as_ref(),
    }
}
