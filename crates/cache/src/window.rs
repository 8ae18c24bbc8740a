//! The writer's state: what is there, and what is in the window.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use imbl::OrdMap;
use masthead_core::{Object, ObjectKey, Revision, Time};

use crate::history::{Entry, History, Ring, Segment};
use crate::index::{Index, IndexState, IndexValues, IndexView};
use crate::limits::{
    HISTORY_AGE, HISTORY_BYTES, HISTORY_CHANGES, SEGMENT_CHANGES_MAX, VIEWS_BETWEEN_SWEEPS,
};
use crate::memory::Memory;
use crate::sync::AtomicU64;
use crate::table::{TABLE_BYTES_PER_KEY, Table};
use crate::version::{Seq, SlotId, Slots, Step, Term, Terms, VERSION_BYTES, Version};
use crate::view::View;

mod cut;
mod reindex;

use cut::Retained;

/// How much history to keep: the first bound that is met ends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryLimits {
    /// Most changes.
    pub changes: usize,
    /// Most bytes, as [`Memory::history`] counts them.
    pub bytes: usize,
    /// Greatest age.
    pub age: Duration,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self { changes: HISTORY_CHANGES, bytes: HISTORY_BYTES, age: HISTORY_AGE }
    }
}

/// Bytes of a change in its segment besides the states that it keeps.
const ENTRY_BYTES: usize = size_of::<Entry>();
/// Bytes of a key: its slot, the writer's copy of it, its words in the table, and its entry of the
/// ordered keys at the fill of two thirds that random insertion gives.
const KEY_BYTES: usize =
    2 * size_of::<usize>() + TABLE_BYTES_PER_KEY + size_of::<(ObjectKey, SlotId)>() * 3 / 2;

/// Everything that only the writer touches.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) limits: HistoryLimits,
    seed: u64,
    pub(crate) revision: Revision,
    pub(crate) oldest: Revision,
    pub(crate) head: Seq,
    pub(crate) tail: Seq,
    pub(crate) barrier: Seq,
    pub(crate) epoch: u32,
    pub(crate) keys: OrdMap<ObjectKey, SlotId>,
    table: Arc<Table>,
    /// Words of the table that are taken or were.
    table_used: usize,
    slots: Slots,
    /// What stands in the slots, for the writer, who need not look through the readers' cells.
    newest: Vec<Option<Arc<Version>>>,
    free: Vec<SlotId>,
    ring: Arc<Ring>,
    /// The segments in the ring, oldest first, of which those before `cut` are dealt with.
    segments: VecDeque<Arc<Segment>>,
    next_segment: u64,
    /// Which of them has the tail.
    tail_segment: usize,
    cut: Seq,
    /// Changes that are not published yet.
    pub(crate) unsealed: Vec<Entry>,
    pub(crate) indexes: Vec<IndexState>,
    index_views: Arc<[IndexView]>,
    /// When the changes up to a sequence number were applied.
    times: VecDeque<(Time, Seq)>,
    /// Views that were published and may still be held, oldest first.
    views: VecDeque<Arc<View>>,
    sweep_at: usize,
    /// By the sequence number of a view that needs them.
    retained: BTreeMap<Seq, Vec<Retained>>,
    pub(crate) memory: Memory,
    scratch: IndexValues,
    terms: Vec<Term>,
}

impl State {
    pub(crate) fn new(limits: HistoryLimits, indexes: Vec<Index>, seed: u64) -> Self {
        Self {
            limits,
            seed,
            revision: Revision::ZERO,
            oldest: Revision::ZERO,
            head: 0,
            tail: 1,
            barrier: 0,
            epoch: 0,
            keys: OrdMap::new(),
            table: Arc::new(Table::new(seed, 0)),
            table_used: 0,
            slots: Slots::default(),
            newest: Vec::new(),
            free: Vec::new(),
            ring: Arc::new(Ring::new(0)),
            segments: VecDeque::new(),
            next_segment: 0,
            tail_segment: 0,
            cut: 1,
            unsealed: Vec::new(),
            indexes: indexes.into_iter().map(|index| IndexState::new(index, seed)).collect(),
            index_views: Arc::new([]),
            times: VecDeque::new(),
            views: VecDeque::new(),
            sweep_at: VIEWS_BETWEEN_SWEEPS,
            retained: BTreeMap::new(),
            memory: Memory::default(),
            scratch: IndexValues::default(),
            terms: Vec::new(),
        }
    }

    /// The present state, for publication.
    pub(crate) fn view(&mut self) -> View {
        if self
            .indexes
            .iter_mut()
            .fold(false, |any, index| std::mem::take(&mut index.changed) | any)
        {
            self.index_views = self.indexes.iter().map(|index| index.view.clone()).collect();
        }
        View {
            seq: self.head,
            revision: self.revision,
            oldest: self.oldest,
            tail: self.tail,
            barrier: self.barrier,
            epoch: self.epoch,
            live: self.memory.objects,
            keys: self.keys.clone(),
            table: self.table.clone(),
            slots: self.slots.clone(),
            history: self.history(),
            indexes: self.index_views.clone(),
            exact: AtomicU64::new(Seq::MAX),
        }
    }

    /// The newest version of a key.
    pub(crate) fn find(&self, key: &ObjectKey) -> Option<Arc<Version>> {
        self.table.find(self.table.hash(key.as_str()), |slot| {
            self.newest[slot as usize]
                .as_ref()
                .filter(|version| version.has_key(key.as_str()))
                .cloned()
        })
    }

    /// The newest versions of the objects that are there, in the order of their keys.
    pub(crate) fn live_versions(&self) -> impl Iterator<Item = Arc<Version>> + '_ {
        let newest = self.keys.values().filter_map(|slot| self.newest[*slot as usize].clone());
        newest.filter(|version| !version.gone)
    }

    /// Puts a version on top of a key's others. Readers do not see it before the next view.
    pub(crate) fn push(&mut self, older: Option<Arc<Version>>, object: Object, step: Step) {
        let slot = older.as_ref().map_or_else(|| self.take_slot(object.key()), |older| older.slot);
        let old = older.as_ref().map_or(&Terms::NONE, |older| &older.terms);
        let terms = if step.gone { Terms::NONE } else { self.terms(&object, old) };
        for &(index, value) in terms.iter().filter(|term| !old.contains(term)) {
            self.indexes[index as usize].enter(value, slot);
        }
        self.head += 1;
        let version = Version::new(self.head, slot, object, older.clone(), terms, step);
        let entry = Entry { version: Arc::new(version), older };
        self.count(&entry);
        self.set_newest(slot, Some(entry.version.clone()));
        self.unsealed.push(entry);
        self.revision = self.revision.max(step.revision);
    }

    fn set_newest(&mut self, slot: SlotId, version: Option<Arc<Version>>) {
        self.newest[slot as usize].clone_from(&version);
        self.slots.cell(slot).set(version);
    }

    /// Makes segments of the changes since the last ones and says how many.
    pub(crate) fn seal(&mut self) -> usize {
        let mut unsealed = std::mem::take(&mut self.unsealed);
        let before = self.segments.len();
        while !unsealed.is_empty() {
            let count = unsealed.len().min(SEGMENT_CHANGES_MAX);
            self.seal_one(unsealed.drain(..count).collect());
        }
        self.unsealed = unsealed;
        self.segments.len() - before
    }

    fn seal_one(&mut self, changes: Box<[Entry]>) {
        if self.segments.len() == self.ring.len() {
            let ring = Ring::new(self.ring.len() * 2);
            self.segments.iter().for_each(|segment| ring.put(segment.clone()));
            self.ring = Arc::new(ring);
        }
        let segment = Arc::new(Segment::new(self.next_segment, changes));
        self.next_segment += 1;
        self.ring.put(segment.clone());
        self.segments.push_back(segment);
    }

    /// The changes of the newest segments.
    pub(crate) fn newest_changes(&self, segments: usize) -> impl Iterator<Item = &Entry> {
        let newest = self.segments.range(self.segments.len() - segments..);
        newest.flat_map(|segment| &segment.entries)
    }

    /// The segments with changes in the window. Those before them may be gone at any moment.
    fn history(&self) -> History {
        let end = self.next_segment;
        let first = end - (self.segments.len() - self.tail_segment) as u64;
        History { ring: self.ring.clone(), first, end }
    }

    fn terms(&mut self, object: &Object, old: &Terms) -> Terms {
        let (mut scratch, mut terms) =
            (std::mem::take(&mut self.scratch), std::mem::take(&mut self.terms));
        terms.clear();
        for (number, index) in (0..).zip(&mut self.indexes) {
            index.compute(number, object, old, &mut scratch, &mut terms);
        }
        let new = if **old == *terms { old.clone() } else { Terms::new(&terms) };
        (self.scratch, self.terms) = (scratch, terms);
        new
    }

    /// Keeps the books for a change.
    fn count(&mut self, entry: &Entry) {
        let (memory, version) = (&mut self.memory, &entry.version);
        memory.history += entry_bytes(entry);
        if let Some(older) = entry.older.as_ref().filter(|older| !older.gone) {
            memory.objects -= 1;
            memory.bodies -= older.body_bytes();
            memory.heads -= older.head_bytes();
        }
        if !version.gone {
            memory.objects += 1;
            memory.bodies += version.body_bytes();
            memory.heads += version.head_bytes();
        }
    }

    fn take_slot(&mut self, key: &ObjectKey) -> SlotId {
        if self.table_used >= self.table.limit() {
            self.grow_table();
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            if self.newest.len() == self.slots.capacity() {
                self.slots.grow();
            }
            self.newest.push(None);
            SlotId::try_from(self.newest.len() - 1).expect("fewer than 2^32 keys")
        });
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

    fn free_slot(&mut self, key: &ObjectKey, slot: SlotId) {
        self.table.remove(self.table.hash(key.as_str()), slot);
        self.keys.remove(key);
        self.set_newest(slot, None);
        self.free.push(slot);
        self.memory.heads -= KEY_BYTES;
    }

    /// Moves the tail to where the limits want it. Nothing is cut yet: that waits for publication.
    pub(crate) fn bound(&mut self, now: Time) {
        if self.times.back().is_none_or(|(_, seq)| *seq < self.head) {
            self.times.push_back((now, self.head));
        }
        let mut keep_after = self.tail - 1;
        while let Some(&(at, seq)) = self.times.front() {
            if now.since(at) <= self.limits.age {
                break;
            }
            keep_after = seq;
            self.times.pop_front();
        }
        while self.tail <= keep_after {
            self.drop_oldest();
        }
        let changes = self.limits.changes as u64;
        while self.tail <= self.head
            && (self.head + 1 - self.tail > changes || self.memory.history > self.limits.bytes)
        {
            self.drop_oldest();
        }
        while self.times.front().is_some_and(|(_, seq)| *seq < self.tail) {
            self.times.pop_front();
        }
    }

    fn drop_oldest(&mut self) {
        let segment = &self.segments[self.tail_segment];
        let entry = segment.get(self.tail).expect("the window's changes are in its segments");
        if self.tail > self.barrier {
            self.oldest = self.oldest.max(entry.version.revision);
        }
        self.memory.history -= entry_bytes(entry);
        self.tail += 1;
        self.tail_segment += usize::from(self.tail == segment.end());
    }

    /// Leaves the newest change out of the history.
    pub(crate) fn forget_newest(&mut self) {
        self.memory.history -= self.unsealed.pop().as_ref().map_or(0, entry_bytes);
        self.tail = self.head + 1;
        self.cut = self.tail;
    }

    /// What follows is not connected by revisions to what was before.
    pub(crate) fn set_barrier(&mut self, revision: Revision) {
        self.barrier = self.head;
        self.oldest = revision;
        self.revision = revision;
        self.epoch += 1;
    }

    pub(crate) fn memory(&self) -> Memory {
        let indexes = self.indexes.iter().map(|index| index.bytes).sum();
        Memory { indexes, ..self.memory }
    }
}

/// Bytes that a change keeps in memory by keeping what was before it. The last state of a deleted
/// object is counted with the delete and again with what came after: rather too much than too little.
fn kept(older: &Version) -> usize {
    older.body_bytes() + older.head_bytes()
}

/// Bytes of a change in the window.
fn entry_bytes(entry: &Entry) -> usize {
    let gone = if entry.version.gone { VERSION_BYTES } else { 0 };
    ENTRY_BYTES + gone + entry.older.as_deref().map_or(0, kept)
}
