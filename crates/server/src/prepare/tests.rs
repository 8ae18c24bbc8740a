//! What a write makes of an object, without a server.

use serde_json::json;

use super::*;
use crate::catalog::Catalog;

fn kind(group: &str, plural: &str) -> Kind {
    let kinds = Catalog::new().now();
    kinds.stored(group, plural).map(|it| Kind::clone(it)).expect("is built in")
}

fn members(value: Value) -> Members {
    match value {
        Value::Object(members) => members,
        _ => panic!("not an object"),
    }
}

fn stamp() -> Stamp {
    Stamp { now: "2030-01-01T00:00:00Z".to_owned(), uid: "u-1".to_owned() }
}

fn stored(kind: &Kind, value: Value) -> Members {
    let mut object = create(kind, members(value), &stamp()).expect("is well formed");
    metadata_mut(&mut object).expect("has some").insert("resourceVersion".to_owned(), "7".into());
    object
}

fn changed(outcome: Result<Outcome, Status>) -> Members {
    match outcome {
        Ok(Outcome::Put(members)) => members,
        other => panic!("{other:?}"),
    }
}

#[test]
fn w32_what_clients_say_about_the_servers_own_fields_is_dropped() {
    let body = json!({"metadata": {"name": "a", "uid": "mine", "generation": 9, "selfLink": "/x",
        "creationTimestamp": "1999-01-01T00:00:00Z", "deletionTimestamp": "1999-01-01T00:00:00Z"}});
    let made = stored(&kind("apps", "deployments"), body);
    let expected = json!({"name": "a", "uid": "u-1", "resourceVersion": "7", "generation": 1,
        "creationTimestamp": "2030-01-01T00:00:00Z"});
    assert_eq!(made["metadata"], expected);
}

#[test]
fn w22_the_times_of_field_managers_are_no_change() {
    let maps = kind("", "configmaps");
    let body = |time: &str| {
        json!({"metadata": {"name": "a", "namespace": "n",
        "managedFields": [{"manager": "x", "operation": "Update", "time": time}]}})
    };
    let old = stored(&maps, body("2030-01-01T00:00:00Z"));
    let again = update(&maps, &old, members(body("2031-01-01T00:00:00Z")), &stamp());
    assert_eq!(again.expect("is well formed"), Outcome::Unchanged);
    let mut other = members(body("2031-01-01T00:00:00Z"));
    other["metadata"]["managedFields"][0]["manager"] = "y".into();
    assert!(matches!(update(&maps, &old, other, &stamp()), Ok(Outcome::Put(_))));
}

#[test]
fn w32_the_generation_counts_the_specification_only() {
    let kind = kind("apps", "deployments");
    let old = stored(&kind, json!({"metadata": {"name": "a"}, "spec": {"replicas": 1}}));
    let mut new = old.clone();
    new["spec"]["replicas"] = 2.into();
    let put = changed(update(&kind, &old, new.clone(), &stamp()));
    assert_eq!(put["metadata"]["generation"], 2);
    new = old.clone();
    new["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(changed(update(&kind, &old, new, &stamp()))["metadata"]["generation"], 1);
    let mut with_status = members(json!({"metadata": {"name": "a"}, "status": {"replicas": 1}}));
    let status = changed(update_status(&kind, &old, &mut with_status));
    assert_eq!(status["metadata"]["generation"], 1);
}

#[test]
fn w35_a_delete_waits_for_finalizers_and_then_happens() {
    let maps = kind("", "configmaps");
    let free = stored(&maps, json!({"metadata": {"name": "a"}}));
    assert_eq!(delete(&maps, &free, &stamp()).expect("can go"), Outcome::Delete);
    let held = stored(&maps, json!({"metadata": {"name": "a", "finalizers": ["x.io/y"]}}));
    let going = changed(delete(&maps, &held, &stamp()));
    assert_eq!(going["metadata"]["deletionTimestamp"], "2030-01-01T00:00:00Z");
    assert_eq!(delete(&maps, &going, &stamp()).expect("is going"), Outcome::Unchanged);
    let mut released = going.clone();
    released["metadata"]["finalizers"] = json!([]);
    assert_eq!(update(&maps, &going, released, &stamp()).expect("goes"), Outcome::Delete);
}

#[test]
fn w35_a_namespace_goes_when_it_is_finalized() {
    let namespaces = kind("", "namespaces");
    let made = stored(&namespaces, json!({"metadata": {"name": "shop"}}));
    assert_eq!(made["metadata"]["labels"]["kubernetes.io/metadata.name"], "shop");
    let going = changed(delete(&namespaces, &made, &stamp()));
    assert_eq!(going["status"]["phase"], "Terminating");
    let mut sneaky = going.clone();
    sneaky["spec"]["finalizers"] = json!([]);
    let update = update(&namespaces, &going, sneaky.clone(), &stamp());
    assert_eq!(update.expect("is well formed"), Outcome::Unchanged, "only finalize may");
    assert_eq!(finalize(&namespaces, &going, &sneaky).expect("goes"), Outcome::Delete);
}

#[test]
fn w33_a_stale_version_or_another_uid_is_a_conflict() {
    let maps = kind("", "configmaps");
    let old = stored(&maps, json!({"metadata": {"name": "a"}}));
    for meta in [json!({"name": "a", "resourceVersion": "6"}), json!({"name": "a", "uid": "u-2"})] {
        let refused = update(&maps, &old, members(json!({"metadata": meta})), &stamp());
        assert_eq!(refused.expect_err("is stale").code(), 409);
    }
}
