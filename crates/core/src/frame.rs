//! What goes over the wire around objects, as slices to be written.
//!
//! **Invariant:** a body is never copied. Frames and lists are made of slices of the stored bytes
//! and a few constants.

use bytes::Bytes;

use crate::{EventType, Object, Resource, Revision, Status};

/// What stands before the `metadata` of an object that is shown as [`Projection::Metadata`].
macro_rules! partial {
    () => {
        "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":"
    };
}

mod list;
mod split;

pub use list::{ListBody, ListMeta, Open};
pub use split::{Bookmark, ListPage, SplitError, WatchLine};

/// The annotation of the one bookmark that ends the initial events (W21).
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// How much of an object is shown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Projection {
    /// All of it.
    #[default]
    Whole,
    /// Its metadata, as a `PartialObjectMetadata`.
    Metadata,
}

impl Projection {
    /// Kind and API version of what is shown.
    fn type_of(self, resource: &Resource) -> (&str, &str) {
        match self {
            Self::Whole => (resource.kind(), resource.api_version()),
            Self::Metadata => ("PartialObjectMetadata", "meta.k8s.io/v1"),
        }
    }
}

/// Head, three slices of the body around its resource version, tail.
const PIECES: usize = 5;

/// One event of a watch: a line of JSON as slices to be written one after the other.
///
/// Making one costs no copy of the body, and no allocation unless the event has another revision
/// than the object. Cloning it is a few reference counts.
///
/// ```
/// use masthead_core::{EventType, Frame, Object, Projection, Resource, Revision};
///
/// let body = r#"{"kind":"Pod","apiVersion":"v1",
///     "metadata":{"name":"a","namespace":"b","resourceVersion":"7"}}"#;
/// let pod = Object::parse(&Resource::pods(), body.into())?;
/// let frame = Frame::event(EventType::Deleted, &pod, Revision(9), Projection::Whole);
/// let line = frame.to_bytes();
/// assert!(line.starts_with(br#"{"type":"DELETED","object":{"kind":"Pod","#));
/// assert!(line.ends_with(b"\"resourceVersion\":\"9\"}}}\n"));
/// # Ok::<(), masthead_core::ParseError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Frame {
    pieces: [Bytes; PIECES],
    used: u8,
}

impl Frame {
    /// An event about an object, with the event's revision in the object's place (W18).
    pub fn event(
        event: EventType,
        object: &Object,
        revision: Revision,
        projection: Projection,
    ) -> Self {
        let mut frame = Self { pieces: Default::default(), used: 0 };
        let (head, tail) = match projection {
            Projection::Whole => (event_head(event), "}\n"),
            Projection::Metadata => (partial_head(event), "}}\n"),
        };
        frame.push(Bytes::from_static(head.as_bytes()));
        let own = object.revision() == revision;
        match projection {
            Projection::Whole if own => frame.push(object.body().clone()),
            Projection::Whole => frame.extend(object.pieces_at(revision)),
            Projection::Metadata if own => frame.push(object.metadata()),
            Projection::Metadata => frame.extend(object.metadata_pieces_at(revision)),
        }
        frame.push(Bytes::from_static(tail.as_bytes()));
        frame
    }

    /// An empty object that says up to where everything has been sent (W20), or that the initial
    /// events are over (W21).
    pub fn bookmark(
        resource: &Resource,
        revision: Revision,
        initial_events_end: bool,
        projection: Projection,
    ) -> Self {
        let (kind, version) = projection.type_of(resource);
        let (kind, version) = (quoted(kind), quoted(version));
        let annotations = if initial_events_end {
            format!(",\"annotations\":{{\"{INITIAL_EVENTS_END}\":\"true\"}}")
        } else {
            String::new()
        };
        let head = event_head(EventType::Bookmark);
        Self::whole(format!(
            "{head}{{\"kind\":{kind},\"apiVersion\":{version},\
             \"metadata\":{{\"resourceVersion\":\"{revision}\"{annotations}}}}}}}\n"
        ))
    }

    /// The last event of a stream that cannot go on (W14).
    pub fn error(status: &Status) -> Self {
        Self::whole(format!("{}{}}}\n", event_head(EventType::Error), status.to_json()))
    }

    fn whole(line: String) -> Self {
        let mut frame = Self { pieces: Default::default(), used: 0 };
        frame.push(line.into());
        frame
    }

    fn push(&mut self, piece: Bytes) {
        self.pieces[usize::from(self.used)] = piece;
        self.used += 1;
    }

    fn extend(&mut self, pieces: [Bytes; 3]) {
        for piece in pieces {
            self.push(piece);
        }
    }

    /// The slices, to be written in this order.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces[..usize::from(self.used)]
    }

    /// Bytes of the whole line.
    #[expect(clippy::len_without_is_empty, reason = "no frame is empty")]
    pub fn len(&self) -> usize {
        self.pieces().iter().map(Bytes::len).sum()
    }

    /// The line in one piece: a copy, for transports that cannot write slices.
    pub fn to_bytes(&self) -> Bytes {
        match self.pieces() {
            [whole] => whole.clone(),
            pieces => pieces.concat().into(),
        }
    }
}

impl IntoIterator for Frame {
    type Item = Bytes;
    type IntoIter = std::iter::Take<std::array::IntoIter<Bytes, PIECES>>;

    fn into_iter(self) -> Self::IntoIter {
        self.pieces.into_iter().take(usize::from(self.used))
    }
}

fn event_head(event: EventType) -> &'static str {
    match event {
        EventType::Added => "{\"type\":\"ADDED\",\"object\":",
        EventType::Modified => "{\"type\":\"MODIFIED\",\"object\":",
        EventType::Deleted => "{\"type\":\"DELETED\",\"object\":",
        EventType::Bookmark => "{\"type\":\"BOOKMARK\",\"object\":",
        EventType::Error => "{\"type\":\"ERROR\",\"object\":",
    }
}

/// [`event_head`] and the beginning of the object in one piece, which is one write less.
fn partial_head(event: EventType) -> &'static str {
    macro_rules! head {
        ($event:literal) => {
            concat!("{\"type\":\"", $event, "\",\"object\":", partial!())
        };
    }
    match event {
        EventType::Added => head!("ADDED"),
        EventType::Modified => head!("MODIFIED"),
        EventType::Deleted => head!("DELETED"),
        EventType::Bookmark => head!("BOOKMARK"),
        EventType::Error => head!("ERROR"),
    }
}

/// A text as a JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests;
