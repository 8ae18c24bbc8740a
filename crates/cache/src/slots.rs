//! A line of memory for each key, with all that a look-up at the present asks for.

use crate::chunks::Chunks;
use crate::limits::SLOTS_PER_CHUNK;
use crate::sync::{ArcCell, AtomicU64, Ordering};
use crate::version::{Seq, Version};

/// Where the newest version of a key stands.
///
/// The key and the stamp are here and not only in the version because a look-up then need not fetch the
/// version, and because slots, side by side, fit a processor's cache where versions do not.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    key: [AtomicU64; KEY_WORDS],
    /// Of the newest change, and set before it can be found: `newest` is never above it.
    stamp: AtomicU64,
    pub(crate) newest: ArcCell<Version>,
}

const KEY_WORDS: usize = 6;
const WORD: usize = size_of::<u64>();

#[cfg(not(shuttle))]
const _: () = assert!(size_of::<Slot>() == 64, "a slot is a line of memory");

/// The length of a key, as far as a byte can count, and its first 47 bytes. Most keys are not longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyHead([u64; KEY_WORDS]);

impl KeyHead {
    const BYTES: usize = KEY_WORDS * WORD - 1;

    pub(crate) fn new(key: &str) -> Self {
        let mut bytes = [0; KEY_WORDS * WORD];
        let held = key.len().min(Self::BYTES);
        bytes[0] = u8::try_from(key.len()).unwrap_or(u8::MAX);
        bytes[1..=held].copy_from_slice(&key.as_bytes()[..held]);
        let (words, _) = bytes.as_chunks::<WORD>();
        Self(std::array::from_fn(|at| u64::from_ne_bytes(words[at])))
    }

    /// Returns `true` if the whole key fits in here.
    pub(crate) fn is_whole(&self) -> bool {
        usize::from(self.0[0].to_ne_bytes()[0]) <= Self::BYTES
    }
}

/// The sequence number of a change, and whether the object was deleted there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    pub(crate) seq: Seq,
    pub(crate) gone: bool,
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            key: std::array::from_fn(|_| AtomicU64::new(0)),
            stamp: AtomicU64::new(0),
            newest: ArcCell::new(None),
        }
    }
}

impl Slot {
    /// Gives the slot to a key. Readers that still look for the one before find it no more, or find it
    /// and then a version that is too new for them.
    pub(crate) fn set_key(&self, KeyHead(head): KeyHead) {
        for (word, value) in self.key.iter().zip(head) {
            word.store(value, Ordering::Release);
        }
    }

    /// Is this the head of its key? Of a longer key the rest is to be compared.
    pub(crate) fn has(&self, KeyHead(head): &KeyHead) -> bool {
        self.key.iter().zip(head).all(|(word, value)| word.load(Ordering::Acquire) == *value)
    }

    /// Shows the newest version if the slot is this key's.
    pub(crate) fn look<T>(
        &self,
        head: &KeyHead,
        key: &str,
        look: impl FnOnce(&Version) -> Option<T>,
    ) -> Option<T> {
        if !self.has(head) {
            return None;
        }
        let newest = self.newest.load();
        let newest = newest.as_ref()?;
        if head.is_whole() || newest.key().as_str() == key { look(newest) } else { None }
    }

    pub(crate) fn stamp(&self) -> Stamp {
        let stamp = self.stamp.load(Ordering::Acquire);
        Stamp { seq: stamp >> 1, gone: stamp & 1 == 1 }
    }

    pub(crate) fn set_stamp(&self, Stamp { seq, gone }: Stamp) {
        self.stamp.store(seq << 1 | u64::from(gone), Ordering::Release);
    }
}

/// The slots by number.
pub(crate) type Slots = Chunks<Slot, SLOTS_PER_CHUNK>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_tell_keys_apart_up_to_their_length_and_not_beyond() {
        let key = |len: usize, last: char| format!("{}{last}", "k".repeat(len - 1));
        for len in [1, 8, KeyHead::BYTES] {
            assert_eq!(KeyHead::new(&key(len, 'a')), KeyHead::new(&key(len, 'a')));
            assert_ne!(KeyHead::new(&key(len, 'a')), KeyHead::new(&key(len, 'b')));
            assert_ne!(KeyHead::new(&key(len, 'k')), KeyHead::new(&key(len + 1, 'k')));
        }
        let longer = KeyHead::BYTES + 1;
        assert_eq!(KeyHead::new(&key(longer, 'a')), KeyHead::new(&key(longer, 'b')));
        assert!(KeyHead::new(&key(longer - 1, 'a')).is_whole());
        assert!(
            [longer, 255, 256, 400].iter().all(|&len| !KeyHead::new(&key(len, 'a')).is_whole())
        );
    }

    #[test]
    fn a_stamp_is_read_as_it_was_set() {
        let slot = Slot::default();
        for stamp in [Stamp { seq: 1, gone: true }, Stamp { seq: Seq::MAX >> 1, gone: false }] {
            slot.set_stamp(stamp);
            assert_eq!(slot.stamp(), stamp);
        }
    }
}
