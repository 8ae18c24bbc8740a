//! What a definition must be to be taken, and what an update of it may not change, in kube-apiserver's
//! words. Schemas are not looked at.

use masthead_core::StatusCause;
use serde_json::Value;

use crate::document::Members;
use crate::prepare::meta_text;
use crate::validate::{is_dns_label, is_subdomain};

const DNS_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
                        start with an alphabetic character, and end with an alphanumeric character \
                        (e.g. 'my-name',  or 'abc-123', regex used for validation is \
                        '[a-z]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                         characters, '-' or '.', and must start and end with an alphanumeric \
                         character (e.g. 'example.com', regex used for validation is \
                         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const IMMUTABLE: &str = "field is immutable";
const APPROVAL: &str = "api-approved.kubernetes.io";

/// Whether a text is a DNS-1035 label: like other labels, but it begins with a letter.
fn is_dns_1035(text: &str) -> bool {
    is_dns_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Everything that is wrong with a definition by itself.
pub(super) fn problems(members: &Members) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let name = meta_text(members, "name");
    let spec = members.get("spec").cloned().unwrap_or_default();
    let group = text(&spec["group"]);
    let names = &spec["names"];
    check_group(group, members, &mut causes);
    match spec["scope"].as_str() {
        Some("Namespaced" | "Cluster") => {}
        None | Some("") => causes.push(StatusCause::required("spec.scope", "")),
        Some(other) => {
            let supported = ["Cluster", "Namespaced"];
            causes.push(StatusCause::not_supported("spec.scope", other, &supported));
        }
    }
    check_versions(&spec["versions"], &mut causes);
    check_names(names, &mut causes);
    let expected = format!("{}.{group}", text(&names["plural"]));
    if causes.is_empty() && name != expected {
        let why = "must be spec.names.plural+\".\"+spec.group";
        causes.push(StatusCause::invalid("metadata.name", name, why));
    }
    causes
}

fn check_group(group: &str, members: &Members, causes: &mut Vec<StatusCause>) {
    if group.is_empty() {
        causes.push(StatusCause::required("spec.group", ""));
    } else if !is_subdomain(group) {
        causes.push(StatusCause::invalid("spec.group", group, SUBDOMAIN));
    } else if !group.contains('.') {
        let why = "should be a domain with at least one dot";
        causes.push(StatusCause::invalid("spec.group", group, why));
    }
    let protected = ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        let parent = group.strip_suffix(domain);
        parent.is_some_and(|parent| parent.is_empty() || parent.ends_with('.'))
    });
    let annotations = members.get("metadata").map(|metadata| &metadata["annotations"]);
    let approved = annotations.and_then(|annotations| annotations[APPROVAL].as_str());
    if protected && approved.is_none_or(str::is_empty) {
        let field = format!("metadata.annotations[{APPROVAL}]");
        let why = format!(
            "protected groups must have approval annotation \"{APPROVAL}\", see \
             https://github.com/kubernetes/enhancements/pull/1111"
        );
        causes.push(StatusCause::required(&field, &why));
    }
}

fn check_versions(versions: &Value, causes: &mut Vec<StatusCause>) {
    let versions = versions.as_array().map_or(&[][..], Vec::as_slice);
    let mut names: Vec<&str> = Vec::new();
    for (number, version) in versions.iter().enumerate() {
        let name = text(&version["name"]);
        if !is_dns_1035(name) {
            let field = format!("spec.versions[{number}].name");
            causes.push(StatusCause::invalid(&field, name, DNS_1035));
        }
        for flag in ["served", "storage"] {
            if !version[flag].is_boolean() {
                let field = format!("spec.versions[{number}].{flag}");
                causes.push(StatusCause::required(&field, "must be true or false"));
            }
        }
        names.push(name);
    }
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        let why = "must contain unique version names";
        causes.push(StatusCause::invalid("spec.versions", "", why));
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        causes.push(StatusCause::invalid("spec.versions", "", why));
    }
}

fn check_names(names: &Value, causes: &mut Vec<StatusCause>) {
    let mut check = |field: &str, value: &Value, required: bool| {
        let field = format!("spec.names.{field}");
        match value.as_str() {
            None | Some("") if required => causes.push(StatusCause::required(&field, "")),
            Some(name) if !name.is_empty() && !is_dns_1035(name) => {
                causes.push(StatusCause::invalid(&field, name, DNS_1035));
            }
            None if !value.is_null() => {
                causes.push(StatusCause::invalid(&field, &value.to_string(), "must be a string"));
            }
            _ => {}
        }
    };
    check("plural", &names["plural"], true);
    check("singular", &names["singular"], false);
    for list in ["shortNames", "categories"] {
        for (number, name) in names[list].as_array().into_iter().flatten().enumerate() {
            check(&format!("{list}[{number}]"), name, true);
        }
    }
    for (field, required) in [("kind", true), ("listKind", false)] {
        match text(&names[field]) {
            "" if required => {
                causes.push(StatusCause::required(&format!("spec.names.{field}"), ""));
            }
            "" => {}
            kind if !is_dns_1035(&kind.to_lowercase()) => {
                let why = format!("may have mixed case, but should otherwise match: {DNS_1035}");
                causes.push(StatusCause::invalid(&format!("spec.names.{field}"), kind, &why));
            }
            _ => {}
        }
    }
    let list_kind = text(&names["listKind"]);
    if !list_kind.is_empty() && list_kind == text(&names["kind"]) {
        let why = "kind and listKind may not be the same";
        causes.push(StatusCause::invalid("spec.names.listKind", list_kind, why));
    }
}

/// What an update changes and may not: where objects are stored, and versions in which some may be.
pub(super) fn changes(old: &Members, new: &Members) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let at = |members: &Members, path: &str| {
        let spec = members.get("spec").cloned().unwrap_or_default();
        path.split('.').fold(spec, |value, step| value[step].clone())
    };
    for path in ["group", "scope", "names.kind", "names.plural"] {
        let value = at(new, path);
        if value != at(old, path) {
            let field = format!("spec.{path}");
            causes.push(StatusCause::invalid(&field, text(&value), IMMUTABLE));
        }
    }
    let versions = at(new, "versions");
    let has = |name: &str| {
        versions.as_array().into_iter().flatten().any(|version| version["name"] == name)
    };
    for (number, name) in super::stored_versions(Some(old)).iter().enumerate() {
        if !has(name) {
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must \
                 remain in spec.versions until a storage migration ensures no data remains \
                 persisted in {name} and removes {name} from status.storedVersions"
            );
            let field = format!("status.storedVersions[{number}]");
            causes.push(StatusCause::invalid(&field, name, &why));
        }
    }
    causes
}
