//! Entries of a queue and the lists they stand in.

use std::ops::{Index, IndexMut};

use super::{Moment, Priority, Trigger};

/// Where an entry is: an index that fits beside its neighbours'.
pub(super) type Slot = u32;

const NONE: Slot = Slot::MAX;

/// What is known of a key.
///
/// An entry stands in at most one list: of those that wait, of those being worked on, or of those that are
/// only remembered for their failures.
#[derive(Debug)]
pub(super) struct Entry<K> {
    /// None once it is free.
    key: Option<K>,
    pub(super) hash: u32,
    pub(super) place: Place,
    /// Of the one that waits or is worked on.
    pub(super) request: Request,
    /// Asked for while it was being worked on (R28).
    pub(super) again: Option<Request>,
    /// Its place among the delayed.
    pub(super) due: Option<(Moment, u64)>,
    pub(super) failures: u32,
    /// An attempt that begins before this does not count as one (R29).
    pub(super) retry_at: Moment,
    /// When the attempt under way began.
    pub(super) started: Moment,
    pub(super) class: u32,
    previous: Slot,
    next: Slot,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Waiting,
    Working,
    /// In no list: it is delayed.
    Resting,
    /// Kept only for its failures.
    Remembered,
}

/// Why and since when a key waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub(super) priority: Priority,
    pub(super) trigger: Trigger,
    pub(super) since: Moment,
}

impl Request {
    /// Two of one key are one: the first, as urgent as the more urgent.
    pub(super) fn merge(self, other: Self) -> Self {
        Self { priority: self.priority.max(other.priority), ..self }
    }
}

impl<K> Entry<K> {
    pub(super) fn key(&self) -> &K {
        self.key.as_ref().expect("only entries in use are looked at")
    }

    /// Returns `true` if the key waits at least as urgently as this.
    pub(super) fn waits_as(&self, priority: Priority) -> bool {
        self.place == Place::Waiting && priority <= self.request.priority
    }
}

/// Entries in a chunk: 40 KB.
const CHUNK: usize = 256;

/// All entries. A free one is used again where it stands: nothing is moved or allocated for a key that
/// comes and goes. They stand in chunks, so that a queue that grows does not copy all of them with its lock
/// held.
#[derive(Debug)]
pub(super) struct Entries<K> {
    /// All but the last are full.
    chunks: Vec<Vec<Entry<K>>>,
    free: Vec<Slot>,
}

impl<K> Entries<K> {
    pub(super) fn new() -> Self {
        Self { chunks: Vec::new(), free: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.made() - self.free.len()
    }

    /// How many there are, free ones too.
    fn made(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    /// Has room for one more.
    fn last_chunk(&mut self) -> &mut Vec<Entry<K>> {
        if self.chunks.last().is_none_or(|last| last.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        self.chunks.last_mut().expect("there is one now")
    }

    /// A new entry that rests.
    pub(super) fn insert(&mut self, key: K, hash: u32, request: Request) -> Slot {
        let Some(slot) = self.free.pop() else {
            let slot = Slot::try_from(self.made()).expect("a queue's capacity fits in 32 bits");
            self.last_chunk().push(Entry {
                key: Some(key),
                hash,
                place: Place::Resting,
                request,
                again: None,
                due: None,
                failures: 0,
                retry_at: Moment::START,
                started: Moment::START,
                class: 0,
                previous: NONE,
                next: NONE,
            });
            return slot;
        };
        // What is free has no second request, no delay and no failures.
        let entry = &mut self[slot];
        (entry.key, entry.hash, entry.place) = (Some(key), hash, Place::Resting);
        entry.request = request;
        entry.retry_at = Moment::START;
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        let entry = &mut self[slot];
        debug_assert!(entry.again.is_none() && entry.due.is_none() && entry.failures == 0);
        entry.key = None;
        self.free.push(slot);
    }
}

impl<K> Index<Slot> for Entries<K> {
    type Output = Entry<K>;

    fn index(&self, slot: Slot) -> &Entry<K> {
        &self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }
}

impl<K> IndexMut<Slot> for Entries<K> {
    fn index_mut(&mut self, slot: Slot) -> &mut Entry<K> {
        &mut self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }
}

/// A list through entries, first in first out, from which any may be taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: Slot,
    tail: Slot,
}

impl Default for List {
    fn default() -> Self {
        Self { head: NONE, tail: NONE }
    }
}

impl List {
    pub(super) fn is_empty(self) -> bool {
        self.head == NONE
    }

    pub(super) fn first(self) -> Option<Slot> {
        (self.head != NONE).then_some(self.head)
    }

    pub(super) fn push<K>(&mut self, entries: &mut Entries<K>, slot: Slot) {
        let entry = &mut entries[slot];
        entry.previous = self.tail;
        entry.next = NONE;
        match self.tail {
            NONE => self.head = slot,
            tail => entries[tail].next = slot,
        }
        self.tail = slot;
    }

    pub(super) fn remove<K>(&mut self, entries: &mut Entries<K>, slot: Slot) {
        let Entry { previous, next, .. } = entries[slot];
        match previous {
            NONE => self.head = next,
            previous => entries[previous].next = next,
        }
        match next {
            NONE => self.tail = previous,
            next => entries[next].previous = previous,
        }
    }

    pub(super) fn for_each<K>(self, entries: &mut Entries<K>, mut call: impl FnMut(&mut Entry<K>)) {
        let mut at = self.head;
        while at != NONE {
            call(&mut entries[at]);
            at = entries[at].next;
        }
    }

    pub(super) fn iter<K>(self, entries: &Entries<K>) -> impl Iterator<Item = &Entry<K>> {
        let mut at = self.head;
        std::iter::from_fn(move || {
            let entry = (at != NONE).then(|| &entries[at])?;
            at = entry.next;
            Some(entry)
        })
    }
}
