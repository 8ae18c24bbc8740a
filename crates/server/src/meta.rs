//! The meta types of requests, decoded as strictly as a typed server decodes them: a member of the wrong
//! JSON type is refused (400) and never passed over.
//!
//! What is passed over is worse than what is refused. A `resourceVersion` that is a number would count as
//! absent and the optimistic lock with it; `"dryRun": "All"` would really delete; metadata of wrong types
//! would be stored, and no typed client could read the object any more.

use masthead_core::Status;
use serde_json::Value;

use crate::document::Members;

/// What a member has to be. `null` is the zero value of each, as in Go.
enum Shape {
    Text,
    Integer,
    Flag,
    /// A point in time as text.
    Time,
    /// Any object.
    Object,
    /// A map of texts.
    Texts,
    List(&'static Self),
    Struct(&'static str, &'static [(&'static str, Self)]),
}

use Shape::{Flag, Integer, List, Object, Struct, Text, Texts, Time};

const OWNER_REFERENCE: Shape = Struct(
    "OwnerReference",
    &[
        ("apiVersion", Text),
        ("kind", Text),
        ("name", Text),
        ("uid", Text),
        ("controller", Flag),
        ("blockOwnerDeletion", Flag),
    ],
);

const MANAGED_FIELDS: Shape = Struct(
    "ManagedFieldsEntry",
    &[
        ("manager", Text),
        ("operation", Text),
        ("apiVersion", Text),
        ("time", Time),
        ("fieldsType", Text),
        ("fieldsV1", Object),
        ("subresource", Text),
    ],
);

const OBJECT_META: Shape = Struct(
    "ObjectMeta",
    &[
        ("name", Text),
        ("generateName", Text),
        ("namespace", Text),
        ("selfLink", Text),
        ("uid", Text),
        ("resourceVersion", Text),
        ("generation", Integer),
        ("creationTimestamp", Time),
        ("deletionTimestamp", Time),
        ("deletionGracePeriodSeconds", Integer),
        ("labels", Texts),
        ("annotations", Texts),
        ("ownerReferences", List(&OWNER_REFERENCE)),
        ("finalizers", List(&Text)),
        ("managedFields", List(&MANAGED_FIELDS)),
    ],
);

const PRECONDITIONS: Shape = Struct("Preconditions", &[("uid", Text), ("resourceVersion", Text)]);

const DELETE_OPTIONS: Shape = Struct(
    "DeleteOptions",
    &[
        ("apiVersion", Text),
        ("kind", Text),
        ("gracePeriodSeconds", Integer),
        ("preconditions", PRECONDITIONS),
        ("orphanDependents", Flag),
        ("propagationPolicy", Text),
        ("dryRun", List(&Text)),
        ("ignoreStoreReadErrorWithClusterBreakingPotential", Flag),
    ],
);

/// Checks the `metadata` of an object in a request.
pub(crate) fn check_object(kind: &str, version: &str, members: &Members) -> Result<(), Status> {
    let metadata = members.get("metadata").unwrap_or(&Value::Null);
    let wrong = check(&OBJECT_META, "metadata", metadata);
    wrong.map_err(|what| {
        let why = format!("{kind} in version {version:?} cannot be handled as a {kind}: {what}");
        Status::bad_request(why)
    })
}

/// Checks the options in the body of a delete.
pub(crate) fn check_delete_options(members: &Members) -> Result<(), Status> {
    let Struct(name, shapes) = &DELETE_OPTIONS else { return Ok(()) };
    check_members(name, shapes, "", members).map_err(|what| {
        let kind = "DeleteOptions";
        Status::bad_request(format!(
            "{kind} in version \"v1\" cannot be handled as a {kind}: {what}"
        ))
    })
}

fn check(shape: &Shape, path: &str, value: &Value) -> Result<(), String> {
    let wrong = |wanted: &str| Err(mismatch(path, value, wanted));
    match (shape, value) {
        (_, Value::Null)
        | (Text, Value::String(_))
        | (Flag, Value::Bool(_))
        | (Object, Value::Object(_)) => Ok(()),
        (Integer, Value::Number(number)) if number.as_i64().is_some() => Ok(()),
        (Time, Value::String(text)) => match text.parse::<jiff::Timestamp>() {
            Ok(_) => Ok(()),
            Err(_) => Err(format!("parsing time {text:?} at {path}: it is not as in RFC 3339")),
        },
        (Texts, Value::Object(members)) => members
            .iter()
            .try_for_each(|(key, value)| check(&Text, &format!("{path}.{key}"), value)),
        (List(shape), Value::Array(items)) => items
            .iter()
            .enumerate()
            .try_for_each(|(number, item)| check(shape, &format!("{path}[{number}]"), item)),
        (Struct(name, shapes), Value::Object(members)) => {
            check_members(name, shapes, path, members)
        }
        (Text, _) => wrong("string"),
        (Time, _) => wrong("time"),
        (Integer, _) => wrong("int64"),
        (Flag, _) => wrong("bool"),
        (Object, _) => wrong("object"),
        (Texts, _) => wrong("map[string]string"),
        (List(_), _) => wrong("array"),
        (Struct(name, _), _) => wrong(name),
    }
}

fn check_members(
    name: &str,
    shapes: &[(&str, Shape)],
    path: &str,
    members: &Members,
) -> Result<(), String> {
    for (member, shape) in shapes {
        let Some(value) = members.get(*member) else { continue };
        let separator = if path.is_empty() { "" } else { "." };
        check(shape, &format!("{path}{separator}{member}"), value)
            .map_err(|what| if path.is_empty() { format!("{name}: {what}") } else { what })?;
    }
    Ok(())
}

fn mismatch(path: &str, value: &Value, wanted: &str) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {found} into Go struct field {path} of type {wanted}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn members(value: Value) -> Members {
        match value {
            Value::Object(members) => members,
            other => panic!("{other} is no object"),
        }
    }

    #[test]
    fn metadata_of_the_right_types_or_null_is_taken() {
        let whole = json!({
            "name": "a", "labels": {"a": "b"}, "annotations": null, "generation": 1,
            "creationTimestamp": "2030-01-01T00:00:00Z", "deletionTimestamp": null,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u",
                "controller": true}],
            "finalizers": ["a/b"],
            "managedFields": [{"manager": "m", "operation": "Update", "fieldsV1": {"f:a": {}},
                "time": "2030-01-01T00:00:00.5+01:00"}],
            "unknown": 7,
        });
        for metadata in [whole, json!({}), Value::Null] {
            let object = members(json!({"metadata": metadata}));
            assert!(check_object("Pod", "v1", &object).is_ok(), "{object:?}");
        }
        assert!(check_object("Pod", "v1", &Members::new()).is_ok());
    }

    #[test]
    fn every_member_of_another_type_is_refused_with_its_path() {
        let wrong = [
            (json!("x"), "metadata of type ObjectMeta"),
            (json!({"name": 1}), "metadata.name of type string"),
            (json!({"resourceVersion": 7}), "metadata.resourceVersion of type string"),
            (json!({"uid": {}}), "metadata.uid of type string"),
            (json!({"generation": "1"}), "metadata.generation of type int64"),
            (json!({"generation": 1.5}), "metadata.generation of type int64"),
            (json!({"creationTimestamp": 7}), "metadata.creationTimestamp of type time"),
            (json!({"deletionTimestamp": "soon"}), "metadata.deletionTimestamp"),
            (json!({"labels": []}), "metadata.labels of type map[string]string"),
            (json!({"labels": {"a": 1}}), "metadata.labels.a of type string"),
            (json!({"finalizers": "x"}), "metadata.finalizers of type array"),
            (json!({"finalizers": [1]}), "metadata.finalizers[0] of type string"),
            (json!({"ownerReferences": [{"controller": "yes"}]}), "[0].controller of type bool"),
            (json!({"managedFields": "x"}), "metadata.managedFields of type array"),
            (json!({"managedFields": [{"fieldsV1": []}]}), "[0].fieldsV1 of type object"),
        ];
        for (metadata, expected) in wrong {
            let object = members(json!({"metadata": metadata}));
            let status = check_object("Pod", "v1", &object).expect_err(expected);
            assert_eq!(status.code(), 400);
            assert!(status.message().contains(expected), "{expected}: {}", status.message());
        }
    }

    #[test]
    fn options_of_a_delete_of_another_type_are_refused() {
        let right = json!({"kind": "DeleteOptions", "preconditions": {"uid": "u"},
            "dryRun": ["All"], "gracePeriodSeconds": 0});
        assert!(check_delete_options(&members(right)).is_ok());
        for wrong in [
            json!({"preconditions": "x"}),
            json!({"preconditions": {"resourceVersion": 7}}),
            json!({"dryRun": "All"}),
            json!({"dryRun": [true]}),
            json!({"gracePeriodSeconds": "0"}),
            json!({"propagationPolicy": 1}),
            json!({"orphanDependents": "no"}),
            json!({"kind": 1}),
        ] {
            let status = check_delete_options(&members(wrong.clone())).expect_err("is refused");
            assert_eq!(status.code(), 400, "{wrong}");
        }
    }
}
