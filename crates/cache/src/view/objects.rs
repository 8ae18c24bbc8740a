//! Objects one after the other, fetched some at a time.

use std::hint::black_box;

use masthead_core::Object;

use super::Snapshot;
use crate::limits::LENT;
use crate::version::{SlotId, Version};

/// The objects that a snapshot sees in slots, in their order.
///
/// Each is three steps away (the slot, its newest version, the object), which mostly stand in lines of
/// memory that nobody has touched for long. Of some slots at a time each step is made for all before the
/// next, so that they wait together: at most so many objects are read that nobody asks for.
pub(super) struct Objects<'a, I> {
    snapshot: &'a Snapshot,
    slots: I,
    fetched: [Option<Object>; LENT],
    /// The first of them that was not handed out.
    at: usize,
}

impl<'a, I: Iterator<Item = SlotId>> Objects<'a, I> {
    pub(super) fn new(snapshot: &'a Snapshot, slots: I) -> Self {
        Self { snapshot, slots, fetched: Default::default(), at: LENT }
    }

    /// Nothing if there are no more slots.
    fn fetch(&mut self) -> Option<()> {
        let mut ids = [None; LENT];
        for (place, id) in ids.iter_mut().zip(&mut self.slots) {
            *place = Some(id);
        }
        ids[0]?;
        let view = &*self.snapshot.view;
        let slots = ids.map(|id| view.slots.get(id?));
        let mut seen = slots.iter().flatten().fold(0, |seen, slot| seen ^ slot.stamp().seq);
        let newest = slots.map(|slot| slot.map(|slot| slot.newest.load()));
        let newest = || newest.iter().map(|it| it.as_ref().and_then(|it| it.as_ref()));
        seen = newest().flatten().fold(seen, |seen, newest| seen ^ newest.seq);
        seen = newest().flatten().fold(seen, |seen, newest| seen ^ newest.object.revision().0);
        black_box(seen);
        let (commons, seq) = (&view.commons, self.snapshot.seq);
        let look = |newest| commons.look_at(newest, seq, |it: &Version| it.live().cloned());
        for (fetched, newest) in self.fetched.iter_mut().zip(newest()) {
            *fetched = newest.and_then(|newest| look(newest).flatten());
        }
        self.at = 0;
        Some(())
    }
}

impl<I: Iterator<Item = SlotId>> Iterator for Objects<'_, I> {
    type Item = Object;

    fn next(&mut self) -> Option<Object> {
        loop {
            let left = &mut self.fetched[self.at..];
            if let Some(at) = left.iter().position(Option::is_some) {
                self.at += at + 1;
                return left[at].take();
            }
            self.fetch()?;
        }
    }
}
