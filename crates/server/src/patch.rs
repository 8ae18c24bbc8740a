//! JSON and merge patches (W36).

use std::io;

use json_patch::PatchOperation;
use masthead_core::{Reason, Status};
use serde_json::Value;

use crate::document::{Document, Format, Members};
use crate::limits::{PATCH_COPIED_BYTES_MAX, PATCH_OPERATIONS_MAX};

/// A patch that has been read.
#[derive(Debug)]
pub(crate) enum Patch {
    /// RFC 6902.
    Json(json_patch::Patch),
    /// RFC 7386.
    Merge(Value),
}

/// The types that are taken, for the answer to all others.
pub(crate) const TYPES: [&str; 2] = ["application/json-patch+json", "application/merge-patch+json"];

impl Patch {
    /// Reads a patch of this content type. `document` reads the body.
    pub(crate) fn read(
        content_type: &str,
        document: impl FnOnce(Format) -> Result<Document, Status>,
    ) -> Result<Self, Status> {
        match content_type {
            "application/json-patch+json" => {
                let document = document(Format::Json)?;
                let operations = document.value.as_array().map_or(0, Vec::len);
                if operations > PATCH_OPERATIONS_MAX {
                    let why = format!(
                        "the allowed maximum operations in a JSON patch is \
                         {PATCH_OPERATIONS_MAX}, got {operations}"
                    );
                    return Err(Status::with(413, Reason::RequestEntityTooLarge, why));
                }
                let patch = serde_json::from_value(document.value);
                patch.map(Self::Json).map_err(|error| {
                    Status::bad_request(format!("the body is not a JSON patch: {error}"))
                })
            }
            "application/merge-patch+json" => {
                let document = document(Format::Json)?;
                Ok(Self::Merge(Value::Object(document.into_members()?)))
            }
            _ => Err(Status::unsupported_media_type(&TYPES)),
        }
    }

    /// What an object becomes. What does not apply is 422.
    pub(crate) fn apply(&self, current: &Members) -> Result<Members, Status> {
        let mut value = Value::Object(current.clone());
        match self {
            Self::Json(patch) => apply_json(&mut value, patch)?,
            Self::Merge(patch) => json_patch::merge(&mut value, patch),
        }
        match value {
            Value::Object(members) => Ok(members),
            _ => Err(Status::bad_request("the patch leaves no object")),
        }
    }
}

/// Applies the operations one after the other. Copies may double what is there with each operation, so the
/// bytes that they add are summed up before each of them is made.
fn apply_json(value: &mut Value, patch: &[PatchOperation]) -> Result<(), Status> {
    let refused = |why: String| Status::with(422, Reason::Invalid, why);
    let mut copied = 0;
    for (number, operation) in patch.iter().enumerate() {
        if let PatchOperation::Copy(copy) = operation
            && let Ok(source) = copy.from.resolve(value)
        {
            copied += json_bytes(source);
            if copied > PATCH_COPIED_BYTES_MAX {
                return Err(refused(format!(
                    "unable to copy {} (operation {number}): the accumulated size increase of copy \
                     is {copied}, exceeding the limit {PATCH_COPIED_BYTES_MAX}",
                    copy.from
                )));
            }
        }
        json_patch::patch(value, std::slice::from_ref(operation)).map_err(|error| {
            refused(format!("the patch does not apply: operation {number}: {error}"))
        })?;
    }
    Ok(())
}

/// Bytes of a value as JSON.
fn json_bytes(value: &Value) -> usize {
    let mut counter = ByteCounter(0);
    serde_json::to_writer(&mut counter, value).expect("values with text keys are JSON");
    counter.0
}

/// Counts what is written to it.
struct ByteCounter(usize);

impl io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn apply(content_type: &str, patch: &Value, to: &Value) -> Result<Value, u16> {
        let patch = Patch::read(content_type, |format| {
            Document::read(patch.to_string().as_bytes(), format)
        });
        let members = to.as_object().expect("an object").clone();
        let applied = patch.and_then(|patch| patch.apply(&members));
        applied.map(Value::Object).map_err(|status| status.code())
    }

    #[test]
    fn w36_json_patches_apply_whole_or_not_at_all() {
        let json = TYPES[0];
        let object = json!({"a": {"b": 1}});
        let patch = json!([{"op": "test", "path": "/a/b", "value": 1},
            {"op": "replace", "path": "/a/b", "value": 2}, {"op": "add", "path": "/c", "value": []}]);
        assert_eq!(apply(json, &patch, &object), Ok(json!({"a": {"b": 2}, "c": []})));
        let failing = json!([{"op": "test", "path": "/a/b", "value": 9}]);
        assert_eq!(apply(json, &failing, &object), Err(422));
        assert_eq!(apply(json, &json!([{"op": "remove", "path": "/x"}]), &object), Err(422));
        assert_eq!(apply(json, &json!({"a": 1}), &object), Err(400));
        assert_eq!(apply(json, &json!([{"op": "jump", "path": "/a"}]), &object), Err(400));
    }

    #[test]
    fn w36_copies_add_up_to_their_limit_and_no_more() {
        let half = "x".repeat(PATCH_COPIED_BYTES_MAX / 2 - 2);
        let object = json!({"half": half});
        let copy = |to: &str| json!({"op": "copy", "from": "/half", "path": to});
        let two = json!([copy("/a"), copy("/b")]);
        assert!(apply(TYPES[0], &two, &object).is_ok(), "as much as there may be");
        let more = json!([{"op": "add", "path": "/one", "value": 1}, copy("/a"), copy("/b"),
            {"op": "copy", "from": "/one", "path": "/c"}]);
        assert_eq!(apply(TYPES[0], &more, &object), Err(422), "a byte more");
    }

    #[test]
    fn w36_copies_that_double_are_refused_before_they_take_memory() {
        let double = json!({"op": "copy", "from": "/a", "path": "/a/-"});
        let mut operations = vec![json!({"op": "add", "path": "/a", "value": [1]})];
        operations.extend(vec![double; 60]);
        assert_eq!(apply(TYPES[0], &Value::Array(operations), &json!({})), Err(422));
    }

    #[test]
    fn w36_merge_patches_replace_remove_and_add() {
        let patch = json!({"a": {"b": null, "c": 2}, "d": [1]});
        let merged = apply(TYPES[1], &patch, &json!({"a": {"b": 1}, "d": [5, 6]}));
        assert_eq!(merged, Ok(json!({"a": {"c": 2}, "d": [1]})));
        assert_eq!(apply(TYPES[1], &json!([]), &json!({})), Err(400));
    }

    #[test]
    fn w36_other_patches_are_refused_and_operations_are_counted() {
        let strategic = "application/strategic-merge-patch+json";
        assert_eq!(apply(strategic, &json!({}), &json!({})), Err(415));
        let operations =
            |count| Value::Array(vec![json!({"op":"test","path":"","value":{}}); count]);
        assert!(apply(TYPES[0], &operations(PATCH_OPERATIONS_MAX), &json!({})).is_ok());
        assert_eq!(apply(TYPES[0], &operations(PATCH_OPERATIONS_MAX + 1), &json!({})), Err(413));
    }
}
