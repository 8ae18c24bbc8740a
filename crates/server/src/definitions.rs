//! CustomResourceDefinitions: checking one, saying that it is served, and what it defines (W39).
//!
//! Every served version is a kind of its own, and so is the stored one. Objects are read whatever version
//! they were stored in: versions differ in `apiVersion` alone (conversion `None`). There is no schema
//! validation yet.

use masthead_core::{Resource, Scope, SelectableField, Status, StatusCause};
use serde_json::{Value, json};

use crate::document::Members;
use crate::prepare::meta_text;
use crate::resources::{Kind, Scale};

mod validate;

/// The group of CustomResourceDefinitions.
pub(crate) const GROUP: &str = "apiextensions.k8s.io";

/// Checks a definition and notes in its status that it is served: names accepted, established. `old` is
/// the definition before an update.
pub(crate) fn establish(
    members: &mut Members,
    old: Option<&Members>,
    now: &str,
) -> Result<(), Status> {
    let mut causes = validate::problems(members);
    if let Some(old) = old {
        causes.extend(validate::changes(old, members));
    }
    if !causes.is_empty() {
        let name = meta_text(members, "name");
        return Err(Status::invalid(GROUP, "CustomResourceDefinition", name, causes));
    }
    let kinds = read(members)?;
    let stored = kinds.first().ok_or_else(|| Status::internal("a definition without versions"))?;
    let spec = members.get("spec").cloned().unwrap_or_default();
    let mut names = spec["names"].clone();
    if let Some(names) = names.as_object_mut() {
        names.entry("singular").or_insert_with(|| stored.singular.clone().into());
        names.entry("listKind").or_insert_with(|| format!("{}List", stored.resource.kind()).into());
    }
    if let Some(spec) = members.get_mut("spec") {
        spec["names"] = names.clone();
        if spec.get("conversion").is_none_or(Value::is_null) {
            spec["conversion"] = json!({"strategy": "None"});
        }
    }
    let since = |kind: &str| {
        let conditions = members.get("status").and_then(|it| it["conditions"].as_array());
        let mut all = conditions.into_iter().flatten();
        let known =
            all.find(|it| it["type"] == kind).and_then(|it| it["lastTransitionTime"].as_str());
        known.unwrap_or(now).to_owned()
    };
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": "True", "lastTransitionTime": since(kind),
            "reason": reason, "message": message,
        })
    };
    let mut versions = stored_versions(old);
    if !versions.iter().any(|version| version == stored.resource.version()) {
        versions.push(stored.resource.version().to_owned());
    }
    let status = json!({
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": names,
        "storedVersions": versions,
    });
    members.insert("status".to_owned(), status);
    Ok(())
}

/// Checks what a client writes into the status: the versions in which objects may be stored are versions
/// of the definition, and the one in which they are stored now is among them.
pub(crate) fn check_status(members: &Members) -> Result<(), Status> {
    let kinds = read(members)?;
    let names: Vec<_> = members["spec"]["versions"].as_array().into_iter().flatten().collect();
    let mut causes = Vec::new();
    let versions = stored_versions(Some(members));
    for (number, version) in versions.iter().enumerate() {
        if !names.iter().any(|it| it["name"] == *version) {
            let field = format!("status.storedVersions[{number}]");
            causes.push(StatusCause::invalid(&field, version, "must appear in spec.versions"));
        }
    }
    let stored = kinds[0].resource.version();
    if !versions.iter().any(|version| version == stored) {
        let why = format!("must have the storage version {stored}");
        causes.push(StatusCause::invalid("status.storedVersions", "", &why));
    }
    if causes.is_empty() {
        return Ok(());
    }
    let name = meta_text(members, "name");
    Err(Status::invalid(GROUP, "CustomResourceDefinition", name, causes))
}

/// The versions in which objects may be stored, as the status of a definition has them.
fn stored_versions(definition: Option<&Members>) -> Vec<String> {
    let status = definition.and_then(|members| members.get("status"));
    let versions = status.and_then(|status| status["storedVersions"].as_array());
    let names = versions.into_iter().flatten().filter_map(Value::as_str);
    names.map(str::to_owned).collect()
}

/// The kinds that a definition defines, the stored version first: each version that is served, and the
/// stored one even if it is not.
pub(crate) fn read(members: &Members) -> Result<Vec<Kind>, Status> {
    let spec = members.get("spec").cloned().unwrap_or_default();
    let versions = spec["versions"].as_array().into_iter().flatten();
    let mut kinds = Vec::new();
    for version in versions {
        let kind = kind(&spec, version);
        if kind.served || kind.storage {
            kinds.push(kind);
        }
    }
    kinds.sort_by_key(|kind| !kind.storage);
    match kinds.first() {
        Some(stored) if stored.storage && !stored.resource.plural().is_empty() => Ok(kinds),
        _ => Err(Status::internal(format!(
            "the definition {} names no version that is stored",
            meta_text(members, "name")
        ))),
    }
}

/// One version of a definition.
fn kind(spec: &Value, version: &Value) -> Kind {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names = &spec["names"];
    let kind = text(&names["kind"]);
    let scope = if spec["scope"] == "Namespaced" { Scope::Namespaced } else { Scope::Cluster };
    let name = text(&version["name"]);
    let resource =
        Resource::new(&text(&spec["group"]), &name, &text(&names["plural"]), &kind, scope)
            .with_fields(selectable_fields(version));
    let words = |value: &Value| {
        let items = value.as_array().into_iter().flatten();
        items.filter_map(|it| it.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let singular = match names["singular"].as_str() {
        Some(singular) if !singular.is_empty() => singular.to_owned(),
        _ => kind.to_lowercase(),
    };
    Kind {
        resource,
        singular,
        short_names: words(&names["shortNames"]),
        categories: words(&names["categories"]),
        status: version["subresources"]["status"].is_object(),
        scale: scale(&version["subresources"]["scale"]),
        generation: true,
        unconditional_update: false,
        custom: true,
        served: version["served"] == true,
        storage: version["storage"] == true,
    }
}

/// Those that selectors may name; more than there may be are left out.
fn selectable_fields(version: &Value) -> Vec<SelectableField> {
    let fields = version["selectableFields"].as_array().into_iter().flatten();
    let paths = fields.filter_map(|it| it["jsonPath"].as_str()?.strip_prefix('.'));
    paths
        .filter(|path| !path.is_empty() && !path.contains(['[', ']', '\'', '"']))
        .take(masthead_core::limits::SELECTABLE_FIELDS_MAX)
        .map(SelectableField::at)
        .collect()
}

fn scale(value: &Value) -> Option<Scale> {
    let path = |name: &str| value[name].as_str().map(str::to_owned);
    Some(Scale {
        spec_replicas: path("specReplicasPath")?,
        status_replicas: path("statusReplicasPath")?,
        label_selector: path("labelSelectorPath"),
    })
}

#[cfg(test)]
mod tests;
