//! Objects with a compressed body.

use std::sync::Arc;

use masthead_core::Object;
use xxhash_rust::xxh3::xxh3_64;

use crate::{Compactor, Packed};

/// Why an object does not come back as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Its content is held in a form that is not of this crate.
    #[error("the content is not held compressed")]
    Foreign,
    /// The compressed bytes are not what they were.
    #[error("the compressed body is damaged")]
    Damaged(#[source] Option<std::io::Error>),
}

/// What [`Object::has_digest`] knows an object by that is held here.
pub fn digest(object: &Object) -> u64 {
    xxh3_64(object.body())
}

impl Compactor {
    /// The object with its body compressed; none if that would be longer, or cannot be done. Beside it
    /// those strings of the head are held that few objects have: whether that is worth it is for the
    /// caller to say.
    pub fn hold(&self, object: &Object) -> Option<Object> {
        if object.is_held() {
            return None;
        }
        let packed = self.pack(object.body())?;
        let bytes = packed.bytes();
        if bytes >= object.body().len() {
            return None;
        }
        let common = &mut self.common.lock();
        Some(object.held_with(Arc::new(packed), bytes, digest(object), common))
    }
}

/// The object as it was before [`Compactor::hold`]; one that has its JSON as it is.
pub fn open(object: &Object) -> Result<Object, OpenError> {
    if !object.is_held() {
        return Ok(object.clone());
    }
    let packed = object.content::<Packed>().ok_or(OpenError::Foreign)?;
    let body = packed.open().map_err(|error| OpenError::Damaged(Some(error)))?;
    // The digest is that of the JSON that was compressed, and takes a twentieth of the time of opening.
    if !object.has_digest(xxh3_64(&body)) {
        return Err(OpenError::Damaged(None));
    }
    object.with_body(body.into()).ok_or(OpenError::Damaged(None))
}

#[cfg(test)]
mod tests {
    use masthead_core::{EventType, Frame, Labels, Projection, Resource, Revision};
    use serde_json::json;

    use super::*;

    fn pod(n: usize) -> Object {
        let body = json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {
                "name": format!("web-{n}"), "namespace": "shop", "uid": format!("u{n}"),
                "resourceVersion": "7", "labels": {"app": "we\"b"},
                "annotations": {"text": "a long text that comes again and again; ".repeat(30)},
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "ü"}]},
        });
        Object::parse(&Resource::pods(), body.to_string().into()).unwrap()
    }

    #[test]
    fn what_is_opened_is_what_was_held_wherever_it_is_shown() {
        let compactor = Compactor::default();
        for n in 0..200 {
            let (plain, held) = (pod(n), compactor.hold(&pod(n)).unwrap());
            assert_eq!((held.label("app"), held.uid()), (Some("we\"b"), plain.uid()));
            assert_eq!(held.whole_bytes(), plain.body().len());
            assert_eq!(held.metadata_bytes(), plain.metadata().len());
            assert!(held.has_digest(digest(&plain)));
            let open = open(&held).unwrap();
            assert!(!open.is_held());
            assert_eq!((open.body(), open.metadata()), (plain.body(), plain.metadata()));
            assert_eq!((open.revision(), open.key()), (plain.revision(), plain.key()));
            for projection in [Projection::Whole, Projection::Metadata] {
                let line = |it: &Object| {
                    let event = EventType::Deleted;
                    Frame::event(event, it, Revision(12345), projection).to_bytes()
                };
                assert_eq!(line(&open), line(&plain));
            }
            let moved = open.with_revision(Revision(8));
            assert_eq!(moved.body(), plain.with_revision(Revision(8)).body());
            assert_eq!((moved.resource_version(), moved.label("app")), ("8", Some("we\"b")));
        }
    }

    #[test]
    fn one_without_a_resource_version_comes_back_without() {
        let text = pod(1).body_text().replace(r#""resourceVersion":"7","#, "");
        let plain = Object::parse(&Resource::pods(), text.into()).unwrap();
        let open = open(&Compactor::default().hold(&plain).unwrap()).unwrap();
        assert_eq!((open.body(), open.resource_version()), (plain.body(), ""));
        assert_eq!(open.with_revision(Revision(8)).body(), plain.with_revision(Revision(8)).body());
    }

    #[test]
    fn what_does_not_shrink_stays_as_it_is() {
        let text = r#"{"metadata":{"name":"a","namespace":"b"}}"#;
        let small = Object::parse(&Resource::pods(), text.into()).unwrap();
        assert!(Compactor::default().hold(&small).is_none());
        assert!(open(&small).unwrap().ptr_eq(&small));
    }

    #[test]
    fn what_is_damaged_or_held_otherwise_is_an_error() {
        let foreign = pod(1).held_as(Arc::new(0_u8), 1, 1);
        assert!(matches!(open(&foreign), Err(OpenError::Foreign)));
        let other = Compactor::default().pack(b"another body").unwrap();
        let mixed_up = pod(1).held_as(Arc::new(other), 1, 1);
        assert!(matches!(open(&mixed_up), Err(OpenError::Damaged(None))));
        let damaged = Packed::damaged(pod(1).body());
        let damaged = pod(1).held_as(Arc::new(damaged), 1, 1);
        assert!(matches!(open(&damaged), Err(OpenError::Damaged(Some(_)))));
    }
}
