//! Named indexes: from a value to the objects that have it.

use std::fmt;
use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use imbl::{OrdMap, OrdSet};
use masthead_core::{Object, planted};

use crate::limits::{INDEX_VALUE_BYTES_MAX, INDEX_VALUES_MAX};
use crate::version::{SlotId, Term};

/// The name of the built-in index by namespace.
pub const NAMESPACE_INDEX: &str = "namespace";
/// The name of the built-in index by the uids of owners.
pub const OWNER_INDEX: &str = "owner";

/// What an index function could not make of an object. The object is then in no place of that index.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct IndexError(pub String);

type Function = dyn Fn(&Object, &mut IndexValues) -> Result<(), IndexError> + Send + Sync;

/// A named function from an object to any number of values.
///
/// It must be a function of the object alone. A panic or an error is contained, counted in
/// [`Cache::index_failures`](crate::Cache::index_failures), and leaves the object out of this index.
///
/// ```
/// use masthead_cache::Index;
/// use masthead_core::Resource;
///
/// let node = Resource::pods().field_index("spec.nodeName").unwrap();
/// let by_node = Index::new("node", move |pod, values| {
///     values.extend(pod.field(node));
///     Ok(())
/// });
/// assert_eq!(by_node.name(), "node");
/// ```
#[derive(Clone)]
pub struct Index {
    name: Arc<str>,
    function: Arc<Function>,
}

impl Index {
    /// An index by a function.
    pub fn new(
        name: &str,
        function: impl Fn(&Object, &mut IndexValues) -> Result<(), IndexError> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), function: Arc::new(function) }
    }

    /// The built-in index by the uids of owners.
    pub fn owner() -> Self {
        Self::new(OWNER_INDEX, |object, values| {
            values.extend(object.owners().map(|owner| owner.uid));
            Ok(())
        })
    }

    /// What lookups call it.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Index({})", self.name)
    }
}

/// Where an index function puts its values. Reused: it allocates only while it grows.
#[derive(Debug, Default)]
pub struct IndexValues {
    text: String,
    ends: Vec<usize>,
    refused: bool,
}

impl IndexValues {
    /// Adds a value. An object may have several; the same one twice counts once.
    pub fn push(&mut self, value: &str) {
        if self.ends.len() == INDEX_VALUES_MAX || value.len() > INDEX_VALUE_BYTES_MAX {
            self.refused = true;
            return;
        }
        self.text.push_str(value);
        self.ends.push(self.text.len());
    }

    /// Adds several.
    pub fn extend<'a>(&mut self, values: impl IntoIterator<Item = &'a str>) {
        values.into_iter().for_each(|value| self.push(value));
    }

    fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
        self.refused = false;
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.text[std::mem::replace(&mut start, end)..end])
    }
}

/// What readers see of an index: two persistent maps, from value to its number and from (number,
/// slot) pairs. A slot stands under every value that any version of it in the window has.
#[derive(Clone, Debug)]
pub(crate) struct IndexView {
    pub(crate) name: Arc<str>,
    pub(crate) ids: OrdMap<Arc<str>, u32>,
    pub(crate) postings: OrdSet<(u32, SlotId)>,
}

impl IndexView {
    /// The slots under a value, in the order of their numbers.
    pub(crate) fn slots(&self, value: u32) -> impl Iterator<Item = SlotId> + '_ {
        self.postings.range((value, 0)..=(value, SlotId::MAX)).map(|&(_, slot)| slot)
    }
}

/// Bytes for each entry of the persistent maps, at the fill of two thirds that random insertion gives.
const POSTING_BYTES: usize = size_of::<(u32, SlotId)>() * 3 / 2;
/// Likewise for each value: in the readers' map, in `values` and `numbers`, and the text's counts.
const VALUE_BYTES: usize =
    (2 * size_of::<(Arc<str>, u32)>() + size_of::<u32>() + 1) * 3 / 2 + 2 * size_of::<usize>();

/// The writer's side of an index.
#[derive(Debug)]
pub(crate) struct IndexState {
    index: Index,
    pub(crate) view: IndexView,
    /// The values by number, with how many slots stand under each.
    values: Vec<(Arc<str>, u32)>,
    /// The numbers by the hash of their value: the writer need not search the readers' ordered map.
    numbers: HashTable<u32>,
    hasher: FixedState,
    free: Vec<u32>,
    /// How many runs of versions of a slot have a value, less one, where it is more than one.
    extra: HashMap<(u32, SlotId), u32, FixedState>,
    pub(crate) failures: u64,
    pub(crate) bytes: usize,
    pub(crate) changed: bool,
}

impl IndexState {
    pub(crate) fn new(index: Index, seed: u64) -> Self {
        let view =
            IndexView { name: index.name.clone(), ids: OrdMap::new(), postings: OrdSet::new() };
        Self {
            index,
            view,
            values: Vec::new(),
            numbers: HashTable::new(),
            hasher: FixedState::with_seed(seed),
            free: Vec::new(),
            extra: HashMap::with_hasher(FixedState::with_seed(seed)),
            failures: 0,
            bytes: 0,
            changed: true,
        }
    }

    /// Computes the values of an object and appends them as `(number of this index, value)`, sorted
    /// and without repetition.
    pub(crate) fn compute(
        &mut self,
        number: u32,
        object: &Object,
        previous: &[Term],
        scratch: &mut IndexValues,
        out: &mut Vec<Term>,
    ) {
        scratch.clear();
        let called = catch_unwind(AssertUnwindSafe(|| (self.index.function)(object, scratch)));
        if !matches!(called, Ok(Ok(()))) || scratch.refused {
            self.failures += 1;
            return;
        }
        let from = out.len();
        let mut old = previous.iter().filter(|(index, _)| *index == number);
        for value in scratch.iter() {
            // Most updates leave the values alone: compare with the old one before looking it up.
            let same = old.next().map(|&(_, id)| id);
            let same = same.filter(|&id| *self.values[id as usize].0 == *value);
            let id = same.unwrap_or_else(|| self.id(value));
            out.push((number, id));
        }
        if out.len() - from > 1 {
            out[from..].sort_unstable();
            let mut kept = from + 1;
            for at in from + 1..out.len() {
                if out[at] != out[kept - 1] {
                    out[kept] = out[at];
                    kept += 1;
                }
            }
            out.truncate(kept);
        }
    }

    fn id(&mut self, value: &str) -> u32 {
        let hash = self.hasher.hash_one(value);
        let known = self.numbers.find(hash, |id| *self.values[*id as usize].0 == *value);
        if let Some(id) = known {
            return *id;
        }
        let text: Arc<str> = value.into();
        let id = self.free.pop().unwrap_or_else(|| {
            self.values.push((text.clone(), 0));
            u32::try_from(self.values.len() - 1).expect("fewer values than slots times values each")
        });
        self.values[id as usize] = (text.clone(), 0);
        let (values, hasher) = (&self.values, &self.hasher);
        self.numbers.insert_unique(hash, id, |id| hasher.hash_one(&*values[*id as usize].0));
        self.bytes += VALUE_BYTES + text.len();
        self.view.ids.insert(text, id);
        self.changed = true;
        id
    }

    /// A run of versions of a slot with this value begins.
    pub(crate) fn enter(&mut self, value: u32, slot: SlotId) {
        if planted::on("index_not_updated_on_relabel") && self.values[value as usize].1 > 0 {
            return;
        }
        if self.view.postings.insert((value, slot)).is_some() {
            *self.extra.entry((value, slot)).or_default() += 1;
            return;
        }
        self.values[value as usize].1 += 1;
        self.bytes += POSTING_BYTES;
        self.changed = true;
    }

    /// The last version of such a run fell out of the window.
    pub(crate) fn leave(&mut self, value: u32, slot: SlotId) {
        if let Some(more) = self.extra.get_mut(&(value, slot)) {
            *more -= 1;
            if *more == 0 {
                self.extra.remove(&(value, slot));
            }
            return;
        }
        self.changed = true;
        if self.view.postings.remove(&(value, slot)).is_none() {
            return;
        }
        self.bytes -= POSTING_BYTES;
        let (text, slots) = &mut self.values[value as usize];
        *slots -= 1;
        if *slots == 0 {
            self.bytes -= VALUE_BYTES + text.len();
            self.view.ids.remove(&**text);
            let entry = self.numbers.find_entry(self.hasher.hash_one(&**text), |id| *id == value);
            entry.expect("known values have a number").remove();
            self.free.push(value);
        }
    }
}
