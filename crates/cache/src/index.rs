//! Named indexes: from a value to the objects that have it.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use imbl::OrdMap;
use masthead_core::{Object, contain, planted};

use crate::chunks::Chunks;
use crate::limits::{INDEX_VALUE_BYTES_MAX, INDEX_VALUES_MAX, VALUES_PER_CHUNK};
use crate::postings::{Counts, POSTING_BYTES, POSTINGS_BYTES, Postings};
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
/// use masthead_core::{Labels, Resource};
///
/// let node = Resource::pods().field_index("spec.nodeName").unwrap();
/// let by_node = Index::field("node", node);
/// let by_app = Index::new("app", |pod, values| {
///     values.extend(pod.label("app"));
///     Ok(())
/// });
/// assert_eq!((by_node.name(), by_app.name()), ("node", "app"));
/// ```
#[derive(Clone)]
pub struct Index {
    name: Arc<str>,
    function: Arc<Function>,
    /// The selectable field that it is by.
    field: Option<usize>,
}

impl Index {
    /// An index by a function.
    pub fn new(
        name: &str,
        function: impl Fn(&Object, &mut IndexValues) -> Result<(), IndexError> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), function: Arc::new(function), field: None }
    }

    /// An index by a selectable field, which is named by its position in
    /// [`Resource::fields`](masthead_core::Resource::fields). It finds what [`Index::new`] with a function
    /// of the same field would, and large batches are taken in sooner: it is known beforehand what of
    /// an object will be read.
    pub fn field(name: &str, at: usize) -> Self {
        let function = move |object: &Object, values: &mut IndexValues| {
            values.extend(object.field(at));
            Ok(())
        };
        Self { field: Some(at), ..Self::new(name, function) }
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

/// What readers see of an index: a persistent map from value to its number, and by that number the
/// slots. A slot stands under every value that any version of it in the window has, or that a held view
/// sees; so the slots need not be of one time, and all views share them.
#[derive(Clone, Debug)]
pub(crate) struct IndexView {
    pub(crate) name: Arc<str>,
    pub(crate) ids: OrdMap<Arc<str>, u32>,
    postings: Chunks<Postings, VALUES_PER_CHUNK>,
}

impl IndexView {
    /// The slots under a value, in no order.
    pub(crate) fn slots(&self, value: u32) -> impl Iterator<Item = SlotId> + use<> {
        self.postings(value).slots()
    }

    fn postings(&self, value: u32) -> &Postings {
        self.postings.get(value).expect("values with a number have a place")
    }
}

/// Bytes for each value: in the readers' map, in `values` and `numbers`, at the fill of two thirds that
/// random insertion gives, the place of its slots, and the text's counts.
const VALUE_BYTES: usize =
    (size_of::<(Arc<str>, u32)>() + size_of::<Value>() + size_of::<u32>() + 1) * 3 / 2
        + POSTINGS_BYTES
        + 2 * size_of::<usize>();

/// What the writer knows of a value.
#[derive(Debug)]
struct Value {
    text: Arc<str>,
    counts: Counts,
}

/// The writer's side of an index.
#[derive(Debug)]
pub(crate) struct IndexState {
    index: Index,
    pub(crate) view: IndexView,
    /// The values by number.
    values: Vec<Value>,
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
        let (name, ids, postings) = (index.name.clone(), OrdMap::new(), Chunks::default());
        let view = IndexView { name, ids, postings };
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

    /// The selectable field that the index is by, if it is known.
    pub(crate) fn field(&self) -> Option<usize> {
        self.index.field
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
        let called = contain(|| (self.index.function)(object, scratch));
        if !matches!(called, Ok(Ok(()))) || scratch.refused {
            self.failures += 1;
            return;
        }
        let from = out.len();
        let mut old = previous.iter().filter(|(index, _)| *index == number);
        for value in scratch.iter() {
            // Most updates leave the values alone: compare with the old one before looking it up.
            let same = old.next().map(|&(_, id)| id);
            let same = same.filter(|&id| *self.values[id as usize].text == *value);
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
        let known = self.numbers.find(hash, |id| *self.values[*id as usize].text == *value);
        if let Some(id) = known {
            return *id;
        }
        let text: Arc<str> = value.into();
        let new = Value { text: text.clone(), counts: Counts::default() };
        let id = if let Some(id) = self.free.pop() {
            self.values[id as usize] = new;
            id
        } else {
            if self.values.len() == self.view.postings.capacity() {
                self.view.postings.grow();
            }
            self.values.push(new);
            u32::try_from(self.values.len() - 1).expect("fewer values than slots times values each")
        };
        let (values, hasher) = (&self.values, &self.hasher);
        self.numbers.insert_unique(hash, id, |id| hasher.hash_one(&*values[*id as usize].text));
        self.bytes += VALUE_BYTES + text.len();
        self.view.ids.insert(text, id);
        self.changed = true;
        id
    }

    /// A run of versions of a slot with this value begins.
    pub(crate) fn enter(&mut self, value: u32, slot: SlotId) {
        let counts = &mut self.values[value as usize].counts;
        if planted::on("index_not_updated_on_relabel") && counts.slots > 0 {
            return;
        }
        if self.view.postings(value).insert(slot, counts) {
            self.bytes += POSTING_BYTES;
        } else {
            *self.extra.entry((value, slot)).or_default() += 1;
        }
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
        let Value { text, counts } = &mut self.values[value as usize];
        if !self.view.postings(value).remove(slot, counts) {
            return;
        }
        self.bytes -= POSTING_BYTES;
        if counts.slots == 0 {
            self.bytes -= VALUE_BYTES + text.len();
            self.view.ids.remove(&**text);
            let entry = self.numbers.find_entry(self.hasher.hash_one(&**text), |id| *id == value);
            entry.expect("known values have a number").remove();
            self.free.push(value);
            self.changed = true;
        }
    }
}
