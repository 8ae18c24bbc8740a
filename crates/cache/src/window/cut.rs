//! What leaves the window: cut, unless a snapshot still sees it.

use std::sync::Arc;

use super::{State, kept};
use crate::history::Entry;
use crate::limits::VIEWS_BETWEEN_SWEEPS;
use crate::sync::Ordering;
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
        while self.cut < self.tail {
            let segment = self.segments.front().expect("what is cut is in the first segment");
            let (entry, end) = (segment.get(self.cut).cloned(), segment.end());
            self.cut_older(&entry.expect("segments are cut in order"), &pins);
            self.cut += 1;
            if self.cut == end {
                let segment = self.segments.pop_front().expect("it was there");
                self.tail_segment -= 1;
                self.ring.clear(&segment);
            }
        }
        self.release(&pins);
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

    /// Takes what stood before a change out of the key's chain, unless a snapshot sees it.
    fn cut_older(&mut self, Entry { version, older }: &Entry, pins: &[(Seq, Seq)]) {
        let Some(older) = older else {
            self.free_if_gone(version.slot);
            return;
        };
        let retained =
            Retained { slot: version.slot, seq: older.seq, until: version.seq, bytes: kept(older) };
        if let Some(view) = holder(pins, &retained) {
            self.memory.pinned += retained.bytes;
            self.retained.entry(view).or_default().push(retained);
            return;
        }
        // Where nothing is kept for snapshots there is nothing below.
        let below = if self.retained.is_empty() { None } else { older.older.get() };
        self.unlink(version, older, below);
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
                let (newer, older) = self.find_link(&retained);
                self.unlink(&newer, &older, older.older.get());
            }
        }
    }

    fn find_link(&self, retained: &Retained) -> (Arc<Version>, Arc<Version>) {
        let newest = self.newest[retained.slot as usize].clone();
        let mut newer = newest.expect("retained slots are not freed");
        loop {
            let older = newer.older.get().expect("retained versions are linked");
            if older.seq == retained.seq {
                return (newer, older);
            }
            newer = older;
        }
    }

    /// Takes `older` out of the chain between `newer` and `oldest`, with the index entries that only it
    /// had.
    fn unlink(&mut self, newer: &Version, older: &Version, oldest: Option<Arc<Version>>) {
        let below = oldest.as_ref().map_or(&Terms::NONE, |oldest| &oldest.terms);
        // Runs of versions that have a value: one ends if only `older` had it, and two become one if
        // only `older` had it not.
        let ended =
            older.terms.iter().filter(|it| !newer.terms.contains(it) && !below.contains(it));
        let merged =
            below.iter().filter(|it| newer.terms.contains(it) && !older.terms.contains(it));
        for &(index, value) in ended.chain(merged) {
            self.indexes[index as usize].leave(value, older.slot);
        }
        newer.older.set(oldest);
        self.free_if_gone(newer.slot);
    }

    /// Frees a slot whose only version is a delete that has left the window.
    fn free_if_gone(&mut self, slot: SlotId) {
        let newest = self.newest[slot as usize].clone();
        let Some(newest) = newest.filter(|it| it.gone && it.seq < self.tail) else { return };
        if newest.older.load().is_none() {
            self.free_slot(newest.key(), slot);
        }
    }
}

/// A view through which a snapshot sees the version, if there is one.
fn holder(pins: &[(Seq, Seq)], retained: &Retained) -> Option<Seq> {
    let sees = |(low, high): &&(Seq, Seq)| *low < retained.until && *high >= retained.seq;
    pins.iter().rev().find(sees).map(|(_, view)| *view)
}
