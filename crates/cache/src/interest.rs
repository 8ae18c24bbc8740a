//! What a reader wants to hear of, and finding the readers that a change concerns.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::task::Waker;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use masthead_core::{
    FieldSelector, LabelSelector, Labels, Object, ObjectKey, Selectors, ShardSelector,
};

use crate::cursor::CursorState;
use crate::history::Entry;

/// The part of a resource that a reader follows: a scope and selectors.
///
/// Small, since 100,000 readers have one each: what most do not have is behind a pointer.
#[derive(Clone, Debug, Default)]
pub struct Interest {
    scope: Option<Box<Scope>>,
    labels: LabelSelector,
    others: Option<Box<(FieldSelector, ShardSelector)>>,
}

#[derive(Clone, Debug)]
enum Scope {
    Namespace(Box<str>),
    Name(ObjectKey),
}

impl Interest {
    /// Everything.
    pub fn all() -> Self {
        Self::default()
    }

    /// One namespace.
    pub fn namespace(namespace: &str) -> Self {
        Self { scope: Some(Box::new(Scope::Namespace(namespace.into()))), ..Self::default() }
    }

    /// One object.
    pub fn object(key: ObjectKey) -> Self {
        Self { scope: Some(Box::new(Scope::Name(key))), ..Self::default() }
    }

    /// The same, and only what these match.
    pub fn with(mut self, selectors: Selectors) -> Self {
        let Selectors { labels, fields, shard } = selectors;
        self.labels = labels;
        let others = !fields.is_everything() || !shard.is_everything();
        self.others = others.then(|| Box::new((fields, shard)));
        self
    }

    /// Returns `true` if this interest concerns the object in its present state.
    pub fn matches(&self, object: &Object) -> bool {
        self.in_scope(object.key())
            && self.labels.matches(object)
            && self.others.as_ref().is_none_or(|others| {
                let (fields, shard) = &**others;
                fields.matches(object) && shard.matches(object)
            })
    }

    #[inline]
    fn in_scope(&self, key: &ObjectKey) -> bool {
        match self.scope.as_deref() {
            None => true,
            Some(Scope::Namespace(namespace)) => key.namespace() == &**namespace,
            Some(Scope::Name(name)) => key == name,
        }
    }

    fn fields(&self) -> Option<&FieldSelector> {
        self.others.as_ref().map(|others| &others.0)
    }

    /// The namespace to walk for the present state.
    pub(crate) fn walk(&self) -> Option<&str> {
        match self.scope.as_deref() {
            None => self.fields()?.namespace(),
            Some(Scope::Namespace(namespace)) => Some(namespace),
            Some(Scope::Name(key)) => {
                Some(key.namespace()).filter(|namespace| !namespace.is_empty())
            }
        }
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        let scope = self.scope.as_deref().map_or(0, |scope| {
            size_of::<Scope>()
                + match scope {
                    Scope::Namespace(namespace) => namespace.len(),
                    Scope::Name(key) => key.heap_bytes(),
                }
        });
        let others = self.others.as_deref().map_or(0, |others| {
            size_of_val(others) + others.0.heap_bytes() + others.1.heap_bytes()
        });
        scope + self.labels.heap_bytes() + others
    }
}

/// The places of the index under which an interest is filed: one term that every match must have.
enum Anchor<'a> {
    All,
    Namespace(&'a str),
    Name(&'a str),
    /// A name in whatever namespace.
    BareName(&'a str),
    Field(usize, &'a str),
    /// One of several values of a label.
    Label(&'a str, Vec<&'a str>),
}

impl Interest {
    /// The term that is likely to match the fewest changes.
    fn anchor(&self) -> Anchor<'_> {
        if let Some(Scope::Name(key)) = self.scope.as_deref() {
            return Anchor::Name(key.as_str());
        }
        if let Some(name) = self.fields().and_then(FieldSelector::name) {
            return Anchor::BareName(name);
        }
        let equality = self.fields().and_then(|fields| fields.present_equalities().next());
        if let Some((field, value)) = equality {
            return Anchor::Field(field, value);
        }
        let sets = self.labels.requirements().filter_map(|term| {
            let values: Vec<&str> = term.any_of()?.collect();
            Some((term.key(), values))
        });
        if let Some((key, values)) = sets.min_by_key(|(_, values)| values.len()) {
            return Anchor::Label(key, values);
        }
        match (self.scope.as_deref(), self.fields().and_then(FieldSelector::namespace)) {
            (Some(Scope::Namespace(namespace)), _) => Anchor::Namespace(namespace),
            (_, Some(namespace)) => Anchor::Namespace(namespace),
            _ => Anchor::All,
        }
    }
}

/// The waiting readers, by what they wait for. A change looks up its own terms, before and after, so
/// its cost grows with the readers that it concerns and not with all of them.
///
/// Places are found by hash alone: two terms that share one only cost a comparison.
#[derive(Debug)]
pub(crate) struct InterestIndex {
    hasher: FixedState,
    readers: Vec<Option<Arc<CursorState>>>,
    free: Vec<u32>,
    places: HashMap<u64, Place, FixedState>,
    /// How many readers are filed under each kind of term, so that terms nobody uses are not hashed.
    namespaces: usize,
    names: usize,
    bare_names: usize,
    /// Under labels or fields.
    by_content: usize,
    fields: Vec<usize>,
    labels: HashMap<Box<str>, usize, FixedState>,
    /// The terms of the change at hand.
    terms: Vec<u64>,
}

/// The readers at one place. Most places have one; the set is boxed to keep those small.
#[derive(Debug)]
enum Place {
    One(u32),
    #[expect(clippy::box_collection, reason = "8 bytes instead of 24 in each of 100,000 places")]
    Many(Box<BTreeSet<u32>>),
}

/// Bytes of the index for each reader that has a place of its own: a word of `readers`, and an entry
/// of `places` with its control byte at the load that doubling gives on average.
pub(crate) const READER_BYTES: usize =
    size_of::<Option<Arc<CursorState>>>() + (size_of::<(u64, Place)>() + 1) * 3 / 2;

const ALL: u64 = 0;

impl InterestIndex {
    pub(crate) fn new(seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        Self {
            readers: Vec::new(),
            free: Vec::new(),
            places: HashMap::with_hasher(hasher.clone()),
            namespaces: 0,
            names: 0,
            bare_names: 0,
            by_content: 0,
            fields: Vec::new(),
            labels: HashMap::with_hasher(hasher.clone()),
            terms: Vec::new(),
            hasher,
        }
    }

    fn term(&self, kind: u8, key: &str, value: &str) -> u64 {
        self.hasher.hash_one((kind, key, value)).max(ALL + 1)
    }

    fn field_term(&self, field: usize, value: &str) -> u64 {
        self.hasher.hash_one((b'f', field, value)).max(ALL + 1)
    }

    /// Calls `file` with each place of an interest and keeps the counts of kinds.
    fn each_place(
        &mut self,
        interest: &Interest,
        added: bool,
        mut file: impl FnMut(&mut Self, u64),
    ) {
        let step = |count: &mut usize| if added { *count += 1 } else { *count -= 1 };
        match interest.anchor() {
            Anchor::All => file(self, ALL),
            Anchor::Namespace(namespace) => {
                step(&mut self.namespaces);
                let term = self.term(b's', "", namespace);
                file(self, term);
            }
            Anchor::Name(key) => {
                step(&mut self.names);
                let term = self.term(b'n', "", key);
                file(self, term);
            }
            Anchor::BareName(name) => {
                step(&mut self.bare_names);
                let term = self.term(b'm', "", name);
                file(self, term);
            }
            Anchor::Field(field, value) => {
                if self.fields.len() <= field {
                    self.fields.resize(field + 1, 0);
                }
                step(&mut self.fields[field]);
                step(&mut self.by_content);
                let term = self.field_term(field, value);
                file(self, term);
            }
            Anchor::Label(key, values) => {
                let count = self.labels.entry_ref(key).or_insert(0);
                step(count);
                if *count == 0 {
                    self.labels.remove(key);
                }
                step(&mut self.by_content);
                for value in values {
                    let term = self.term(b'l', key, value);
                    file(self, term);
                }
            }
        }
    }

    /// Files a reader; the number takes it out again.
    pub(crate) fn add(&mut self, reader: Arc<CursorState>) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            self.readers.push(None);
            u32::try_from(self.readers.len() - 1).expect("fewer than 2^32 readers")
        });
        self.each_place(reader.interest(), true, |index, place| index.file(place, id));
        self.readers[id as usize] = Some(reader);
        id
    }

    pub(crate) fn remove(&mut self, id: u32) {
        if let Some(reader) = self.readers[id as usize].take() {
            self.each_place(reader.interest(), false, |index, place| index.unfile(place, id));
            self.free.push(id);
        }
    }

    fn file(&mut self, place: u64, id: u32) {
        let entry = self.places.entry(place);
        entry
            .and_modify(|readers| match readers {
                Place::One(first) => {
                    *readers = Place::Many(Box::new(BTreeSet::from([*first, id])));
                }
                Place::Many(set) => drop(set.insert(id)),
            })
            .or_insert(Place::One(id));
    }

    fn unfile(&mut self, place: u64, id: u32) {
        let empty = match self.places.get_mut(&place) {
            Some(Place::Many(set)) => {
                set.remove(&id);
                set.is_empty()
            }
            Some(Place::One(_)) => true,
            None => false,
        };
        if empty {
            self.places.remove(&place);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.readers.len() - self.free.len()
    }

    /// Marks the readers that a change concerns and collects the wakers of those that wait.
    pub(crate) fn mark(&mut self, entry: &Entry, wakers: &mut Vec<Waker>) {
        let version = &entry.version;
        let (before, after) = (entry.before(), version.live());
        let mut terms = std::mem::take(&mut self.terms);
        terms.clear();
        terms.push(ALL);
        self.key_terms(version.key(), &mut terms);
        if self.by_content > 0 {
            before
                .into_iter()
                .chain(after)
                .for_each(|object| self.object_terms(object, &mut terms));
        }
        // Before and after mostly agree; each place needs one visit.
        terms.sort_unstable();
        terms.dedup();
        let concerned = |interest: &Interest| {
            after.is_some_and(|object| interest.matches(object))
                || before.is_some_and(|object| interest.matches(object))
        };
        for term in &terms {
            match self.places.get(term) {
                None => {}
                Some(Place::One(id)) => self.mark_one(*id, version.seq, &concerned, wakers),
                Some(Place::Many(ids)) => {
                    ids.iter().for_each(|id| self.mark_one(*id, version.seq, &concerned, wakers));
                }
            }
        }
        self.terms = terms;
    }

    fn mark_one(
        &self,
        id: u32,
        seq: u64,
        concerned: &impl Fn(&Interest) -> bool,
        wakers: &mut Vec<Waker>,
    ) {
        let reader = self.readers[id as usize].as_ref().expect("filed readers are there");
        // A reader that already has something to read finds the rest by itself.
        if !reader.has_unread() && concerned(reader.interest()) {
            wakers.extend(reader.mark(seq));
        }
    }

    /// The first change that a reader has still to read, of those that were marked; the last number there
    /// can be if all have read everything.
    pub(crate) fn first_unread(&self) -> u64 {
        self.readers.iter().flatten().map(|reader| reader.unread()).min().unwrap_or(u64::MAX)
    }

    /// Marks every reader: what the cache holds was replaced.
    pub(crate) fn mark_all(&self, seq: u64, wakers: &mut Vec<Waker>) {
        for reader in self.readers.iter().flatten() {
            wakers.extend(reader.mark(seq));
        }
    }

    fn key_terms(&self, key: &ObjectKey, terms: &mut Vec<u64>) {
        if self.names > 0 {
            terms.push(self.term(b'n', "", key.as_str()));
        }
        if self.bare_names > 0 {
            terms.push(self.term(b'm', "", key.name()));
        }
        if self.namespaces > 0 {
            terms.push(self.term(b's', "", key.namespace()));
        }
    }

    fn object_terms(&self, object: &Object, terms: &mut Vec<u64>) {
        for (field, readers) in self.fields.iter().enumerate() {
            if *readers > 0 {
                terms.extend(object.field(field).map(|value| self.field_term(field, value)));
            }
        }
        if self.labels.len() < 4 {
            for key in self.labels.keys() {
                terms.extend(object.label(key).map(|value| self.term(b'l', key, value)));
            }
        } else {
            for (key, value) in object.labels().filter(|(key, _)| self.labels.contains_key(*key)) {
                terms.push(self.term(b'l', key, value));
            }
        }
    }
}
