//! Paths and what they name.

use super::*;
use crate::catalog::Catalog;

fn read(path: &str) -> Result<String, u16> {
    let kinds = Catalog::new().now();
    let route = Route::parse(path, &kinds).map_err(|status| status.code())?;
    Ok(match route {
        Route::Resource(it) => {
            let sub = it.subresource.map_or("", Subresource::as_str);
            let watch = if it.watch_path { " watch" } else { "" };
            format!("{} {:?} {:?} {sub:?}{watch}", it.kind.resource, it.namespace, it.name)
        }
        other => format!("{other:?}"),
    })
}

#[test]
fn w1_paths_name_collections_objects_and_subresources() {
    let table = [
        ("/api/v1/pods", r#"pods "" "" """#),
        ("/api/v1/pods/", r#"pods "" "" """#),
        ("/api/v1/namespaces/shop/pods", r#"pods "shop" "" """#),
        ("/api/v1/namespaces/shop/pods/web", r#"pods "shop" "web" """#),
        ("/api/v1/namespaces/shop/pods/web/status", r#"pods "shop" "web" "status""#),
        ("/api/v1/namespaces", r#"namespaces "" "" """#),
        ("/api/v1/namespaces/shop", r#"namespaces "" "shop" """#),
        ("/api/v1/namespaces/shop/status", r#"namespaces "" "shop" "status""#),
        ("/api/v1/namespaces/shop/finalize", r#"namespaces "" "shop" "finalize""#),
        ("/apis/apps/v1/namespaces/a/deployments/b/scale", r#"deployments.apps "a" "b" "scale""#),
        ("/api/v1/watch/pods", r#"pods "" "" "" watch"#),
        ("/api/v1/watch/namespaces/shop/pods/web", r#"pods "shop" "web" "" watch"#),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
            r#"clusterroles.rbac.authorization.k8s.io "" "system:node" """#,
        ),
    ];
    for (path, expected) in table {
        assert_eq!(read(path).as_deref(), Ok(expected), "{path}");
    }
}

#[test]
fn paths_that_could_mean_two_things_are_refused() {
    for path in [
        "/api/v1/namespaces/a/../b/pods",
        "/api/v1/namespaces/a/%2e%2e/pods",
        "/api/v1//pods",
        "//api/v1/pods",
        "/api/v1/namespaces/a%2fpods",
        "/api/v1/namespaces/%ff/pods",
        "/api/v1/namespaces/a%00/pods",
        "api/v1",
    ] {
        assert_eq!(read(path), Err(400), "{path}");
    }
}

#[test]
fn what_is_not_served_or_in_the_wrong_scope_is_not_found() {
    for path in [
        "/",
        "/foo",
        "/api/v2/pods",
        "/api/v1/podz",
        "/api/v1/pods/web",
        "/api/v1/namespaces/shop/nodes",
        "/api/v1/namespaces/shop/nodes/a",
        "/api/v1/namespaces/shop/configmaps/a/status",
        "/api/v1/namespaces/shop/pods/web/exec",
        "/api/v1/namespaces/shop/pods/web/status/more",
        "/api/v1/watch",
    ] {
        assert_eq!(read(path), Err(404), "{path}");
    }
}

#[test]
fn methods_become_verbs_only_where_they_have_a_meaning() {
    let kinds = Catalog::new().now();
    let verb = |method: Method, path: &str, query: &str| match Route::parse(path, &kinds) {
        Ok(Route::Resource(target)) => target.verb(&method, query).map(Verb::as_str),
        other => panic!("{path}: {other:?}"),
    };
    let (all, some) = ("/api/v1/pods", "/api/v1/namespaces/a/pods");
    let (one, status) = ("/api/v1/namespaces/a/pods/b", "/api/v1/namespaces/a/pods/b/status");
    assert_eq!(verb(Method::GET, all, ""), Some("list"));
    assert_eq!(verb(Method::GET, all, "watch=1"), Some("watch"));
    assert_eq!(verb(Method::GET, "/api/v1/watch/pods", ""), Some("watch"));
    assert_eq!(verb(Method::GET, one, ""), Some("get"));
    assert_eq!(verb(Method::GET, one, "watch=true"), Some("watch"));
    assert_eq!(verb(Method::POST, some, ""), Some("create"));
    assert_eq!(verb(Method::POST, all, ""), None, "an object needs a namespace");
    assert_eq!(verb(Method::POST, one, ""), None);
    assert_eq!(verb(Method::DELETE, some, ""), Some("deletecollection"));
    assert_eq!(verb(Method::DELETE, status, ""), None);
    assert_eq!(verb(Method::PUT, status, ""), Some("update"));
    assert_eq!(verb(Method::TRACE, one, ""), None);
    assert_eq!(verb(Method::DELETE, "/api/v1/watch/pods", ""), None);
}
