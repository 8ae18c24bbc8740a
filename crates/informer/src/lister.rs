//! Reading a cache.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use masthead_cache::{Query, Snapshot, UnknownIndex};
use masthead_core::{ObjectKey, Revision, Selectors};

use crate::Entry;
use crate::part::Part;

/// The objects of an informer at one moment.
///
/// Any number of reads see the same state, and none of them waits for the writer or makes it wait. With
/// several namespaces that are followed one by one, each is shown at its own revision.
pub struct Lister<K> {
    states: Vec<(Arc<Part>, Snapshot)>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Lister<K> {
    pub(crate) fn new(parts: &[Arc<Part>]) -> Self {
        let states = parts.iter().map(|part| (part.clone(), part.cache.snapshot()));
        Self { states: states.collect(), kind: PhantomData }
    }

    /// The revision that is shown; of several namespaces the lowest.
    pub fn revision(&self) -> Revision {
        self.states.iter().map(|(_, state)| state.revision()).min().unwrap_or_default()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.states.iter().map(|(_, state)| state.len()).sum()
    }

    /// Returns `true` if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.states.iter().all(|(_, state)| state.is_empty())
    }

    /// The object with this key.
    pub fn get(&self, key: &ObjectKey) -> Option<Entry<K>> {
        self.get_str(key.as_str())
    }

    /// The object with this key as text: `namespace/name`, or `name` where there are no namespaces.
    pub fn get_str(&self, key: &str) -> Option<Entry<K>> {
        self.states
            .iter()
            .find_map(|(part, state)| Some(Entry::new(state.get_str(key)?, &part.reading)))
    }

    /// All objects, in the order of their keys within each namespace.
    pub fn iter(&self) -> impl Iterator<Item = Entry<K>> + '_ {
        self.list(None, None)
    }

    /// The objects of one namespace.
    pub fn namespace<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Entry<K>> + 'a {
        self.list(Some(name), None)
    }

    /// What selectors match.
    pub fn select<'a>(&'a self, selectors: &'a Selectors) -> impl Iterator<Item = Entry<K>> + 'a {
        self.list(None, Some(selectors))
    }

    /// What selectors match in a namespace.
    pub fn list<'a>(
        &'a self,
        namespace: Option<&'a str>,
        selectors: Option<&'a Selectors>,
    ) -> impl Iterator<Item = Entry<K>> + 'a {
        let query = Query { namespace, selectors, start: None };
        self.states.iter().flat_map(move |(part, state)| {
            state.list(query).map(|object| Entry::new(object, &part.reading))
        })
    }

    /// The objects that have a value in an index, in no particular order.
    pub fn by_index<'a>(
        &'a self,
        index: &str,
        value: &'a str,
    ) -> Result<impl Iterator<Item = Entry<K>> + 'a, UnknownIndex> {
        let found: Result<Vec<_>, _> = self
            .states
            .iter()
            .map(|(part, state)| Ok((part, state.by_index(index, value)?)))
            .collect();
        Ok(found?
            .into_iter()
            .flat_map(|(part, objects)| objects.map(|object| Entry::new(object, &part.reading))))
    }

    /// The objects that have all of these values, each in its index.
    pub fn by_indexes<'a>(
        &'a self,
        terms: &[(&str, &'a str)],
    ) -> Result<impl Iterator<Item = Entry<K>> + 'a, UnknownIndex> {
        let found: Result<Vec<_>, _> =
            self.states.iter().map(|(part, state)| Ok((part, state.by_indexes(terms)?))).collect();
        Ok(found?
            .into_iter()
            .flat_map(|(part, objects)| objects.map(|object| Entry::new(object, &part.reading))))
    }
}

impl<K> fmt::Debug for Lister<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lister").field("revision", &self.revision()).finish_non_exhaustive()
    }
}
