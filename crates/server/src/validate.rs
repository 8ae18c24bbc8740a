//! The rules that every object keeps: names, labels, annotations.

use masthead_core::{Status, StatusCause};
use serde_json::Value;

use crate::document::Members;
use crate::limits::{ANNOTATION_BYTES_MAX, LABEL_BYTES_MAX, NAME_BYTES_MAX};
use crate::resources::Kind;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                         characters, '-' or '.', and must start and end with an alphanumeric \
                         character";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters \
                     or '-', and must start and end with an alphanumeric character";
const SEGMENT: &str = "may not be '.' or '..' and may not contain '/' or '%'";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and \
                         must start and end with an alphanumeric character, at most 63 of them, \
                         behind an optional DNS subdomain and '/'";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric \
                           characters, '-', '_' or '.', and must start and end with an \
                           alphanumeric character, at most 63 of them";

/// What is wrong with an object's metadata; 422 with all causes.
pub(crate) fn metadata(kind: &Kind, metadata: &Members) -> Result<(), Status> {
    let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default();
    let mut causes = Vec::new();
    if let Some(why) = name_problem(kind, name) {
        causes.push(StatusCause::invalid("metadata.name", name, why));
    }
    if let Some(labels) = texts(metadata, "labels", &mut causes) {
        for (key, value) in labels {
            if !is_qualified(key) {
                causes.push(StatusCause::invalid("metadata.labels", key, QUALIFIED));
            }
            if !is_label_value(value) {
                causes.push(StatusCause::invalid("metadata.labels", value, LABEL_VALUE));
            }
        }
    }
    if let Some(annotations) = texts(metadata, "annotations", &mut causes) {
        let bytes: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
        if bytes > ANNOTATION_BYTES_MAX {
            let why = format!("must have at most {ANNOTATION_BYTES_MAX} bytes");
            causes.push(StatusCause::invalid("metadata.annotations", "", &why));
        }
        for (key, _) in annotations.iter().filter(|(key, _)| !is_qualified(&key.to_lowercase())) {
            causes.push(StatusCause::invalid("metadata.annotations", key, QUALIFIED));
        }
    }
    let is_finalizer = |value: &Value| value.as_str().is_some_and(is_qualified);
    check_list(metadata, "finalizers", is_finalizer, &mut causes);
    check_list(metadata, "ownerReferences", is_owner, &mut causes);
    check_controllers(metadata, &mut causes);
    check_list(metadata, "managedFields", is_manager, &mut causes);
    if causes.is_empty() {
        return Ok(());
    }
    let resource = &kind.resource;
    Err(Status::invalid(resource.group(), resource.kind(), name, causes))
}

fn is_owner(owner: &Value) -> bool {
    ["apiVersion", "kind", "name", "uid"]
        .iter()
        .all(|part| owner[part].as_str().is_some_and(|text| !text.is_empty()))
}

/// Only one owner can be the controller.
fn check_controllers(metadata: &Members, causes: &mut Vec<StatusCause>) {
    let owners = metadata.get("ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let mut controllers = owners.filter(|owner| owner["controller"] == true);
    if let Some(second) = controllers.nth(1) {
        let why = "Only one reference can have Controller set to true";
        causes.push(StatusCause::invalid("metadata.ownerReferences", &second.to_string(), why));
    }
}

fn is_manager(entry: &Value) -> bool {
    matches!(entry["operation"].as_str(), Some("Apply" | "Update"))
        && matches!(entry["fieldsType"].as_str(), None | Some("" | "FieldsV1"))
}

fn check_list(
    metadata: &Members,
    name: &str,
    right: impl Fn(&Value) -> bool,
    causes: &mut Vec<StatusCause>,
) {
    let field = format!("metadata.{name}");
    match metadata.get(name) {
        None | Some(Value::Null) => {}
        Some(Value::Array(items)) => {
            for item in items.iter().filter(|item| !right(item)) {
                causes.push(StatusCause::invalid(&field, &item.to_string(), "is not well formed"));
            }
        }
        Some(other) => causes.push(StatusCause::invalid(&field, &other.to_string(), "no list")),
    }
}

/// A map of texts; what is none is a cause.
fn texts<'a>(
    metadata: &'a Members,
    name: &str,
    causes: &mut Vec<StatusCause>,
) -> Option<Vec<(&'a str, &'a str)>> {
    let field = format!("metadata.{name}");
    match metadata.get(name)? {
        Value::Null => None,
        Value::Object(members) => {
            let mut texts = Vec::with_capacity(members.len());
            for (key, value) in members {
                if let Some(text) = value.as_str() {
                    texts.push((key.as_str(), text));
                } else {
                    let why = "must be a string";
                    causes.push(StatusCause::invalid(&field, &value.to_string(), why));
                }
            }
            Some(texts)
        }
        other => {
            causes.push(StatusCause::invalid(&field, &other.to_string(), "must be a map"));
            None
        }
    }
}

/// What is wrong with a name of this kind.
pub(crate) fn name_problem(kind: &Kind, name: &str) -> Option<&'static str> {
    let group = kind.resource.group();
    let by_segment =
        group == "rbac.authorization.k8s.io" || kind.is("networking.k8s.io", "ipaddresses");
    if by_segment {
        let bad = name.is_empty()
            || matches!(name, "." | "..")
            || name.contains(['/', '%'])
            || name.len() > NAME_BYTES_MAX;
        return bad.then_some(SEGMENT);
    }
    if kind.is("", "namespaces") || kind.is("", "services") {
        return (!is_dns_label(name)).then_some(LABEL);
    }
    (!is_subdomain(name)).then_some(SUBDOMAIN)
}

fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Whether a text is a DNS label.
pub(crate) fn is_dns_label(text: &str) -> bool {
    text.len() <= LABEL_BYTES_MAX && is_part(text)
}

fn is_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = |byte: Option<&u8>| byte.is_some_and(|&byte| is_alphanumeric(byte));
    ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|&byte| is_alphanumeric(byte) || byte == b'-')
}

/// Whether a text is a DNS subdomain.
pub(crate) fn is_subdomain(text: &str) -> bool {
    text.len() <= NAME_BYTES_MAX && text.split('.').all(is_part)
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    text.len() <= LABEL_BYTES_MAX
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|&byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn is_qualified(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name(name),
        None => is_name(key),
    }
}

fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_name(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_held_to_the_rules_of_dns_at_their_limits() {
        for name in ["a", "a-b.c", "1", &"a".repeat(253)] {
            assert!(is_subdomain(name), "{name}");
        }
        for name in ["", "A", "-a", "a-", "a..b", ".a", "a_b", "a/b", &"a".repeat(254)] {
            assert!(!is_subdomain(name), "{name}");
        }
        assert!(is_dns_label(&"a".repeat(63)));
        assert!(!is_dns_label(&"a".repeat(64)) && !is_dns_label("a.b"));
    }

    #[test]
    fn label_keys_and_values_are_held_to_their_grammar() {
        for key in ["app", "k8s.io/app", "a.b/C_d", &format!("x/{}", "a".repeat(63))] {
            assert!(is_qualified(key), "{key}");
        }
        for key in ["", "/a", "a/", "A/b", "a/b/c", "-a", &"a".repeat(64)] {
            assert!(!is_qualified(key), "{key}");
        }
        assert!(is_label_value("") && is_label_value("v1.2_3") && !is_label_value("a b"));
    }
}
