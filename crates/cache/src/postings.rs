//! The slots under one value of an index: one writer, readers that never wait.
//!
//! All views share them. What a reader sees beyond its own time it refuses by the version that it finds;
//! what it needs is there, since a slot leaves only when no view that is held sees it under the value.

use masthead_core::planted;
use triomphe::ThinArc;

use crate::sync::{AtomicU32, Ordering, SliceCell};
use crate::version::SlotId;

/// Linear probing over words, which only the writer does: readers go through all of them. A slot stays
/// in its word for as long as it is there; larger or fewer words are another allocation, so that whoever
/// goes through the old ones is not disturbed.
#[derive(Debug, Default)]
pub(crate) struct Postings(SliceCell<AtomicU32>);

/// What the writer keeps of the slots under one value.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    /// Slots.
    pub(crate) slots: u32,
    /// Words that have one, or had one and are not empty again.
    used: u32,
}

/// Slots are below both: there is not memory for so many.
const EMPTY: u32 = u32::MAX;
const REMOVED: u32 = u32::MAX - 1;
/// Up to here words are filled to the last: looking through them is as good as hashing.
const SMALL: usize = 8;

/// Bytes for each slot, and besides them: words that are half full on average, a count and a length.
pub(crate) const POSTING_BYTES: usize = 2 * size_of::<AtomicU32>();
pub(crate) const POSTINGS_BYTES: usize = size_of::<Postings>() + 2 * size_of::<usize>();

/// How many of so many words may be used: all of a few, three quarters of more.
fn limit(words: usize) -> usize {
    if words <= SMALL { words } else { words / 4 * 3 }
}

/// How many words slots get. Beyond a few, an eighth is left over, so that it is not soon done again.
fn size(slots: usize) -> usize {
    let room = if slots <= SMALL { slots } else { slots + slots / 8 };
    let words = room.next_power_of_two();
    if limit(words) < room { 2 * words } else { words }
}

impl Postings {
    /// All slots, in no order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = SlotId> + use<> {
        let words = self.0.get();
        let mut at = 0;
        std::iter::from_fn(move || {
            let rest = words.as_ref()?.slice.get(at..)?;
            let slot =
                |word: &AtomicU32| Some(word.load(Ordering::Acquire)).filter(|it| *it < REMOVED);
            let (found, slot) =
                rest.iter().map(slot).enumerate().find_map(|(n, it)| Some((n, it?)))?;
            at += found + 1;
            Some(slot)
        })
    }

    /// Adds a slot; false if it is there already. Writer only.
    pub(crate) fn insert(&self, slot: SlotId, counts: &mut Counts) -> bool {
        let loaded = self.0.load();
        let words = loaded.as_ref().map_or(&[][..], |words| &words.slice);
        let Err(free) = probe(words, slot) else { return false };
        counts.slots += 1;
        if let Some(at) = free {
            let fresh = words[at].load(Ordering::Relaxed) == EMPTY;
            if !fresh || (counts.used as usize) < limit(words.len()) {
                counts.used += u32::from(fresh);
                words[at].store(slot, Ordering::Release);
                return true;
            }
        }
        self.resize(words, Some(slot), counts);
        true
    }

    /// Takes a slot out; false if it is not there. Writer only.
    pub(crate) fn remove(&self, slot: SlotId, counts: &mut Counts) -> bool {
        let loaded = self.0.load();
        let words = loaded.as_ref().map_or(&[][..], |words| &words.slice);
        let Ok(at) = probe(words, slot) else { return false };
        let next = words[(at + 1) & (words.len() - 1)].load(Ordering::Relaxed);
        let ends = next == EMPTY;
        words[at].store(if ends { EMPTY } else { REMOVED }, Ordering::Release);
        counts.slots -= 1;
        counts.used -= u32::from(ends);
        let slots = counts.slots as usize;
        if slots == 0 || (words.len() > SMALL && size(slots) * 4 <= words.len()) {
            self.resize(words, None, counts);
        }
        true
    }

    /// Puts what is there into words of their own, with one more.
    fn resize(&self, old: &[AtomicU32], more: Option<SlotId>, counts: &mut Counts) {
        let length = if counts.slots == 0 { 0 } else { size(counts.slots as usize) };
        let words = (0..length).map(|_| AtomicU32::new(EMPTY));
        let words = (length > 0).then(|| ThinArc::from_header_and_iter((), words));
        if planted::on("posting_grows_late") {
            self.0.set(words.clone());
        }
        if let Some(words) = &words {
            let there = old.iter().map(|word| word.load(Ordering::Relaxed));
            for slot in there.filter(|it| *it < REMOVED).chain(more) {
                let free = probe(&words.slice, slot).err().flatten().expect("it has room for all");
                words.slice[free].store(slot, Ordering::Relaxed);
            }
        }
        counts.used = counts.slots;
        self.0.set(words);
    }
}

/// Where a slot is, or where it could be put.
fn probe(words: &[AtomicU32], slot: SlotId) -> Result<usize, Option<usize>> {
    let mut free = None;
    // Slots are numbered as keys come: spread by the golden ratio.
    let start = slot.wrapping_mul(0x9e37_79b9) as usize >> 8;
    for step in 0..words.len() {
        let at = (start + step) & (words.len() - 1);
        match words[at].load(Ordering::Relaxed) {
            found if found == slot => return Ok(at),
            EMPTY => return Err(free.or(Some(at))),
            REMOVED => free = free.or(Some(at)),
            _ => {}
        }
    }
    Err(free)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn postings_hold_what_a_set_holds_and_do_not_take_much_more(
            steps in proptest::collection::vec((any::<bool>(), 0..200_u32), 0..600),
        ) {
            let (postings, mut counts) = (Postings::default(), Counts::default());
            let mut model = BTreeSet::new();
            for (adds, slot) in steps {
                if adds {
                    prop_assert_eq!(postings.insert(slot, &mut counts), model.insert(slot));
                } else {
                    prop_assert_eq!(postings.remove(slot, &mut counts), model.remove(&slot));
                }
                prop_assert_eq!(postings.slots().collect::<BTreeSet<_>>(), model.clone());
                prop_assert_eq!(postings.slots().count(), model.len());
                prop_assert_eq!(counts.slots as usize, model.len());
                let words = postings.0.load().as_ref().map_or(0, |words| words.slice.len());
                prop_assert!(words <= 8 * model.len().max(1), "{} words for {}", words, model.len());
            }
        }
    }

    #[test]
    fn a_walk_is_not_disturbed_by_growth_or_by_what_leaves_behind_it() {
        let (postings, mut counts) = (Postings::default(), Counts::default());
        for slot in 0..8 {
            postings.insert(slot, &mut counts);
        }
        let mut walk = postings.slots();
        let first = walk.next().unwrap();
        postings.remove(first, &mut counts);
        for slot in 8..100 {
            postings.insert(slot, &mut counts);
        }
        let seen: BTreeSet<_> = walk.chain([first]).collect();
        assert!((0..8).all(|slot| seen.contains(&slot)), "{seen:?}");
    }
}
