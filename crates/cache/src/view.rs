//! What is published to readers, and reading at one revision.

use std::ops::{Bound, Range};

use imbl::OrdMap;
use masthead_core::{Object, ObjectKey, Revision, Selectors, planted};

use crate::history::History;
use crate::index::{IndexView, NAMESPACE_INDEX};
use crate::past::Commons;
use crate::slots::{KeyHead, Slots};
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::table::Table;
use crate::version::{Seq, SlotId, Version};
use objects::Objects;

mod objects;

/// A state of the cache, published whole through one pointer.
///
/// Keys and index entries are those of every version in the window; a reader filters by the version
/// it sees at its own sequence number. So one view serves every revision of its window.
#[derive(Debug)]
pub(crate) struct View {
    /// The last change in it.
    pub(crate) seq: Seq,
    pub(crate) revision: Revision,
    /// Every change after this revision is in the history.
    pub(crate) oldest: Revision,
    /// The first change in the history.
    pub(crate) tail: Seq,
    /// The last change of the newest relist; only after it do revisions order the history.
    pub(crate) barrier: Seq,
    /// How many lists bridged a gap so far; 0 before the first.
    pub(crate) epoch: u32,
    pub(crate) live: usize,
    pub(crate) keys: OrdMap<ObjectKey, SlotId>,
    pub(crate) table: Arc<Table>,
    pub(crate) slots: Slots,
    pub(crate) commons: Arc<Commons>,
    /// The numbers of the segments with its history.
    pub(crate) segments: Range<u64>,
    pub(crate) indexes: std::sync::Arc<[IndexView]>,
    /// The lowest sequence number that an exact snapshot of this view reads at.
    pub(crate) exact: AtomicU64,
}

/// Asked for an index that this snapshot does not have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no index named {name:?}; there are: {known}")]
pub struct UnknownIndex {
    /// The name that was asked for.
    pub name: String,
    /// The names there are.
    pub known: String,
}

/// What part of a snapshot to read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query<'a> {
    /// Only this namespace.
    pub namespace: Option<&'a str>,
    /// Only keys from this text on, which is `namespace/name` and may stand between keys.
    pub start: Option<&'a str>,
    /// Only what these match.
    pub selectors: Option<&'a Selectors>,
}

/// The cache at one revision. Any number of reads of it see the same state; no read waits.
///
/// While it is held, the versions that it sees are kept: see [`Memory::pinned`](crate::Memory::pinned).
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) view: Arc<View>,
    pub(crate) seq: Seq,
    pub(crate) revision: Revision,
}

impl Snapshot {
    /// The revision that it shows.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The object with this key.
    pub fn get(&self, key: &ObjectKey) -> Option<Object> {
        self.get_str(key.as_str())
    }

    /// The object with this key text (`namespace/name`, or `name` where there are no namespaces).
    pub fn get_str(&self, key: &str) -> Option<Object> {
        self.read(key, Object::clone)
    }

    /// Looks at the object with this key text where it stands: a read without a reference count.
    pub fn read<T>(&self, key: &str, look: impl FnOnce(&Object) -> T) -> Option<T> {
        let view = &*self.view;
        let head = KeyHead::new(key);
        let mut look = Some(look);
        view.table.find(view.table.hash(key), |id| {
            let slot = view.slots.get(id)?;
            slot.look(&head, key, |newest| {
                let look = look.take()?;
                // Read after `newest` was: if it is not too new, neither is that, and they are the same.
                let stamp = slot.stamp();
                if stamp.seq <= self.seq {
                    return Some((!stamp.gone).then(|| look(&newest.object)));
                }
                view.commons.look_at(newest, self.seq, |version| version.live().map(look))
            })
        })?
    }

    /// How many objects there are. Constant for the newest state, a pass over the keys for older ones.
    pub fn len(&self) -> usize {
        if self.seq == self.view.seq { self.view.live } else { self.iter().count() }
    }

    /// Returns `true` if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All objects in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = Object> + '_ {
        self.list(Query::default())
    }

    /// The objects of a query in the order of their keys. The namespace and the start bound the walk,
    /// selectors are asked before an object is handed out.
    pub fn list<'a>(&'a self, query: Query<'a>) -> impl Iterator<Item = Object> + 'a {
        let Query { namespace, start, selectors } = query;
        let prefix = namespace.map(|namespace| {
            let slash = if planted::on("namespace_prefix_matches_longer") { "" } else { "/" };
            format!("{namespace}{slash}")
        });
        let from = match (&prefix, start) {
            (Some(prefix), Some(start)) => Some(prefix.as_str().max(start)),
            (Some(prefix), None) => Some(prefix.as_str()),
            (None, start) => start,
        };
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        let keys = self.view.keys.range::<_, str>((from, Bound::Unbounded));
        let keys = keys.take_while(move |(key, _)| {
            prefix.as_ref().is_none_or(|prefix| key.as_str().starts_with(prefix.as_str()))
        });
        let objects = Objects::new(self, keys.map(|(_, &slot)| slot));
        objects.filter(move |object| selectors.is_none_or(|selectors| selectors.matches(object)))
    }

    /// The objects that have a value in an index, in no particular order.
    pub fn by_index<'a>(
        &'a self,
        index: &str,
        value: &'a str,
    ) -> Result<impl Iterator<Item = Object> + 'a, UnknownIndex> {
        let place = self.place(index, value)?;
        let slots: Box<dyn Iterator<Item = SlotId> + 'a> = match &place {
            Place::Namespace(namespace) => Box::new(self.slots_in(namespace)),
            Place::Value(number, id) => Box::new(self.view.indexes[*number as usize].slots(*id)),
            Place::Nowhere => Box::new(std::iter::empty()),
        };
        Ok(slots.filter_map(move |slot| self.object_at(slot, std::slice::from_ref(&place))))
    }

    /// The objects that have all of these values, each in its index, in no particular order.
    pub fn by_indexes<'a>(
        &'a self,
        terms: &[(&str, &'a str)],
    ) -> Result<impl Iterator<Item = Object> + 'a, UnknownIndex> {
        let places: Result<Vec<_>, _> =
            terms.iter().map(|(index, value)| self.place(index, value)).collect();
        let places = places?;
        let mut sets = places.iter().filter_map(|place| match place {
            Place::Value(number, id) => {
                let slots = self.view.indexes[*number as usize].slots(*id);
                let mut slots: Vec<SlotId> = slots.collect();
                slots.sort_unstable();
                Some(slots)
            }
            _ => None,
        });
        // Sorted by number: intersect by merging, then drop what other terms refuse.
        let slots: Vec<SlotId> = if places.contains(&Place::Nowhere) {
            Vec::new()
        } else if let Some(first) = sets.next() {
            sets.fold(first, |found, set| intersect(found, set.into_iter()))
        } else if let Some(Place::Namespace(namespace)) = places.first() {
            self.slots_in(namespace).collect()
        } else {
            self.view.keys.values().copied().collect()
        };
        Ok(slots.into_iter().filter_map(move |slot| self.object_at(slot, &places)))
    }

    fn slots_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = SlotId> + 'a {
        let start = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        let keys =
            self.view.keys.range::<_, str>((Bound::Included(start.as_str()), Bound::Unbounded));
        keys.take_while(move |(key, _)| key.namespace() == namespace).map(|(_, &slot)| slot)
    }

    fn place<'a>(&self, index: &str, value: &'a str) -> Result<Place<'a>, UnknownIndex> {
        if index == NAMESPACE_INDEX {
            return Ok(Place::Namespace(value));
        }
        let indexes = &self.view.indexes;
        let Some(number) = indexes.iter().position(|view| &*view.name == index) else {
            let mut known = vec![NAMESPACE_INDEX];
            known.extend(indexes.iter().map(|view| &*view.name));
            return Err(UnknownIndex { name: index.to_owned(), known: known.join(", ") });
        };
        let id = indexes[number].ids.get(value);
        let number = u32::try_from(number).expect("limited by INDEXES_MAX");
        Ok(id.map_or(Place::Nowhere, |id| Place::Value(number, *id)))
    }

    fn object_at(&self, slot: SlotId, places: &[Place<'_>]) -> Option<Object> {
        self.look_at(slot, |version| {
            let fits = places.iter().all(|place| match place {
                Place::Namespace(namespace) => version.key().namespace() == *namespace,
                Place::Value(number, id) => version.terms.contains(&(*number, *id)),
                Place::Nowhere => false,
            });
            version.live().filter(|_| fits).cloned()
        })
    }

    /// Looks at what the snapshot sees of a slot.
    fn look_at<T>(&self, slot: SlotId, look: impl FnOnce(&Version) -> Option<T>) -> Option<T> {
        let newest = self.view.slots.get(slot)?.newest.load();
        self.view.commons.look_at(newest.as_ref()?, self.seq, look)?
    }
}

/// What a term of an index lookup comes to in one view.
#[derive(PartialEq, Eq, Debug)]
enum Place<'a> {
    Namespace(&'a str),
    Value(u32, u32),
    /// No object in the window has the value.
    Nowhere,
}

fn intersect(found: Vec<SlotId>, set: impl Iterator<Item = SlotId>) -> Vec<SlotId> {
    let mut found = found.into_iter().peekable();
    set.filter(|slot| {
        while found.next_if(|other| other < slot).is_some() {}
        found.next_if_eq(slot).is_some()
    })
    .collect()
}

impl View {
    /// Its history, as far as it is still there.
    pub(crate) fn history(&self) -> History {
        History { ring: self.commons.ring.load(), numbers: self.segments.clone() }
    }

    /// The first change that a revision can name, and the one behind the last.
    fn named(&self) -> (Seq, Seq) {
        (self.tail.max(self.barrier + 1), self.seq + 1)
    }

    /// The first change above a revision; `None` if the history moved during the search.
    pub(crate) fn first_after(&self, revision: Revision) -> Option<Seq> {
        let (first, end) = self.named();
        self.history().first_after(first, end, revision)
    }

    /// Makes an exact snapshot keep what it reads: the writer asks for the lowest before it cuts.
    pub(crate) fn pin(&self, seq: Seq) {
        self.exact.fetch_min(seq, Ordering::AcqRel);
    }
}
