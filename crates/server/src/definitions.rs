//! CustomResourceDefinitions: reading one, and saying that it is served (W39).
//!
//! One version of each is served: the one it is stored in. There is no schema validation and no
//! conversion yet.

use masthead_core::{Resource, Scope, SelectableField, Status, StatusCause};
use serde_json::{Value, json};

use crate::document::Members;
use crate::prepare::meta_text;
use crate::resources::{Kind, Scale};

/// Checks a definition and notes in its status that it is served: names accepted, established.
pub(crate) fn establish(members: &mut Members, now: &str) -> Result<(), Status> {
    let kind = read(members)?;
    let spec = members.get("spec").cloned().unwrap_or_default();
    let mut names = spec["names"].clone();
    if let Some(names) = names.as_object_mut() {
        names.entry("singular").or_insert_with(|| kind.singular.clone().into());
        names.entry("listKind").or_insert_with(|| format!("{}List", kind.resource.kind()).into());
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
    let status = json!({
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": names,
        "storedVersions": [kind.resource.version()],
    });
    members.insert("status".to_owned(), status);
    Ok(())
}

/// The resource that a definition defines.
pub(crate) fn read(members: &Members) -> Result<Kind, Status> {
    let name = meta_text(members, "name");
    let spec = members.get("spec").cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, names) = (text(&spec["group"]), &spec["names"]);
    let (plural, kind) = (text(&names["plural"]), text(&names["kind"]));
    let mut causes = Vec::new();
    for (field, value) in
        [("spec.group", &group), ("spec.names.plural", &plural), ("spec.names.kind", &kind)]
    {
        if value.is_empty() {
            causes.push(StatusCause::required(field, "must be given"));
        }
    }
    if causes.is_empty() && name != format!("{plural}.{group}") {
        let why = "must be spec.names.plural+\".\"+spec.group";
        causes.push(StatusCause::invalid("metadata.name", name, why));
    }
    if !group.is_empty() && !group.contains('.') {
        let why = "should be a domain with at least one dot";
        causes.push(StatusCause::invalid("spec.group", &group, why));
    }
    let scope = match spec["scope"].as_str() {
        Some("Namespaced") => Scope::Namespaced,
        Some("Cluster") => Scope::Cluster,
        other => {
            let supported = ["Cluster", "Namespaced"];
            let value = other.unwrap_or_default();
            causes.push(StatusCause::not_supported("spec.scope", value, &supported));
            Scope::Cluster
        }
    };
    let mut versions = spec["versions"].as_array().into_iter().flatten();
    let stored = versions.find(|it| it["storage"] == true && it["name"].is_string());
    let Some(stored) = stored.filter(|_| causes.is_empty()) else {
        if causes.is_empty() {
            let why = "must have exactly one version marked as storage version";
            causes.push(StatusCause::invalid("spec.versions", "", why));
        }
        let kind = "CustomResourceDefinition";
        return Err(Status::invalid("apiextensions.k8s.io", kind, name, causes));
    };
    let version = text(&stored["name"]);
    let resource = Resource::new(&group, &version, &plural, &kind, scope)
        .with_fields(selectable_fields(stored));
    let words = |value: &Value| {
        let items = value.as_array().into_iter().flatten();
        items.filter_map(|it| it.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let singular = match names["singular"].as_str() {
        Some(singular) if !singular.is_empty() => singular.to_owned(),
        _ => kind.to_lowercase(),
    };
    Ok(Kind {
        resource,
        singular,
        short_names: words(&names["shortNames"]),
        categories: words(&names["categories"]),
        status: stored["subresources"]["status"].is_object(),
        scale: scale(&stored["subresources"]["scale"]),
        generation: true,
        unconditional_update: false,
        custom: true,
    })
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
mod tests {
    use super::*;

    fn definition(change: impl FnOnce(&mut Value)) -> Members {
        let mut value = json!({
            "metadata": {"name": "sails.ship.example"},
            "spec": {
                "group": "ship.example", "scope": "Namespaced",
                "names": {"plural": "sails", "kind": "Sail", "shortNames": ["sl"]},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "selectableFields": [{"jsonPath": ".spec.colour"}],
                    "subresources": {"status": {}}}],
            },
        });
        change(&mut value);
        value.as_object().expect("is an object").clone()
    }

    #[test]
    fn w39_a_definition_names_a_resource_with_its_fields_and_subresources() {
        let kind = read(&definition(|_| {})).expect("is whole");
        assert_eq!(format!("{:?}", kind.resource), "ship.example/v1/sails");
        assert_eq!(kind.resource.fields()[0].label, "spec.colour");
        assert!(kind.status && kind.scale.is_none() && kind.custom && kind.namespaced());
        assert_eq!((kind.singular.as_str(), &*kind.short_names), ("sail", &["sl".to_owned()][..]));
    }

    #[test]
    fn w39_it_is_established_at_once() {
        let mut members = definition(|_| {});
        establish(&mut members, "2030-01-01T00:00:00Z").expect("is whole");
        assert_eq!(members["status"]["conditions"][1]["type"], "Established");
        assert_eq!(members["status"]["acceptedNames"]["listKind"], "SailList");
        establish(&mut members, "2031-01-01T00:00:00Z").expect("is whole");
        let since = &members["status"]["conditions"][1]["lastTransitionTime"];
        assert_eq!(since, "2030-01-01T00:00:00Z", "an update is no transition");
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        type Change = fn(&mut Value);
        let wrong: [(Change, &str); 5] = [
            (|it| it["metadata"]["name"] = "x".into(), "metadata.name"),
            (|it| it["spec"]["group"] = "ship".into(), "spec.group"),
            (|it| it["spec"]["scope"] = "Galaxy".into(), "spec.scope"),
            (|it| it["spec"]["versions"] = json!([]), "spec.versions"),
            (|it| it["spec"]["names"] = json!({}), "spec.names.plural"),
        ];
        for (change, field) in wrong {
            let status = read(&definition(change)).expect_err(field);
            assert_eq!(status.code(), 422);
            assert!(status.message().contains(field), "{}", status.message());
        }
    }
}
