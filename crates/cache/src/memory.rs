//! What the cache costs, kept up to date by the writer and cheap to read.

use crate::sync::{AtomicU64, Ordering};

/// Bytes in memory by what they are for, allocator slack aside. A reading is a few atomic loads; the
/// figures of one reading may be from neighbouring changes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Memory {
    /// Objects that are there now.
    pub objects: usize,
    /// The content of those objects, in the form in which it is held.
    pub bodies: usize,
    /// What their JSON would take, where it is held in another form. Not part of the total.
    pub whole: usize,
    /// Their heads, versions, slots and keys.
    pub heads: usize,
    /// Changes in the window and the superseded states that they keep.
    pub history: usize,
    /// Superseded states outside the window that snapshots keep.
    pub pinned: usize,
    /// Indexes.
    pub indexes: usize,
}

impl Memory {
    /// All of it.
    pub fn total(&self) -> usize {
        self.bodies + self.heads + self.history + self.pinned + self.indexes
    }
}

#[derive(Debug, Default)]
pub(crate) struct Gauges([AtomicU64; 7]);

impl Gauges {
    pub(crate) fn store(&self, memory: &Memory) {
        let Memory { objects, bodies, whole, heads, history, pinned, indexes } = *memory;
        let values = [objects, bodies, heads, history, pinned, indexes, whole];
        for (cell, value) in self.0.iter().zip(values) {
            cell.store(value as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self) -> Memory {
        let read = |at: usize| {
            usize::try_from(self.0[at].load(Ordering::Relaxed)).expect("stored from a usize")
        };
        Memory {
            objects: read(0),
            bodies: read(1),
            heads: read(2),
            history: read(3),
            pinned: read(4),
            indexes: read(5),
            whole: read(6),
        }
    }
}
