//! The writer's state: what is there, and what is in the window.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use imbl::OrdMap;
use masthead_core::{Mutation, Object, ObjectKey, Revision, Time, planted};

use crate::history::{Entry, Ring, Segment};
use crate::index::{Index, IndexState, IndexValues, IndexView};
use crate::limits::{
    HISTORY_AGE, HISTORY_BYTES, HISTORY_CHANGES, SEGMENT_CHANGES_MAX, VIEWS_BETWEEN_SWEEPS,
};
use crate::memory::Memory;
use crate::past::{Commons, Kept};
use crate::slots::{Slots, Stamp};
use crate::sync::{Arc, AtomicU64};
use crate::table::Table;
use crate::version::{Place, Seq, SlotId, Step, Term, Terms, VERSION_BYTES, Version};
use crate::view::View;

mod ahead;
mod cut;
mod keys;
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
    /// Up to so many bytes, changes that a reader has not read yet are kept beyond the first two bounds.
    /// Each publication then looks at every cursor: for caches with few of them. Zero keeps nothing.
    pub unread_bytes: usize,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self { changes: HISTORY_CHANGES, bytes: HISTORY_BYTES, age: HISTORY_AGE, unread_bytes: 0 }
    }
}

/// Bytes of a change in its segment besides the states that it keeps.
const ENTRY_BYTES: usize = size_of::<Entry>();

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
    commons: Arc<Commons>,
    table: Arc<Table>,
    /// Words of the table that are taken or were.
    table_used: usize,
    slots: Slots,
    /// Slots that have been given out, ever.
    slots_used: usize,
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
    index_views: std::sync::Arc<[IndexView]>,
    /// When the changes up to a sequence number were applied.
    times: VecDeque<(Time, Seq)>,
    /// Views that were published and may still be held, oldest first.
    views: VecDeque<Arc<View>>,
    sweep_at: usize,
    /// By the sequence number of a view that needs them.
    retained: BTreeMap<Seq, Vec<Retained>>,
    /// The same, as readers find them.
    kept: Kept,
    pub(crate) memory: Memory,
    scratch: IndexValues,
    terms: Vec<Term>,
    /// Mutations that are looked at together; empty between batches.
    pub(crate) ahead: Vec<Mutation>,
}

impl State {
    pub(crate) fn new(limits: HistoryLimits, indexes: Vec<Index>, seed: u64) -> Self {
        let ring = Arc::new(Ring::new(0));
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
            commons: Arc::new(Commons::new(ring.clone())),
            table: Arc::new(Table::new(seed, 0)),
            table_used: 0,
            slots: Slots::default(),
            slots_used: 0,
            free: Vec::new(),
            ring,
            segments: VecDeque::new(),
            next_segment: 0,
            tail_segment: 0,
            cut: 1,
            unsealed: Vec::new(),
            indexes: indexes.into_iter().map(|index| IndexState::new(index, seed)).collect(),
            index_views: std::sync::Arc::new([]),
            times: VecDeque::new(),
            views: VecDeque::new(),
            sweep_at: VIEWS_BETWEEN_SWEEPS,
            retained: BTreeMap::new(),
            kept: Kept::new(),
            memory: Memory::default(),
            scratch: IndexValues::default(),
            terms: Vec::new(),
            ahead: Vec::new(),
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
            commons: self.commons.clone(),
            segments: self.first_segment() + self.tail_segment as u64..self.next_segment,
            indexes: self.index_views.clone(),
            exact: AtomicU64::new(Seq::MAX),
        }
    }

    /// The newest versions of the objects that are there, in the order of their keys.
    pub(crate) fn live_versions(&self) -> impl Iterator<Item = Arc<Version>> + '_ {
        let newest = self.keys.values().filter_map(|slot| self.newest(*slot));
        newest.filter(|version| !version.gone)
    }

    /// Puts a version on top of a key's others.
    pub(crate) fn push(&mut self, older: Option<Arc<Version>>, object: Object, step: Step) {
        let slot = older.as_ref().map_or_else(|| self.take_slot(object.key()), |older| older.slot);
        let old = older.as_ref().map_or(&Terms::NONE, |older| &older.terms);
        let terms = if step.gone { Terms::NONE } else { self.terms(&object, old) };
        for &(index, value) in terms.iter().filter(|term| !old.contains(term)) {
            self.indexes[index as usize].enter(value, slot);
        }
        if planted::on("posting_leaves_early") {
            for &(index, value) in old.iter().filter(|term| !terms.contains(term)) {
                self.indexes[index as usize].leave(value, slot);
            }
        }
        self.head += 1;
        let segment = self.next_segment + (self.unsealed.len() / SEGMENT_CHANGES_MAX) as u64;
        let place = Place { seq: self.head, segment, slot };
        let version = Arc::new(Version::new(place, object, terms, step));
        self.slot(slot).set_stamp(Stamp { seq: self.head, gone: step.gone });
        let entry = Entry { version, older };
        self.count(&entry);
        // What was before is found through the ring, where it is not yet. A new key has nothing before.
        if entry.older.is_none() || planted::on("shown_before_sealed") {
            self.show(&entry.version);
        }
        self.unsealed.push(entry);
        self.revision = self.revision.max(step.revision);
    }

    /// Makes segments of the changes since the last ones, lets readers find their versions, and says
    /// how many segments.
    pub(crate) fn seal(&mut self) -> usize {
        let mut unsealed = std::mem::take(&mut self.unsealed);
        let before = self.segments.len();
        while !unsealed.is_empty() {
            let count = unsealed.len().min(SEGMENT_CHANGES_MAX);
            self.seal_one(unsealed.drain(..count).collect());
        }
        self.unsealed = unsealed;
        let sealed = self.segments.len() - before;
        for Entry { version, older } in self.newest_changes(sealed) {
            if older.is_some() && self.slot(version.slot).stamp().seq == version.seq {
                self.show(version);
            }
        }
        sealed
    }

    fn seal_one(&mut self, changes: Box<[Entry]>) {
        if self.segments.len() == self.ring.len() {
            let ring = Ring::new(self.ring.len() * 2);
            self.segments.iter().for_each(|segment| ring.put(segment.clone()));
            self.ring = Arc::new(ring);
            self.commons.ring.set(Some(self.ring.clone()));
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

    /// The number of the first segment in the ring.
    fn first_segment(&self) -> u64 {
        self.next_segment - self.segments.len() as u64
    }

    /// What a change in the segments says was before a version.
    fn before(&self, version: &Version) -> Option<Arc<Version>> {
        let at = usize::try_from(version.segment.checked_sub(self.first_segment())?).ok()?;
        self.segments.get(at)?.get(version.seq)?.older.clone()
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
            memory.whole -= older.whole_bytes();
            memory.heads -= older.head_bytes();
        }
        if !version.gone {
            memory.objects += 1;
            memory.bodies += version.body_bytes();
            memory.whole += version.whole_bytes();
            memory.heads += version.head_bytes();
        }
    }

    /// Moves the tail to where the limits want it; `unread` is the first change that a reader has still to
    /// read. Nothing is cut yet: that waits for publication.
    pub(crate) fn bound(&mut self, now: Time, unread: impl FnOnce() -> Seq) {
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
        let asks = self.limits.unread_bytes > 0 && self.is_over();
        let unread = if asks { unread() } else { Seq::MAX };
        while self.is_over()
            && (self.tail < unread || self.memory.history > self.limits.unread_bytes)
        {
            self.drop_oldest();
        }
        while self.times.front().is_some_and(|(_, seq)| *seq < self.tail) {
            self.times.pop_front();
        }
    }

    /// Returns `true` if the window has more changes or bytes than it should.
    fn is_over(&self) -> bool {
        let changes = self.head + 1 - self.tail;
        let most = self.limits.changes as u64;
        changes > 0 && (changes > most || self.memory.history > self.limits.bytes)
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
        if let Some(entry) = self.unsealed.pop() {
            self.memory.history -= entry_bytes(&entry);
            // Only now and then: a list that names an object twice.
            if entry.older.is_some() {
                self.show(&entry.version);
            }
        }
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
