//! Keys and their slots.

use masthead_core::ObjectKey;

use super::State;
use crate::slots::{KeyHead, Slot};
use crate::sync::Arc;
use crate::table::{TABLE_BYTES_PER_KEY, Table};
use crate::version::{SlotId, Version};

/// Bytes of a key: its slot, its words in the table, and its entry of the ordered keys at the fill of
/// two thirds that random insertion gives.
const KEY_BYTES: usize =
    size_of::<Slot>() + TABLE_BYTES_PER_KEY + size_of::<(ObjectKey, SlotId)>() * 3 / 2;

impl State {
    /// The newest version of a key.
    pub(crate) fn find(&self, key: &ObjectKey) -> Option<Arc<Version>> {
        let head = KeyHead::new(key.as_str());
        self.table.find(self.table.hash(key.as_str()), |id| {
            let newest = if self.slot(id).has(&head) { self.newest(id) } else { None };
            newest.filter(|newest| head.is_whole() || newest.key() == key)
        })
    }

    /// A slot that was given out.
    pub(super) fn slot(&self, id: SlotId) -> &Slot {
        self.slots.get(id).expect("slots that were given out are there")
    }

    /// The newest version of a slot, also if readers cannot find it yet.
    pub(super) fn newest(&self, id: SlotId) -> Option<Arc<Version>> {
        let slot = self.slot(id);
        let first_unsealed = self.head + 1 - self.unsealed.len() as u64;
        match slot.stamp().seq.checked_sub(first_unsealed) {
            Some(at) => {
                let at = usize::try_from(at).expect("below the number of unsealed changes");
                Some(self.unsealed[at].version.clone())
            }
            None => slot.newest.get(),
        }
    }

    /// Lets readers find the newest version of a slot. They see it with the next view.
    pub(super) fn show(&self, version: &Arc<Version>) {
        self.slot(version.slot).newest.set(Some(version.clone()));
    }

    /// Gives a slot to a key.
    pub(super) fn take_slot(&mut self, key: &ObjectKey) -> SlotId {
        if self.table_used >= self.table.limit() {
            self.grow_table();
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            if self.slots_used == self.slots.capacity() {
                self.slots.grow();
            }
            self.slots_used += 1;
            SlotId::try_from(self.slots_used - 1).expect("fewer than 2^32 keys")
        });
        self.slot(slot).set_key(KeyHead::new(key.as_str()));
        let fresh = self.table.insert(self.table.hash(key.as_str()), slot);
        self.table_used += usize::from(fresh);
        self.keys.insert(key.clone(), slot);
        self.memory.heads += KEY_BYTES;
        slot
    }

    fn grow_table(&mut self) {
        let table = Table::new(self.seed, self.keys.len() + 1);
        for (key, slot) in &self.keys {
            table.insert(table.hash(key.as_str()), *slot);
        }
        self.table_used = self.keys.len();
        self.table = Arc::new(table);
    }

    /// Takes a slot from its key, of which nothing is left that anybody sees.
    pub(super) fn free_slot(&mut self, key: &ObjectKey, slot: SlotId) {
        self.table.remove(self.table.hash(key.as_str()), slot);
        self.keys.remove(key);
        self.slot(slot).newest.set(None);
        self.free.push(slot);
        self.memory.heads -= KEY_BYTES;
    }
}
