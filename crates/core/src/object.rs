//! Objects: JSON bytes with a parsed head.

use std::fmt;

use bytes::Bytes;
use bytestring::ByteString;
use triomphe::ThinArc;

use crate::json::{JsonError, Span, Str, unescape};
use crate::limits::OBJECT_BYTES_MAX;
use crate::{KeyError, ObjectKey, Resource, Revision, Scope};
use common::COMMON;
use held::Content;
use parse::Parsed;

pub use common::CommonStrings;

mod common;
mod held;
mod parse;

/// An API object: its JSON as it goes over the wire, and what lists and watches need to know of it.
///
/// The head (key, uid, labels, owners, selectable fields) is positions in the body, not copies: a
/// clone is one reference count, and an object costs its JSON plus about 300 bytes.
///
/// ```
/// use masthead_core::{Labels, Object, Resource, Revision};
///
/// let body = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"shop",
///     "uid":"u1","resourceVersion":"7","labels":{"app":"web"}},"spec":{"nodeName":"n1"}}"#;
/// let pod = Object::parse(&Resource::pods(), body.as_bytes().to_vec().into())?;
/// assert_eq!(pod.key().as_str(), "shop/web");
/// assert_eq!(pod.revision(), Revision(7));
/// assert_eq!(pod.label("app"), Some("web"));
/// # Ok::<(), masthead_core::ParseError>(())
/// ```
#[derive(Clone)]
pub struct Object(ThinArc<Inner, Span>);

/// What all objects have; behind it, in the same allocation, stand the spans of labels as key and
/// value, then of the selectable fields, then four for each owner.
struct Inner {
    body: ByteString,
    key: ObjectKey,
    revision: Revision,
    created: Revision,
    head: Head,
}

/// Where things are. Spans of strings point into `text` if it is there, otherwise into the body.
#[derive(Clone, Default)]
struct Head {
    /// What few objects have.
    extra: Option<Box<Extra>>,
    uid: Span,
    deletion: Span,
    /// In the body: the `metadata` object.
    metadata: Span,
    /// In the body: the content of the `resourceVersion` string; empty and right behind the brace
    /// of `metadata` if there is none.
    resource_version_at: Span,
    has_resource_version: bool,
    labels: u16,
    owners: u16,
    /// One more than the position of the owner that is the controller.
    controller: u16,
    /// In the body: right behind the first brace.
    kind_missing: bool,
}

/// What few objects have: one pointer in the head of all others.
#[derive(Clone, Default)]
struct Extra {
    /// Strings of the head, only if the body's own have escapes or the body is not here.
    strings: Option<Strings>,
    content: Option<Content>,
}

/// Strings of a head that are not in the body as they are.
#[derive(Clone, Default)]
struct Strings {
    text: Box<str>,
    resource_version: Span,
    /// Where those are that many have.
    common: Option<triomphe::Arc<Box<str>>>,
}

impl Strings {
    fn of(&self, span: Span) -> &str {
        match &self.common {
            Some(common) if span.start >= COMMON => {
                Span { start: span.start - COMMON, ..span }.of(common)
            }
            _ => span.of(&self.text),
        }
    }
}

/// Spans for each owner: apiVersion, kind, name, uid.
const OWNER_SPANS: usize = 4;

/// Absent value of a selectable field: no text is this long.
const ABSENT: Span = Span { start: 0, len: u32::MAX };

/// One entry of `metadata.ownerReferences`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnerReference<'a> {
    /// API version of the owner.
    pub api_version: &'a str,
    /// Kind of the owner.
    pub kind: &'a str,
    /// Name of the owner.
    pub name: &'a str,
    /// Uid of the owner.
    pub uid: &'a str,
    /// Whether the owner is the managing controller.
    pub controller: bool,
}

/// Why a text is no object of a resource.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The text is not JSON, or not an object, or has another shape than API objects have.
    #[error("not a valid object at byte {at}: {what}")]
    Json {
        /// What was found or missing.
        what: &'static str,
        /// Offset in the body.
        at: usize,
    },
    /// The text is not UTF-8.
    #[error("body is not UTF-8 at byte {at}")]
    Utf8 {
        /// Offset in the body.
        at: usize,
    },
    /// The object is of another kind than the resource's (R13).
    #[error("expected {expected}, found {found}")]
    WrongKind {
        /// `apiVersion/kind` of the resource.
        expected: String,
        /// What the object says it is.
        found: String,
    },
    /// Namespace or name is missing or malformed.
    #[error("metadata has no usable key")]
    Key(#[from] KeyError),
    /// A namespaced object without a namespace or the other way round.
    #[error("{kind} objects {} a namespace", if *namespaced { "need" } else { "have no" })]
    Scope {
        /// Kind of the resource.
        kind: String,
        /// What the resource is.
        namespaced: bool,
    },
    /// Longer or with more parts than the named limit.
    #[error("object has more than {limit} {what}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// The limit that was passed.
        limit: usize,
    },
}

fn limited<T: AsRef<[u8]>>(body: T) -> Result<T, ParseError> {
    if body.as_ref().len() > OBJECT_BYTES_MAX {
        return Err(ParseError::TooLarge { what: "bytes", limit: OBJECT_BYTES_MAX });
    }
    Ok(body)
}

impl From<JsonError> for ParseError {
    fn from(JsonError { what, at }: JsonError) -> Self {
        Self::Json { what, at }
    }
}

/// Anything that label selectors can look at.
pub trait Labels {
    /// The value of a label.
    fn label(&self, key: &str) -> Option<&str>;
}

impl Object {
    /// Reads the head of a body. The body is passed over once and kept as it is.
    ///
    /// An absent `kind` and `apiVersion` are taken for the resource's (the items of typed lists have
    /// none); see [`Object::from_list_item`] for what adds them.
    pub fn parse(resource: &Resource, body: Bytes) -> Result<Self, ParseError> {
        let body: ByteString = limited(body)?
            .try_into()
            .map_err(|e: std::str::Utf8Error| ParseError::Utf8 { at: e.valid_up_to() })?;
        let parsed = parse::head(resource, &body)?;
        Self::assemble(resource, body, parsed)
    }

    /// Reads a body that was written in any version of the resource's group. Its `apiVersion` becomes the
    /// resource's and everything else stays as it is, which is the conversion `None` of custom resources.
    pub fn parse_version(resource: &Resource, body: &Bytes) -> Result<Self, ParseError> {
        let error = match Self::parse(resource, body.clone()) {
            Err(error @ ParseError::WrongKind { .. }) => error,
            parsed => return parsed,
        };
        let text = std::str::from_utf8(body).expect("was read as text above");
        let Some(span) = parse::version_span(resource, text) else { return Err(error) };
        let range = span.range();
        let parts = [&text[..range.start], resource.api_version(), &text[range.end..]];
        Self::parse(resource, parts.concat().into())
    }

    /// Copies one item out of a list's buffer, so that it does not keep the whole page alive, and
    /// puts `kind` and `apiVersion` in front if it has none.
    pub fn from_list_item(resource: &Resource, item: &[u8]) -> Result<Self, ParseError> {
        let text = std::str::from_utf8(limited(item)?)
            .map_err(|e| ParseError::Utf8 { at: e.valid_up_to() })?;
        let mut parsed = parse::head(resource, text)?;
        if !parsed.head.kind_missing {
            return Self::assemble(resource, text.into(), parsed);
        }
        let brace = 1 + text.find('{').expect("parsed as an object");
        let [kind, version] = [resource.kind(), resource.api_version()];
        let added = ["\"kind\":\"", kind, "\",\"apiVersion\":\"", version, "\","];
        let length = added.iter().map(|it| it.len()).sum();
        let mut body = String::with_capacity(text.len() + length);
        body.push_str(&text[..brace]);
        body.extend(added);
        body.push_str(&text[brace..]);
        parsed.shift(length);
        Self::assemble(resource, body.into(), parsed)
    }

    fn assemble(resource: &Resource, body: ByteString, parsed: Parsed) -> Result<Self, ParseError> {
        let head = parsed.head;
        let strings = head.strings().map_or(&*body, |own| &own.text);
        let (namespace, name) = (parsed.namespace.of(strings), parsed.name.of(strings));
        let namespaced = resource.scope() == Scope::Namespaced;
        let key = ObjectKey::new(namespace, name)?;
        if namespaced == namespace.is_empty() {
            return Err(ParseError::Scope { kind: resource.kind().to_owned(), namespaced });
        }
        let mut inner =
            Inner { key, revision: Revision::ZERO, created: Revision::ZERO, head, body };
        inner.revision = inner.resource_version().parse().unwrap_or_default();
        Ok(Self::of(inner, &parsed.spans))
    }

    fn of(inner: Inner, spans: &[Span]) -> Self {
        Self(ThinArc::from_header_and_slice(inner, spans))
    }

    fn inner(&self) -> &Inner {
        &self.0.header.header
    }

    fn spans(&self) -> &[Span] {
        &self.0.slice
    }

    /// The whole object as JSON.
    pub fn body(&self) -> &Bytes {
        self.inner().body.as_bytes()
    }

    /// The same as text.
    pub fn body_text(&self) -> &str {
        &self.inner().body
    }

    /// Namespace and name.
    pub fn key(&self) -> &ObjectKey {
        &self.inner().key
    }

    /// The object's own revision; zero if it has none or one that is no decimal number.
    pub fn revision(&self) -> Revision {
        self.inner().revision
    }

    /// `metadata.resourceVersion` as it stands there; empty if absent.
    pub fn resource_version(&self) -> &str {
        self.inner().resource_version()
    }

    /// When the object was created, where a store told; otherwise zero.
    pub fn created(&self) -> Revision {
        self.inner().created
    }

    /// `metadata.uid`; empty if absent.
    pub fn uid(&self) -> &str {
        self.text(self.inner().head.uid)
    }

    /// `metadata.deletionTimestamp`, if the object is being deleted.
    pub fn deletion_timestamp(&self) -> Option<&str> {
        let span = self.inner().head.deletion;
        (span.len > 0).then(|| self.text(span))
    }

    /// The `metadata` object as it stands in the body.
    pub fn metadata(&self) -> Bytes {
        self.body().slice(self.inner().head.metadata.range())
    }

    /// All labels, in the body's order.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let head = &self.inner().head;
        let pairs = self.spans()[..2 * usize::from(head.labels)].chunks_exact(2);
        pairs.map(|pair| (self.text(pair[0]), self.text(pair[1])))
    }

    /// The value of a selectable field by its position in [`Resource::fields`]; none if absent.
    pub fn field(&self, index: usize) -> Option<&str> {
        let head = &self.inner().head;
        let first = 2 * usize::from(head.labels);
        let fields = self.spans().len() - first - OWNER_SPANS * usize::from(head.owners);
        let span = (index < fields).then(|| self.spans()[first + index])?;
        (span != ABSENT).then(|| self.text(span))
    }

    /// The objects that own this one.
    pub fn owners(&self) -> impl Iterator<Item = OwnerReference<'_>> {
        let head = &self.inner().head;
        let first = self.spans().len() - OWNER_SPANS * usize::from(head.owners);
        let owners = self.spans()[first..].chunks_exact(OWNER_SPANS);
        owners.enumerate().map(move |(at, spans)| OwnerReference {
            api_version: self.text(spans[0]),
            kind: self.text(spans[1]),
            name: self.text(spans[2]),
            uid: self.text(spans[3]),
            controller: at + 1 == usize::from(head.controller),
        })
    }

    /// The same object at another revision: the digits are spliced into the bytes, nothing is
    /// re-encoded and nothing is parsed again.
    pub fn with_revision(&self, revision: Revision) -> Self {
        let it = self.inner();
        let pieces = self.pieces_at(revision);
        let at = it.head.resource_version_at.range();
        let mut body = String::with_capacity(pieces.iter().map(Bytes::len).sum());
        body.push_str(&it.body[..at.start]);
        body.extend(pieces[1].iter().map(|&digit| char::from(digit)));
        body.push_str(&it.body[at.end..]);
        let mut spans = self.spans().to_vec();
        let head = it.head.spliced(&mut spans, &pieces, revision);
        let (key, created) = (it.key.clone(), it.created);
        Self::of(Inner { body: body.into(), key, revision, created, head }, &spans)
    }

    /// The same object with the revision at which it was created.
    pub fn with_created(&self, created: Revision) -> Self {
        let Inner { body, key, revision, head, .. } = self.inner();
        let (body, key, head) = (body.clone(), key.clone(), head.clone());
        Self::of(Inner { body, key, revision: *revision, created, head }, self.spans())
    }

    /// Returns `true` if both are one object in memory.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.inner(), other.inner())
    }

    /// The body as it reads at `revision`, as slices of the stored bytes around the digits.
    pub(crate) fn pieces_at(&self, revision: Revision) -> [Bytes; 3] {
        let it = self.inner();
        let at = it.head.resource_version_at.range();
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(revision.0);
        let value = if it.head.has_resource_version {
            Bytes::copy_from_slice(digits.as_bytes())
        } else {
            Bytes::from(format!("\"resourceVersion\":\"{digits}\","))
        };
        let body = it.body.as_bytes();
        [body.slice(..at.start), value, body.slice(at.end..)]
    }

    /// The `metadata` object as it reads at `revision`, likewise.
    pub(crate) fn metadata_pieces_at(&self, revision: Revision) -> [Bytes; 3] {
        let head = &self.inner().head;
        let (metadata, digits) = (head.metadata.range(), head.resource_version_at.range());
        let [before, value, after] = self.pieces_at(revision);
        [before.slice(metadata.start..), value, after.slice(..metadata.end - digits.end)]
    }

    /// Bytes of the content, in whatever form it is held.
    pub fn body_bytes(&self) -> usize {
        self.inner().body.len() + self.inner().head.content().map_or(0, |content| content.bytes)
    }

    /// Bytes of everything but the body, on the heap, allocator slack aside.
    pub fn head_bytes(&self) -> usize {
        let counts = 2 * size_of::<usize>();
        // What `Bytes` allocates to share a body, besides the body.
        let shared = 3 * size_of::<usize>();
        let it = self.inner();
        let extra = it.head.extra.as_ref().map_or(0, |_| size_of::<Extra>());
        let text = it.head.strings().map_or(0, |own| own.text.len());
        counts
            + size_of::<Inner>()
            + shared
            + size_of_val(self.spans())
            + extra
            + text
            + it.key.heap_bytes()
    }

    /// Reads a byte of the uid, of the last owner's and of these selectable fields: where the lines of
    /// memory with them are not at hand, they are afterwards. Nothing is gained for a single object; for
    /// many, gone through before the first of them is needed, the waits overlap. The result is for
    /// [`std::hint::black_box`].
    pub fn touch(&self, fields: impl IntoIterator<Item = usize>) -> u8 {
        let (it, spans) = (self.inner(), self.spans());
        let text = it.head.strings().map_or(&*it.body, |own| &own.text).as_bytes();
        let byte = |span: &Span| text.get(span.start as usize).copied().unwrap_or_default();
        let owner = spans.last().filter(|_| it.head.owners > 0);
        let first = 2 * usize::from(it.head.labels);
        let fields = fields.into_iter().filter_map(|at| spans.get(first + at));
        fields.chain(owner).fold(byte(&it.head.uid), |seen, span| seen ^ byte(span))
    }

    fn text(&self, span: Span) -> &str {
        self.inner().text(span)
    }
}

impl Inner {
    fn text(&self, span: Span) -> &str {
        match self.head.strings() {
            Some(own) => own.of(span),
            None => span.of(&self.body),
        }
    }

    fn resource_version(&self) -> &str {
        match self.head.strings() {
            Some(own) => own.of(own.resource_version),
            None if self.head.has_resource_version => self.head.resource_version_at.of(&self.body),
            None => "",
        }
    }
}

impl Head {
    fn strings(&self) -> Option<&Strings> {
        self.extra.as_ref()?.strings.as_ref()
    }

    fn content(&self) -> Option<&Content> {
        self.extra.as_ref()?.content.as_ref()
    }

    /// Where things are after the pieces around the resource version were put together.
    fn spliced(&self, spans: &mut [Span], pieces: &[Bytes; 3], revision: Revision) -> Self {
        let mut head = self.clone();
        let old_end = self.resource_version_at.range().end;
        let new_end = pieces[0].len() + pieces[1].len();
        let shift = |span: &mut Span| {
            if *span != ABSENT && span.start as usize >= old_end {
                span.start = u32::try_from(span.start as usize - old_end + new_end)
                    .expect("bodies are limited below 4 GiB");
            }
        };
        if self.strings().is_none() {
            shift(&mut head.uid);
            shift(&mut head.deletion);
            spans.iter_mut().for_each(shift);
        }
        // The digits stand at the end of the middle piece, before `",` if the member was added.
        let tail = if self.has_resource_version { 0 } else { 2 };
        let mut digits = itoa::Buffer::new();
        let len = digits.format(revision.0).len();
        head.resource_version_at = Span::new(new_end - tail - len, new_end - tail);
        head.has_resource_version = true;
        let metadata_end = self.metadata.range().end - old_end + new_end;
        head.metadata = Span::new(self.metadata.start as usize, metadata_end);
        if let Some(own) = head.extra.as_mut().and_then(|extra| extra.strings.as_mut()) {
            let start = own.text.len();
            own.text = [&own.text, digits.format(revision.0)].concat().into();
            own.resource_version = Span::new(start, own.text.len());
        }
        head
    }
}

impl Labels for Object {
    fn label(&self, key: &str) -> Option<&str> {
        // Of a key that stands twice the last counts, as in other JSON readers.
        let head = &self.inner().head;
        let pairs = self.spans()[..2 * usize::from(head.labels)].chunks_exact(2).rev();
        let mut same = pairs.filter(|pair| pair[0].len as usize == key.len());
        same.find(|pair| self.text(pair[0]) == key).map(|pair| self.text(pair[1]))
    }
}

impl fmt::Debug for Object {
    /// Key and revision, never content: bodies may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key(), self.resource_version())
    }
}

#[cfg(test)]
mod tests;
