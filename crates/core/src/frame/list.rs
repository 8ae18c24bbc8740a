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
    /// Taken out of their objects, which would be looked for in memory once more when they are sent.
    items: std::vec::IntoIter<Bytes>,
    projection: Projection,
    bytes: usize,
    next: Next,
}

/// The slice that comes next.
#[derive(Debug)]
enum Next {
    Head(Bytes),
    Item,
    /// What stands between two items or behind the last.
    Behind,
    Done,
}

impl ListBody {
    /// A list of these objects.
    pub fn new(
        resource: &Resource,
        meta: &ListMeta,
        objects: Vec<Object>,
        projection: Projection,
    ) -> Self {
        let mut head = head(resource, meta, projection);
        let count = objects.len();
        let (between, last) = (between(projection).len(), last(projection).len());
        let mut bodies = 0;
        let mut items = Vec::with_capacity(count);
        for object in objects {
            let item = shown(&object, projection);
            bodies += item.len();
            items.push(item);
        }
        let behind = match count {
            0 => EMPTY.len(),
            _ => between * (count - 1) + last,
        };
        if count > 0 && projection == Projection::Metadata {
            head.push_str(partial!());
        }
        let bytes = head.len() + bodies + behind;
        Self { items: items.into_iter(), projection, bytes, next: Next::Head(head.into()) }
    }

    /// Bytes of the whole list; what `Content-Length` says.
    pub fn bytes(&self) -> usize {
        self.bytes
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
                let item = self.items.next();
                if item.is_none() {
                    return Some(Bytes::from_static(EMPTY.as_bytes()));
                }
                self.next = Next::Behind;
                item
            }
            Next::Behind if self.items.len() > 0 => {
                self.next = Next::Item;
                Some(Bytes::from_static(between(self.projection).as_bytes()))
            }
            Next::Behind => Some(Bytes::from_static(last(self.projection).as_bytes())),
            Next::Done => None,
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let items = self.items.len();
        let count = match self.next {
            Next::Head(_) if items == 0 => 2,
            Next::Head(_) | Next::Behind => 1 + 2 * items,
            Next::Item => (2 * items).max(1),
            Next::Done => 0,
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
