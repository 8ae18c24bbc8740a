//! What to do about a resource that cannot be followed.

use masthead_core::{Resource, Scope};
use masthead_reflector::Class;

/// A sentence for people. For a refusal it names the right that is missing, as an RBAC rule.
pub(crate) fn advice(resource: &Resource, namespace: Option<&str>, class: Class) -> String {
    match class {
        Class::Forbidden => missing(resource, namespace),
        other => other.advice().to_owned(),
    }
}

fn missing(resource: &Resource, namespace: Option<&str>) -> String {
    let (group, plural) = (resource.group(), resource.plural());
    let (place, role) = match (resource.scope(), namespace) {
        (Scope::Namespaced, Some(name)) => (format!("in namespace {name:?}"), "Role"),
        (Scope::Namespaced, None) => ("in all namespaces".to_owned(), "ClusterRole"),
        (Scope::Cluster, _) => ("at the cluster scope".to_owned(), "ClusterRole"),
    };
    format!(
        "Grant the verbs list and watch on {resource} {place} to the account that asks: a {role} with \
         {{apiGroups: [{group:?}], resources: [{plural:?}], verbs: [list, watch]}} and a {role}Binding."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_verbs_resource_group_and_place() {
        let sets = Resource::new("apps", "v1", "deployments", "Deployment", Scope::Namespaced);
        let text = advice(&sets, Some("shop"), Class::Forbidden);
        assert_eq!(
            text,
            "Grant the verbs list and watch on deployments.apps in namespace \"shop\" to the account \
             that asks: a Role with {apiGroups: [\"apps\"], resources: [\"deployments\"], verbs: \
             [list, watch]} and a RoleBinding."
        );
        let text = advice(&Resource::pods(), None, Class::Forbidden);
        assert!(
            text.contains("on pods in all namespaces") && text.contains("a ClusterRoleBinding")
        );
        assert_eq!(advice(&sets, None, Class::Tls), Class::Tls.advice());
    }
}
