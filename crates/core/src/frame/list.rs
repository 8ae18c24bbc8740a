//! Lists as slices.

use bytes::Bytes;

use super::{Projection, quoted};
use crate::{Object, Resource, Revision};

/// What a list says of itself.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ListMeta {
    /// The moment that the list shows.
    pub revision: Revision,
    /// The token for the next page; empty on the last one.
    pub continue_token: String,
    /// How many items follow after this page, where that is known (W11).
    pub remaining: Option<u64>,
}

/// A list as it goes over the wire: the slices of its JSON, in order, ready to be written.
///
/// Bodies are not copied, and the length is known before the first slice is taken.
///
/// ```
/// use masthead_core::{ListBody, ListMeta, Object, Projection, Resource, Revision};
///
/// let body = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"b"}}"#;
/// let pod = Object::parse(&Resource::pods(), body.into())?;
/// let meta = ListMeta { revision: Revision(9), ..ListMeta::default() };
/// let list = ListBody::new(&Resource::pods(), &meta, vec![pod], Projection::Whole);
/// let length = list.bytes();
/// let text = list.collect::<Vec<_>>().concat();
/// assert_eq!(text.len(), length);
/// assert!(text.starts_with(br#"{"kind":"PodList","apiVersion":"v1","metadata":"#));
/// # Ok::<(), masthead_core::ParseError>(())
/// ```
#[derive(Debug)]
pub struct ListBody {
    items: Items,
    /// Items that are still to come.
    left: usize,
    projection: Projection,
    bytes: usize,
    next: Next,
}

/// Gives back an object whose content is held in another form than JSON as it was before
/// [`Object::held_as`], and one that has its JSON as it is; none if that cannot be done.
pub type Open = fn(&Object) -> Option<Object>;

#[derive(Debug)]
enum Items {
    /// Taken out of their objects, which would be looked for in memory once more when they are sent.
    Bodies(std::vec::IntoIter<Bytes>),
    /// Opened one by one when it is their turn, so that no more than what is being sent is open.
    Held(std::vec::IntoIter<Object>, Open),
}

/// The slice that comes next.
#[derive(Debug)]
enum Next {
    Head(Bytes),
    Item,
    /// What stands between two items or behind the last.
    Behind,
    Done,
    /// Something could not be opened: the rest is missing.
    Broken,
}

impl ListBody {
    /// A list of these objects.
    pub fn new(
        resource: &Resource,
        meta: &ListMeta,
        objects: Vec<Object>,
        projection: Projection,
    ) -> Self {
        let mut bodies = 0;
        let mut items = Vec::with_capacity(objects.len());
        for object in objects {
            let item = shown(&object, projection);
            bodies += item.len();
            items.push(item);
        }
        let count = items.len();
        Self::of(resource, meta, (Items::Bodies(items.into_iter()), count), bodies, projection)
    }

    /// The same of objects some of which are held in another form. Each is opened when it is its turn;
    /// if one cannot be, the list ends there: see [`ListBody::is_broken`].
    pub fn opening(
        resource: &Resource,
        meta: &ListMeta,
        objects: Vec<Object>,
        projection: Projection,
        open: Open,
    ) -> Self {
        let bytes = |object: &Object| match projection {
            Projection::Whole => object.whole_bytes(),
            Projection::Metadata => object.metadata_bytes(),
        };
        let (count, bodies) = (objects.len(), objects.iter().map(bytes).sum());
        let items = Items::Held(objects.into_iter(), open);
        Self::of(resource, meta, (items, count), bodies, projection)
    }

    fn of(
        resource: &Resource,
        meta: &ListMeta,
        (items, left): (Items, usize),
        bodies: usize,
        projection: Projection,
    ) -> Self {
        let mut head = head(resource, meta, projection);
        let (between, last) = (between(projection).len(), last(projection).len());
        let behind = match left {
            0 => EMPTY.len(),
            count => between * (count - 1) + last,
        };
        if left > 0 && projection == Projection::Metadata {
            head.push_str(partial!());
        }
        let bytes = head.len() + bodies + behind;
        Self { items, left, projection, bytes, next: Next::Head(head.into()) }
    }

    /// Bytes of the whole list; what `Content-Length` says.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns `true` if the list broke off because an object could not be decompressed.
    pub fn is_broken(&self) -> bool {
        matches!(self.next, Next::Broken)
    }

    /// Passes over so many items, each with what stands behind it, when an item is next. Nothing is
    /// opened for it.
    pub fn skip_items(&mut self, count: usize) {
        assert!(matches!(self.next, Next::Item), "an item is next");
        let Some(last) = count.checked_sub(1) else { return };
        match &mut self.items {
            Items::Bodies(items) => drop(items.nth(last)),
            Items::Held(items, _) => drop(items.nth(last)),
        }
        self.left = self.left.saturating_sub(count);
        self.next = if self.left > 0 { Next::Item } else { Next::Done };
    }

    /// The next item, of one that is to be opened; none if it cannot be.
    #[cold]
    fn open_next(&mut self) -> Option<Bytes> {
        let Items::Held(items, open) = &mut self.items else { return None };
        let item = open(&items.next()?).map(|whole| shown(&whole, self.projection));
        if item.is_none() {
            (self.left, self.next) = (0, Next::Broken);
        }
        item
    }
}

impl Iterator for ListBody {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        match std::mem::replace(&mut self.next, Next::Done) {
            Next::Head(head) => {
                self.next = Next::Item;
                Some(head)
            }
            Next::Item => {
                if self.left == 0 {
                    return Some(Bytes::from_static(EMPTY.as_bytes()));
                }
                self.left -= 1;
                self.next = Next::Behind;
                match &mut self.items {
                    Items::Bodies(items) => items.next(),
                    Items::Held(..) => self.open_next(),
                }
            }
            Next::Behind if self.left > 0 => {
                self.next = Next::Item;
                Some(Bytes::from_static(between(self.projection).as_bytes()))
            }
            Next::Behind => Some(Bytes::from_static(last(self.projection).as_bytes())),
            Next::Done => None,
            Next::Broken => {
                self.next = Next::Broken;
                None
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let items = self.left;
        let count = match self.next {
            Next::Head(_) if items == 0 => 2,
            Next::Head(_) | Next::Behind => 1 + 2 * items,
            Next::Item => (2 * items).max(1),
            Next::Done | Next::Broken => 0,
        };
        (count, Some(count))
    }
}

impl ExactSizeIterator for ListBody {}

const EMPTY: &str = "]}";

fn between(projection: Projection) -> &'static str {
    match projection {
        Projection::Whole => ",",
        Projection::Metadata => concat!("},", partial!()),
    }
}

fn last(projection: Projection) -> &'static str {
    match projection {
        Projection::Whole => EMPTY,
        Projection::Metadata => "}]}",
    }
}

fn shown(object: &Object, projection: Projection) -> Bytes {
    match projection {
        Projection::Whole => object.body().clone(),
        Projection::Metadata => object.metadata(),
    }
}

fn head(resource: &Resource, meta: &ListMeta, projection: Projection) -> String {
    let (kind, version) = projection.type_of(resource);
    let (kind, version) = (quoted(&format!("{kind}List")), quoted(version));
    let revision = meta.revision;
    let mut head = format!(
        "{{\"kind\":{kind},\"apiVersion\":{version},\
         \"metadata\":{{\"resourceVersion\":\"{revision}\""
    );
    if !meta.continue_token.is_empty() {
        head.push_str(",\"continue\":");
        head.push_str(&quoted(&meta.continue_token));
    }
    if let Some(remaining) = meta.remaining {
        head.push_str(",\"remainingItemCount\":");
        head.push_str(itoa::Buffer::new().format(remaining));
    }
    head.push_str("},\"items\":[");
    head
}
