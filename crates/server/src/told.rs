//! Events as watches are told of them, put together once for all.

use std::cell::RefCell;

use bytes::{Buf as _, Bytes};
use masthead_cache::Event;
use masthead_core::{EventType, Frame, Projection, Revision};

use crate::body::Slices;
use crate::limits::SHARED_CHUNK_BYTES_MAX;

/// Events one after the other.
pub(crate) fn frames(events: &[Event], projection: Projection) -> Slices {
    let mut frames = Slices::with_capacity(events.len() * 3 + 3);
    for event in events {
        frames.push_frame(Frame::event(event.kind, &event.object, event.revision, projection));
    }
    frames
}

/// The same as a chunk of HTTP/1.1. What a thread makes a chunk of twice in a row, as when many watches
/// are told of one event, becomes one piece that they share.
pub(crate) fn chunk(events: &[Event], projection: Projection) -> Slices {
    LAST.with_borrow_mut(|last| {
        if last.is_of(events, projection) {
            let make = || {
                let mut chunk = frames(events, projection).into_chunk();
                chunk.copy_to_bytes(chunk.remaining())
            };
            return last.chunk.get_or_insert_with(make).clone().into();
        }
        let frames = frames(events, projection);
        last.chunk = None;
        last.told.clear();
        if frames.remaining() <= SHARED_CHUNK_BYTES_MAX {
            last.told.extend(events.iter().map(|it| Told::of(it, projection)));
        }
        frames.into_chunk()
    })
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// What the thread made a chunk of last.
#[derive(Default)]
struct Last {
    told: Vec<Told>,
    /// In one piece, once it was asked for again.
    chunk: Option<Bytes>,
}

struct Told {
    kind: EventType,
    revision: Revision,
    projection: Projection,
    /// Held, so that nothing else comes to lie where it is.
    body: Bytes,
}

impl Last {
    fn is_of(&self, events: &[Event], projection: Projection) -> bool {
        self.told.len() == events.len()
            && self.told.iter().zip(events).all(|(told, event)| told.is_of(event, projection))
    }
}

impl Told {
    fn of(event: &Event, projection: Projection) -> Self {
        let body = event.object.body().clone();
        Self { kind: event.kind, revision: event.revision, projection, body }
    }

    /// The very same bytes, not merely equal ones?
    fn is_of(&self, event: &Event, projection: Projection) -> bool {
        let body = event.object.body();
        (self.kind, self.revision, self.projection) == (event.kind, event.revision, projection)
            && (self.body.as_ptr(), self.body.len()) == (body.as_ptr(), body.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use masthead_core::{Cause, Object, Resource};

    fn event(revision: u64, bytes: usize) -> Event {
        let name = "a".repeat(bytes);
        let body = format!(
            r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"a","namespace":"b","uid":"{name}","resourceVersion":"{revision}"}}}}"#
        );
        let object = Object::parse(&Resource::pods(), body.into()).expect("a pod");
        let (kind, cause) = (EventType::Modified, Cause::Watch);
        Event { kind, revision: Revision(revision), object, old: None, initial: false, cause }
    }

    fn text(mut slices: Slices) -> Bytes {
        slices.copy_to_bytes(slices.remaining())
    }

    #[test]
    fn a_chunk_of_the_same_events_is_made_once_and_of_others_anew() {
        let (one, same) = (event(1, 1), event(1, 1));
        let of = |event: &Event| chunk(std::slice::from_ref(event), Projection::Whole);
        let counts = [&one, &one, &one, &same, &same].map(|it| of(it).count());
        assert_eq!(counts, [5, 1, 1, 5, 1]);
        assert_eq!(text(of(&same)), text(frames(&[one], Projection::Whole).into_chunk()));
    }

    #[test]
    fn a_chunk_is_shared_only_by_those_who_are_told_the_same() {
        let modified = event(1, 1);
        let deleted = Event { kind: EventType::Deleted, ..modified.clone() };
        let later = Event { revision: Revision(2), ..modified.clone() };
        for other in [deleted, later] {
            for told in [&modified, &other, &other, &modified, &modified] {
                let expected = frames(std::slice::from_ref(told), Projection::Whole).into_chunk();
                let chunk = chunk(std::slice::from_ref(told), Projection::Whole);
                assert_eq!(text(chunk), text(expected));
            }
        }
        let whole = [modified];
        for projection in [Projection::Whole, Projection::Metadata, Projection::Metadata] {
            let expected = frames(&whole, projection).into_chunk();
            assert_eq!(text(chunk(&whole, projection)), text(expected));
        }
    }

    #[test]
    fn a_chunk_is_shared_up_to_the_limit() {
        let least = frames(&[event(1, 0)], Projection::Whole).remaining();
        for (bytes, count) in [(SHARED_CHUNK_BYTES_MAX, 1), (SHARED_CHUNK_BYTES_MAX + 1, 5)] {
            let events = [event(1, bytes - least)];
            let chunks = [0, 1].map(|_| chunk(&events, Projection::Whole));
            assert_eq!(chunks[1].count(), count, "{bytes} bytes");
        }
    }
}
