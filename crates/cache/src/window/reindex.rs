//! Adding an index to what is there.

use std::collections::BTreeMap;

use super::State;
use crate::history::Entry;
use crate::index::{Index, IndexState};
use crate::sync::Arc;
use crate::version::{Seq, SlotId, Terms, Version};

impl State {
    /// Adds an index and computes it for every version that is in the window or kept. The versions are
    /// replaced by new ones that are the same but for their values; readers notice nothing.
    pub(crate) fn add_index(&mut self, index: Index) {
        let number = u32::try_from(self.indexes.len()).expect("limited by INDEXES_MAX");
        self.indexes.push(IndexState::new(index, self.seed));
        let slots: Vec<SlotId> = self.keys.values().copied().collect();
        let mut replaced = BTreeMap::new();
        for slot in slots {
            let mut old = Terms::NONE;
            for version in self.versions(slot) {
                let new = Arc::new(self.reindexed(number, &version, &old));
                old = new.terms.clone();
                replaced.insert(new.seq, new);
            }
        }
        self.replace(&replaced);
    }

    /// The versions of a slot that are kept or in the window, oldest first.
    fn versions(&self, slot: SlotId) -> Vec<Arc<Version>> {
        let mut versions = Vec::new();
        let mut next = self.newest(slot);
        while let Some(version) = next {
            next = (version.seq >= self.cut).then(|| self.before(&version)).flatten();
            versions.push(version);
        }
        let kept = self.kept.range((slot, 0)..=(slot, Seq::MAX));
        versions.extend(kept.rev().map(|(_, version)| version.clone()));
        versions.reverse();
        versions
    }

    fn reindexed(&mut self, number: u32, version: &Version, old: &Terms) -> Version {
        let mut terms = version.terms.to_vec();
        if !version.gone {
            let mut scratch = std::mem::take(&mut self.scratch);
            let index = &mut self.indexes[number as usize];
            index.compute(number, &version.object, old, &mut scratch, &mut terms);
            self.scratch = scratch;
        }
        for &(index, value) in terms.iter().filter(|term| term.0 == number && !old.contains(term)) {
            self.indexes[index as usize].enter(value, version.slot);
        }
        version.with_terms(Terms::new(&terms))
    }

    /// Puts versions, by sequence number, wherever those that they replace stand.
    fn replace(&mut self, replaced: &BTreeMap<Seq, Arc<Version>>) {
        let new = |old: &Arc<Version>| replaced.get(&old.seq).unwrap_or(old).clone();
        for segment in &mut self.segments {
            let entries = segment.entries.iter().map(|Entry { version, older }| Entry {
                version: new(version),
                older: older.as_ref().map(new),
            });
            *segment = Arc::new(segment.with(entries.collect()));
            self.ring.put(segment.clone());
        }
        self.kept = self.kept.iter().map(|(place, version)| (*place, new(version))).collect();
        for slot in self.keys.values() {
            self.newest(*slot).iter().for_each(|version| self.show(&new(version)));
        }
    }
}
