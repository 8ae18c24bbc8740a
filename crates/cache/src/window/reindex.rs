//! Adding an index to what is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::State;
use crate::history::Entry;
use crate::index::{Index, IndexState};
use crate::version::{SlotId, Terms, Version};

impl State {
    /// Adds an index and computes it for every version there is. The versions are replaced by new ones
    /// that are the same but for their values; readers notice nothing.
    pub(crate) fn add_index(&mut self, index: Index) {
        let number = u32::try_from(self.indexes.len()).expect("limited by INDEXES_MAX");
        self.indexes.push(IndexState::new(index, self.seed));
        let slots: Vec<SlotId> = self.keys.values().copied().collect();
        let mut replaced = BTreeMap::new();
        for slot in slots {
            let mut chain = Vec::new();
            let mut next = self.newest[slot as usize].clone();
            while let Some(version) = next {
                next = version.older.get();
                chain.push(version);
            }
            let mut older: Option<Arc<Version>> = None;
            for version in chain.into_iter().rev() {
                let new = Arc::new(self.reindexed(number, &version, older));
                replaced.insert(new.seq, new.clone());
                older = Some(new);
            }
            self.set_newest(slot, older);
        }
        let new = |old: &Arc<Version>| replaced.get(&old.seq).unwrap_or(old).clone();
        for segment in &mut self.segments {
            let entries = segment.entries.iter().map(|Entry { version, older }| Entry {
                version: new(version),
                older: older.as_ref().map(new),
            });
            *segment = Arc::new(segment.with(entries.collect()));
            self.ring.put(segment.clone());
        }
    }

    fn reindexed(
        &mut self,
        number: u32,
        version: &Version,
        older: Option<Arc<Version>>,
    ) -> Version {
        let old = older.as_ref().map_or(Terms::NONE, |older| older.terms.clone());
        let mut terms = version.terms.to_vec();
        if !version.gone {
            let mut scratch = std::mem::take(&mut self.scratch);
            let index = &mut self.indexes[number as usize];
            index.compute(number, &version.object, &old, &mut scratch, &mut terms);
            self.scratch = scratch;
        }
        for &(index, value) in terms.iter().filter(|term| term.0 == number && !old.contains(term)) {
            self.indexes[index as usize].enter(value, version.slot);
        }
        version.with_terms(Terms::new(&terms), older)
    }
}
