//! What the server serves by itself: every built-in resource of Kubernetes' stable groups.

use masthead_core::{Resource, Scope, SelectableField};

mod table;

/// A resource with what the API says of it beyond its name.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a column of the table")]
pub(crate) struct Kind {
    /// Group, version, plural, kind, scope, selectable fields.
    pub resource: Resource,
    /// What one is called.
    pub singular: String,
    /// What users type.
    pub short_names: Vec<String>,
    /// Groups of resources that it belongs to, like `all`.
    pub categories: Vec<String>,
    /// Whether there is a `status` subresource, which other writes leave alone.
    pub status: bool,
    /// Where `scale` finds its numbers, if there is a `scale` subresource.
    pub scale: Option<Scale>,
    /// Whether `metadata.generation` counts changes of the specification.
    pub generation: bool,
    /// Whether a PUT may leave the resource version out (W32c).
    pub unconditional_update: bool,
    /// Comes from a CustomResourceDefinition.
    pub custom: bool,
    /// Clients see this version.
    pub served: bool,
    /// Objects are stored in this version.
    pub storage: bool,
}

/// The paths of a `scale` subresource, as a CustomResourceDefinition names them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Scale {
    /// `.spec.replicas` for all built-in ones.
    pub spec_replicas: String,
    /// `.status.replicas`.
    pub status_replicas: String,
    /// Where the selector is, if anywhere.
    pub label_selector: Option<String>,
}

impl Scale {
    fn built_in() -> Self {
        Self {
            spec_replicas: ".spec.replicas".to_owned(),
            status_replicas: ".status.replicas".to_owned(),
            label_selector: Some(".spec.selector".to_owned()),
        }
    }
}

impl Kind {
    /// Returns `true` if objects of the resource are namespaced.
    pub(crate) fn namespaced(&self) -> bool {
        self.resource.scope() == Scope::Namespaced
    }

    /// Returns `true` if this is the built-in resource of that group and plural name.
    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        !self.custom && self.resource.group() == group && self.resource.plural() == plural
    }

    fn built_in(row: &table::Row) -> Self {
        let (group, version) =
            row.group_version.rsplit_once('/').unwrap_or(("", row.group_version));
        let scope = if row.has("cluster") { Scope::Cluster } else { Scope::Namespaced };
        let resource = match (group, row.plural) {
            ("", "pods") => Resource::pods(),
            _ => Resource::new(group, version, row.plural, row.kind, scope)
                .with_fields(fields(group, row.plural)),
        };
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        Self {
            resource,
            singular: row.kind.to_lowercase(),
            short_names: words(row.short_names),
            categories: if row.has("all") { words("all") } else { Vec::new() },
            status: row.has("status"),
            scale: row.has("scale").then(Scale::built_in),
            generation: row.has("generation"),
            unconditional_update: !row.has("conditional"),
            custom: false,
            served: true,
            storage: true,
        }
    }
}

/// All of them, in the order of discovery.
pub(crate) fn built_in() -> Vec<Kind> {
    table::ROWS.iter().map(Kind::built_in).collect()
}

/// The fields that selectors may name besides name and namespace (W27). Pods bring their own.
fn fields(group: &str, plural: &str) -> Vec<SelectableField> {
    let at = SelectableField::at;
    let named = |label: &str, paths: &[&str]| SelectableField {
        label: label.to_owned(),
        paths: paths.iter().map(|&path| path.to_owned()).collect(),
        default: String::new(),
    };
    match (group, plural) {
        ("", "events") => ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion"]
            .iter()
            .map(|part| at(&format!("involvedObject.{part}")))
            .chain([
                at("involvedObject.fieldPath"),
                at("reason"),
                at("reportingComponent"),
                named("source", &["source.component", "reportingComponent"]),
                at("type"),
            ])
            .collect(),
        ("events.k8s.io", "events") => vec![
            at("regarding.kind"),
            at("regarding.namespace"),
            at("regarding.name"),
            at("regarding.uid"),
            at("reason"),
            at("reportingController"),
            at("type"),
        ],
        ("", "secrets") => vec![at("type")],
        ("", "namespaces" | "persistentvolumes" | "persistentvolumeclaims") => {
            vec![at("status.phase")]
        }
        ("", "nodes") => vec![at("spec.unschedulable").or("false")],
        ("", "services") => vec![at("spec.clusterIP"), at("spec.type")],
        ("", "replicationcontrollers") | ("apps", "replicasets") => {
            vec![at("status.replicas").or("0")]
        }
        ("batch", "jobs") => vec![named("status.successful", &["status.succeeded"]).or("0")],
        ("certificates.k8s.io", "certificatesigningrequests") => vec![at("spec.signerName")],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_resource_is_named_once_and_has_a_plural_of_lower_case() {
        let kinds = built_in();
        for (number, kind) in kinds.iter().enumerate() {
            let name = kind.resource.plural();
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase()), "{name}");
            assert!(kinds[..number].iter().all(|other| other.resource != kind.resource), "{name}");
        }
        assert!(kinds.len() > 50, "{} kinds", kinds.len());
    }

    #[test]
    fn scopes_and_subresources_are_those_of_kubernetes() {
        let kinds = built_in();
        let kind = |group: &str, plural: &str| {
            kinds.iter().find(|kind| kind.is(group, plural)).expect("is served").clone()
        };
        assert!(!kind("", "nodes").namespaced());
        assert!(kind("apps", "deployments").scale.is_some());
        assert!(kind("", "pods").status && !kind("", "configmaps").status);
        assert!(!kind("", "secrets").generation && kind("apps", "daemonsets").generation);
    }
}
