//! A hash table from key to slot: one writer, readers that never wait.

use foldhash::fast::FixedState;
use std::hash::BuildHasher;

use crate::limits::TABLE_MIN;
use crate::sync::{AtomicU64, Ordering};
use crate::version::SlotId;

/// Linear probing over words of (32 bits of hash, slot). A reader compares keys itself: a word may
/// name a slot that was given to another key meanwhile, and that only costs it a comparison.
#[derive(Debug)]
pub(crate) struct Table {
    hasher: FixedState,
    words: Box<[AtomicU64]>,
}

const EMPTY: u64 = 0;
const REMOVED: u64 = 1;
/// Slots are stored with this offset, so that no word of an entry is `EMPTY` or `REMOVED`.
const OFFSET: u64 = 2;

/// Bytes for each key: a word, and at most half of the words are taken after a growth.
pub(crate) const TABLE_BYTES_PER_KEY: usize = 2 * size_of::<u64>();

impl Table {
    pub(crate) fn new(seed: u64, keys: usize) -> Self {
        let size = (keys * 2).next_power_of_two().max(TABLE_MIN);
        let words = (0..size).map(|_| AtomicU64::new(EMPTY)).collect();
        Self { hasher: FixedState::with_seed(seed), words }
    }

    /// How many words may be taken or removed before a larger table is due: three quarters.
    pub(crate) fn limit(&self) -> usize {
        self.words.len() / 4 * 3
    }

    pub(crate) fn hash(&self, key: &str) -> u64 {
        self.hasher.hash_one(key)
    }

    fn word(hash: u64, slot: SlotId) -> u64 {
        (hash & !u64::from(u32::MAX)) | (u64::from(slot) + OFFSET)
    }

    /// The first slot with this hash for which `is_it` holds.
    pub(crate) fn find<T>(
        &self,
        hash: u64,
        mut is_it: impl FnMut(SlotId) -> Option<T>,
    ) -> Option<T> {
        let mask = self.words.len() - 1;
        let tag = hash >> 32;
        // The low bits choose the place, the high bits are compared.
        #[expect(clippy::cast_possible_truncation, reason = "masked to the table's size")]
        let start = hash as usize;
        for step in 0..self.words.len() {
            let word = self.words[(start + step) & mask].load(Ordering::Acquire);
            if word == EMPTY {
                return None;
            }
            if word >> 32 == tag && word & u64::from(u32::MAX) >= OFFSET {
                let slot = u32::try_from((word & u64::from(u32::MAX)) - OFFSET);
                let found = is_it(slot.expect("32 bits"));
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// Adds a slot; says whether a fresh word was taken. Writer only.
    pub(crate) fn insert(&self, hash: u64, slot: SlotId) -> bool {
        let at = self.place(hash, |word| word == EMPTY || word == REMOVED);
        let fresh = self.words[at].load(Ordering::Relaxed) == EMPTY;
        self.words[at].store(Self::word(hash, slot), Ordering::Release);
        fresh
    }

    /// Takes a slot out. Writer only.
    pub(crate) fn remove(&self, hash: u64, slot: SlotId) {
        let word = Self::word(hash, slot);
        let at = self.place(hash, |found| found == word);
        self.words[at].store(REMOVED, Ordering::Release);
    }

    fn place(&self, hash: u64, is_it: impl Fn(u64) -> bool) -> usize {
        let mask = self.words.len() - 1;
        #[expect(clippy::cast_possible_truncation, reason = "masked to the table's size")]
        let start = hash as usize;
        (0..self.words.len())
            .map(|step| (start + step) & mask)
            .find(|&at| is_it(self.words[at].load(Ordering::Relaxed)))
            .expect("the table is grown before it is full, and only what is in it is removed")
    }
}
