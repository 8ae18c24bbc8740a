//! Bodies in etcd do not say their revision, which is known only when they are there: it is put in
//! when they are read.

use bytes::Bytes;
use masthead_core::{Object, ObjectKey, Revision};
use serde_json::{Map, Value as Json};

use crate::Value;

const MEMBER: &str = "\"metadata\"";

/// A body as it is written: without a resource version.
pub(crate) fn unstamped(object: &Object) -> Bytes {
    if object.resource_version().is_empty() {
        return object.body().clone();
    }
    cut(object).unwrap_or_else(|| strip(object).expect("an object is JSON with metadata"))
}

/// The body without the member, if it stands there as we write it.
fn cut(object: &Object) -> Option<Bytes> {
    let (body, metadata) = (object.body(), object.metadata());
    let member = format!("\"resourceVersion\":\"{}\"", object.resource_version());
    let inside = memchr::memmem::find(&metadata, member.as_bytes())?;
    let start = metadata.as_ptr() as usize - body.as_ptr() as usize + inside;
    let (before, after) = (&body[..start], &body[start + member.len()..]);
    let (before, after) = match (before.strip_suffix(b","), after.strip_prefix(b",")) {
        (_, Some(after)) => (before, after),
        (Some(before), None) => (before, after),
        (None, None) => return None,
    };
    Some([before, after].concat().into())
}

/// The same for any other form.
fn strip(object: &Object) -> Option<Bytes> {
    let mut members: Map<String, Json> = serde_json::from_slice(object.body()).ok()?;
    members.get_mut("metadata")?.as_object_mut()?.shift_remove("resourceVersion");
    serde_json::to_vec(&members).ok().map(Bytes::from)
}

/// What was read, saying when it was written. What is no object stays as it is, for whoever parses
/// it to find out: one damaged value does not hold up the others.
pub(crate) fn stamped(key: &ObjectKey, body: &Bytes, revision: Revision) -> Value {
    if let Some(at) = metadata(body) {
        let digits = revision.to_string();
        let parts: [&[u8]; 4] = [&body[..at], b"\"resourceVersion\":\"", digits.as_bytes(), b"\","];
        let mut stamped = Vec::with_capacity(body.len() + 24 + digits.len());
        for part in parts {
            stamped.extend_from_slice(part);
        }
        stamped.extend_from_slice(&body[at..]);
        return Value::stored(revision, stamped.into());
    }
    // Somebody else wrote it, in another form.
    let value = Value::stored(revision, body.clone());
    value.at(key, revision).unwrap_or(value)
}

/// The place behind the brace of `metadata`, if it stands where we write it: behind members that are
/// plain texts, with something in it that is not a resource version.
fn metadata(body: &[u8]) -> Option<usize> {
    let mut rest = body.strip_prefix(b"{")?;
    loop {
        if let Some(inside) = rest.strip_prefix(MEMBER.as_bytes()) {
            let inside = inside.strip_prefix(b":{")?;
            let own = inside.starts_with(b"\"") && !is_there(inside);
            return own.then(|| body.len() - inside.len());
        }
        rest = text(rest)?.strip_prefix(b":")?;
        rest = text(rest)?.strip_prefix(b",")?;
    }
}

/// Passes over a text without escapes.
fn text(rest: &[u8]) -> Option<&[u8]> {
    let inside = rest.strip_prefix(b"\"")?;
    let end = inside.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    inside[end..].strip_prefix(b"\"")
}

/// Is there a resource version that we did not write? Other parts of an object may have the word too,
/// so a hit says only that the slow way is to be taken.
fn is_there(inside: &[u8]) -> bool {
    memchr::memmem::find(inside, b"resourceVersion\"").is_some()
}

#[cfg(test)]
mod tests {
    use masthead_core::Resource;

    use super::*;

    fn read(body: &str) -> String {
        let key = ObjectKey::new("shop", "web").expect("is valid");
        let value = stamped(&key, &Bytes::copy_from_slice(body.as_bytes()), Revision(7));
        assert_eq!(value.revision(), Revision(7));
        let object = value.object(&Resource::pods()).expect("is a pod");
        assert_eq!(object.revision(), Revision(7));
        String::from_utf8(value.body().to_vec()).expect("is text")
    }

    #[test]
    fn what_is_read_says_its_revision() {
        let body = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","name":"web"},"a":1}"#;
        let expected = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":"7","namespace":"shop","name":"web"},"a":1}"#;
        assert_eq!(read(body), expected);
    }

    #[test]
    fn another_form_is_read_all_the_same() {
        for body in [
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"3","namespace":"shop","name":"web"}}"#,
            r#"{ "kind":"Pod","apiVersion":"v1","metadata": {"namespace":"shop","name":"web"}}"#,
            r#"{"spec":{},"metadata":{"namespace":"shop","name":"web"}}"#,
            r#"{"k\"ind":"x","metadata":{"namespace":"shop","name":"web"}}"#,
        ] {
            assert!(read(body).contains(r#""resourceVersion":"7""#), "{body}");
        }
    }

    #[test]
    fn what_is_no_object_stays_as_it_is() {
        for body in ["", "{}", "[]", r#"{"metadata":"#, "\0\u{1}"] {
            let key = ObjectKey::new("shop", "web").expect("is valid");
            let read = stamped(&key, &Bytes::copy_from_slice(body.as_bytes()), Revision(7));
            assert_eq!(read.body(), body);
        }
    }

    #[test]
    fn what_is_written_does_not_say_a_revision() {
        let expected = r#"{"metadata":{"namespace":"shop","name":"web"},"a":1}"#;
        for body in [
            r#"{"metadata":{"namespace":"shop","name":"web"},"a":1}"#,
            r#"{"metadata":{"resourceVersion":"3","namespace":"shop","name":"web"},"a":1}"#,
            r#"{"metadata":{"namespace":"shop","resourceVersion":"3","name":"web"},"a":1}"#,
            r#"{"metadata":{"namespace":"shop","name":"web","resourceVersion":"3"},"a":1}"#,
            r#"{"metadata":{"namespace":"shop","resourceVersion": "3","name":"web"},"a":1}"#,
        ] {
            let object = Object::parse(&Resource::pods(), body.into()).expect("is a pod");
            assert_eq!(unstamped(&object), expected, "{body}");
        }
    }

    #[test]
    fn a_text_that_looks_like_a_revision_stays() {
        let body = r#"{"metadata":{"annotations":{"a":"{\"resourceVersion\":\"3\"}"},"resourceVersion":"3","namespace":"shop","name":"web"},"resourceVersion":"3"}"#;
        let object = Object::parse(&Resource::pods(), body.into()).expect("is a pod");
        let expected = r#"{"metadata":{"annotations":{"a":"{\"resourceVersion\":\"3\"}"},"namespace":"shop","name":"web"},"resourceVersion":"3"}"#;
        assert_eq!(unstamped(&object), expected);
    }
}
