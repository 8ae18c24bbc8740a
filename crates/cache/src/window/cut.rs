//! What leaves the window: cut, unless a snapshot still sees it.

use masthead_core::planted;

use super::ahead::look_at_older;
use super::{State, kept};
use crate::history::Entry;
use crate::limits::VIEWS_BETWEEN_SWEEPS;
use crate::sync::{Arc, Ordering};
use crate::version::{Seq, SlotId, Terms, Version};
use crate::view::View;

/// A version outside the window that a snapshot still sees.
#[derive(Debug)]
pub(super) struct Retained {
    slot: SlotId,
    seq: Seq,
    /// The sequence number at which it was superseded.
    until: Seq,
    bytes: usize,
}

impl State {
    /// Cuts what the publication of the last view has put out of reach.
    pub(crate) fn cut(&mut self, before: Arc<View>) {
        self.views.push_back(before);
        self.sweep();
        if self.cut == self.tail && self.retained.is_empty() {
            return;
        }
        let pins = self.pins();
        let first = self.first_segment();
        while self.cut < self.tail {
            let segment =
                self.segments.front().expect("what is cut is in the first segment").clone();
            let entries = segment.between(self.cut, self.tail);
            look_at_older(entries);
            for entry in entries {
                self.cut += 1;
                self.cut_older(entry, &pins);
            }
            if self.cut == segment.end() {
                self.segments.pop_front();
                self.tail_segment -= 1;
            }
        }
        self.release(&pins);
        let gone = first..self.first_segment();
        if planted::on("kept_too_late") {
            gone.clone().for_each(|number| self.ring.clear(number));
        }
        // What snapshots see of the changes is kept before the changes go.
        self.show_kept();
        gone.for_each(|number| self.ring.clear(number));
    }

    /// Forgets the views that nobody holds any more. Those in the middle only now and then.
    fn sweep(&mut self) {
        while self.views.front_mut().is_some_and(|view| Arc::get_mut(view).is_some()) {
            self.views.pop_front();
        }
        if self.views.len() >= self.sweep_at {
            self.views.retain_mut(|view| Arc::get_mut(view).is_none());
            self.sweep_at = 2 * self.views.len() + VIEWS_BETWEEN_SWEEPS;
        }
    }

    /// The ranges of sequence numbers that readers may read at, besides those of the newest view, with
    /// the number of the view through which they do.
    fn pins(&mut self) -> Vec<(Seq, Seq)> {
        let held = self.views.iter_mut().filter_map(|view| {
            let held = Arc::get_mut(view).is_none();
            held.then(|| (view.exact.load(Ordering::SeqCst).min(view.seq), view.seq))
        });
        held.collect()
    }

    /// Gives up what stood before a change, unless a snapshot sees it.
    fn cut_older(&mut self, Entry { version, older }: &Entry, pins: &[(Seq, Seq)]) {
        let Some(older) = older else { return };
        let slot = version.slot;
        let retained = Retained { slot, seq: older.seq, until: version.seq, bytes: kept(older) };
        if let Some(view) = holder(pins, &retained) {
            self.memory.pinned += retained.bytes;
            self.kept.insert((slot, retained.until), older.clone());
            self.retained.entry(view).or_default().push(retained);
            return;
        }
        self.leave_indexes(version, older, self.kept_below(slot, version.seq).as_deref());
        // If not here, then where the delete leaves the window.
        if version.gone {
            self.free_if_gone(slot);
        }
    }

    /// Looks again at what views kept that are gone now.
    fn release(&mut self, pins: &[(Seq, Seq)]) {
        if self.retained.is_empty() {
            return;
        }
        let gone: Vec<Seq> = self
            .retained
            .keys()
            .filter(|seq| !pins.iter().any(|(_, view)| view == *seq))
            .copied()
            .collect();
        for seq in gone {
            for retained in self.retained.remove(&seq).into_iter().flatten() {
                if let Some(view) = holder(pins, &retained) {
                    self.retained.entry(view).or_default().push(retained);
                    continue;
                }
                self.memory.pinned -= retained.bytes;
                self.give_up(retained.slot, retained.until);
            }
        }
    }

    /// Gives up a kept version.
    fn give_up(&mut self, slot: SlotId, until: Seq) {
        let older = self.kept.remove(&(slot, until)).expect("what is retained is kept");
        let above = self.kept.range((slot, until)..=(slot, Seq::MAX)).next();
        let newer = above.map_or_else(|| self.oldest_in_window(slot), |(_, it)| it.clone());
        self.leave_indexes(&newer, &older, self.kept_below(slot, until).as_deref());
        self.free_if_gone(slot);
    }

    /// The newest version of a slot that is kept and was superseded before `until`.
    fn kept_below(&self, slot: SlotId, until: Seq) -> Option<Arc<Version>> {
        if self.kept.is_empty() {
            return None;
        }
        let mut below = self.kept.range((slot, 0)..(slot, until));
        below.next_back().map(|(_, version)| version.clone())
    }

    /// What is visible of a slot where the window begins.
    fn oldest_in_window(&self, slot: SlotId) -> Arc<Version> {
        let mut version = self.newest(slot).expect("slots with something kept are not freed");
        while version.seq >= self.cut {
            version = self.before(&version).expect("something kept was before");
        }
        version
    }

    /// Takes `older` out between `newer` and `below`, with the index entries that only it had.
    fn leave_indexes(&mut self, newer: &Version, older: &Version, below: Option<&Version>) {
        let below = below.map_or(&Terms::NONE, |below| &below.terms);
        // Runs of versions that have a value: one ends if only `older` had it, and two become one if
        // only `older` had it not.
        let ended =
            older.terms.iter().filter(|it| !newer.terms.contains(it) && !below.contains(it));
        let merged =
            below.iter().filter(|it| newer.terms.contains(it) && !older.terms.contains(it));
        for &(index, value) in ended.chain(merged) {
            self.indexes[index as usize].leave(value, older.slot);
        }
    }

    /// Frees a slot of which nothing is left but a delete that has left the window.
    fn free_if_gone(&mut self, slot: SlotId) {
        let stamp = self.slot(slot).stamp();
        if !stamp.gone || stamp.seq >= self.cut || self.kept_below(slot, Seq::MAX).is_some() {
            return;
        }
        if let Some(newest) = self.newest(slot) {
            self.free_slot(newest.key(), slot);
        }
    }

    /// Lets readers find what is kept for snapshots.
    fn show_kept(&self) {
        let shown = self.commons.kept.load();
        let same = match shown.as_ref() {
            Some(shown) => shown.ptr_eq(&self.kept),
            None => self.kept.is_empty(),
        };
        if !same {
            let kept = (!self.kept.is_empty()).then(|| Arc::new(self.kept.clone()));
            self.commons.kept.set(kept);
        }
    }
}

/// A view through which a snapshot sees the version, if there is one.
fn holder(pins: &[(Seq, Seq)], retained: &Retained) -> Option<Seq> {
    let sees = |(low, high): &&(Seq, Seq)| *low < retained.until && *high >= retained.seq;
    pins.iter().rev().find(sees).map(|(_, view)| *view)
}
