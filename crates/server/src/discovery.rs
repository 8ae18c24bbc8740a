//! What is served, for clients that ask first: plain discovery (W29), OpenAPI v3 (W30), version.

use masthead_core::Status;
use serde_json::{Value, json};

use crate::catalog::Kinds;
use crate::resources::Kind;

/// The version of Kubernetes whose API this is.
const KUBERNETES: (&str, &str) = ("1", "37");

/// `/version`.
pub(crate) fn version() -> Value {
    let (major, minor) = KUBERNETES;
    let own = env!("CARGO_PKG_VERSION");
    json!({
        "major": major, "minor": minor, "gitVersion": format!("v{major}.{minor}.0+masthead.{own}"),
        "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// `/api`.
pub(crate) fn legacy_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`.
pub(crate) fn groups(kinds: &Kinds) -> Value {
    let groups = kinds.groups();
    let named = groups.iter().filter(|(name, _)| !name.is_empty());
    let groups: Vec<_> = named.map(|(name, versions)| group_of(name, versions)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/{group}`.
pub(crate) fn group(kinds: &Kinds, wanted: &str) -> Result<Value, Status> {
    let groups = kinds.groups();
    let found = groups.iter().find(|(name, _)| *name == wanted && !name.is_empty());
    let (name, versions) = found.ok_or_else(Status::no_such_path)?;
    let mut group = group_of(name, versions);
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    Ok(group)
}

fn group_of(name: &str, versions: &[&str]) -> Value {
    let version = |it: &str| json!({"groupVersion": format!("{name}/{it}"), "version": it});
    let all: Vec<_> = versions.iter().map(|it| version(it)).collect();
    let preferred = all.first().cloned().unwrap_or_default();
    json!({"name": name, "versions": all, "preferredVersion": preferred})
}

/// `/api/v1` and `/apis/{group}/{version}`.
pub(crate) fn resources(kinds: &Kinds, group: &str, version: &str) -> Result<Value, Status> {
    let resources: Vec<_> = kinds.of(group, version).flat_map(|kind| entries(kind)).collect();
    if resources.is_empty() {
        return Err(Status::no_such_path());
    }
    let name = group_version(group, version);
    Ok(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name,
        "resources": resources,
    }))
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// A resource and its subresources.
fn entries(kind: &Kind) -> Vec<Value> {
    let resource = &kind.resource;
    let (plural, namespaced) = (resource.plural(), kind.namespaced());
    let mut main = json!({
        "name": plural, "singularName": kind.singular, "namespaced": namespaced,
        "kind": resource.kind(),
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    });
    if !kind.short_names.is_empty() {
        main["shortNames"] = kind.short_names.clone().into();
    }
    if !kind.categories.is_empty() {
        main["categories"] = kind.categories.clone().into();
    }
    let part = |name: &str, of: &str| {
        json!({
            "name": format!("{plural}/{name}"), "singularName": "", "namespaced": namespaced,
            "kind": of, "verbs": ["get", "patch", "update"],
        })
    };
    let mut entries = vec![main];
    if kind.scale.is_some() {
        let mut scale = part("scale", "Scale");
        scale["group"] = "autoscaling".into();
        scale["version"] = "v1".into();
        entries.push(scale);
    }
    if kind.status {
        entries.push(part("status", resource.kind()));
    }
    if kind.is("", "namespaces") {
        let mut finalize = part("finalize", resource.kind());
        finalize["verbs"] = json!(["update"]);
        entries.push(finalize);
    }
    entries
}

fn document_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// `/openapi/v3`: where the document of each group and version is.
pub(crate) fn openapi_index(kinds: &Kinds) -> Value {
    let groups = kinds.groups();
    let all = groups.iter().flat_map(|(group, versions)| {
        versions.iter().map(move |version| document_path(group, version))
    });
    let paths: serde_json::Map<_, _> = all
        .map(|path| {
            let url = format!("/openapi/v3/{path}");
            (path, json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

/// `/openapi/v3/{path}`: operations with the parameters that clients look for. The schemas say that
/// everything is allowed: types are checked by those who have them.
pub(crate) fn openapi_document(kinds: &Kinds, path: &str) -> Result<Value, Status> {
    let mut paths = serde_json::Map::new();
    let mut schemas = serde_json::Map::new();
    for kind in kinds.iter() {
        let resource = &kind.resource;
        let (group, version) = (resource.group(), resource.version());
        if document_path(group, version) != path {
            continue;
        }
        let place = if kind.namespaced() { "/namespaces/{namespace}" } else { "" };
        let collection = format!("/{path}{place}/{}", resource.plural());
        let type_of = json!({"group": group, "version": version, "kind": resource.kind()});
        let schema = format!("{group}.{version}.{}", resource.kind());
        let schema = schema.trim_start_matches('.').to_owned();
        paths.insert(collection.clone(), operations(&type_of, &schema, &["get", "post", "delete"]));
        let item = format!("{collection}/{{name}}");
        paths.insert(item, operations(&type_of, &schema, &["get", "put", "patch", "delete"]));
        schemas.insert(
            schema,
            json!({
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "x-kubernetes-group-version-kind": [type_of],
            }),
        );
    }
    if paths.is_empty() {
        return Err(Status::no_such_path());
    }
    Ok(json!({
        "openapi": "3.0.0",
        "info": {"title": "Masthead", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "components": {"schemas": schemas},
    }))
}

fn operations(type_of: &Value, schema: &str, methods: &[&str]) -> Value {
    let text = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let mut operations = serde_json::Map::new();
    for method in methods {
        let writes = matches!(*method, "post" | "put" | "patch");
        let names = ["dryRun", "fieldManager", "fieldValidation"];
        let parameters: Vec<_> = names.iter().filter(|_| writes).map(|it| text(it)).collect();
        let content = json!({"application/json": {
            "schema": {"$ref": format!("#/components/schemas/{schema}")}}});
        operations.insert(
            (*method).to_owned(),
            json!({
                "parameters": parameters,
                "responses": {"200": {"description": "OK", "content": content}},
                "x-kubernetes-action": method,
                "x-kubernetes-group-version-kind": type_of,
            }),
        );
    }
    Value::Object(operations)
}
