//! W39: CustomResourceDefinitions.

use serde_json::{Value, json};

use crate::rules;
use crate::world::{names, version};

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const SAILS: &str = "/apis/ship.example/v1/namespaces/shop/sails";

pub(crate) fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "sails.ship.example"},
        "spec": {
            "group": "ship.example", "scope": "Namespaced",
            "names": {"plural": "sails", "singular": "sail", "kind": "Sail", "shortNames": ["sl"]},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}},
                "selectableFields": [{"jsonPath": ".spec.colour"}],
                "subresources": {"status": {}}}],
        },
    })
}

pub(crate) fn sail(name: &str, colour: &str) -> Value {
    json!({"apiVersion": "ship.example/v1", "kind": "Sail", "metadata": {"name": name},
        "spec": {"colour": colour}})
}

rules! {
    async fn w39_a_definition_is_served_at_once_with_discovery_and_status(world) {
        world.get(SAILS).await.fails(404, "NotFound");
        let made = world.post(DEFINITIONS, &definition()).await.ok();
        let established = made["status"]["conditions"].as_array().unwrap().iter()
            .any(|it| it["type"] == "Established" && it["status"] == "True");
        assert!(established, "{made}");
        let list = world.get("/apis/ship.example/v1").await.ok();
        assert_eq!(list["resources"][0]["shortNames"], json!(["sl"]));
        assert_eq!(list["resources"][1]["name"], "sails/status");
        let red = world.post(SAILS, &sail("main", "red")).await.ok();
        assert_eq!(red["metadata"]["generation"], 1);
        world.post(SAILS, &sail("jib", "white")).await.ok();
        let path = format!("{SAILS}?fieldSelector=spec.colour%3Dred");
        assert_eq!(names(&world.get(&path).await.ok()), ["main"]);
        let status = json!({"status": {"set": true}});
        let put = world.patch(&format!("{SAILS}/main/status"), "merge-patch", &status).await.ok();
        assert_eq!((&put["status"]["set"], &put["metadata"]["generation"]), (&json!(true), &json!(1)));
    }

    async fn w32c_a_put_of_a_custom_resource_must_name_a_version(world) {
        world.post(DEFINITIONS, &definition()).await.ok();
        let made = world.post(SAILS, &sail("main", "red")).await.ok();
        let item = format!("{SAILS}/main");
        world.put(&item, &sail("main", "blue")).await.fails(422, "Invalid");
        let mut changed = made.clone();
        changed["spec"]["colour"] = "blue".into();
        let put = world.put(&item, &changed).await.ok();
        assert_eq!(put["metadata"]["generation"], 2);
        assert!(version(&put) > version(&made));
    }

    async fn w39_deleting_a_definition_ends_its_watches_and_removes_its_objects(world) {
        world.post(DEFINITIONS, &definition()).await.ok();
        world.post(SAILS, &sail("main", "red")).await.ok();
        let mut sails = world.watch("/apis/ship.example/v1/sails?watch=true").await;
        assert!(sails.short().await.starts_with("ADDED main@"));
        let now = world.revision().await;
        let mut definitions =
            world.watch(&format!("{DEFINITIONS}?watch=true&resourceVersion={now}")).await;
        world.delete(&format!("{DEFINITIONS}/sails.ship.example")).await.ok();
        assert!(sails.short().await.starts_with("DELETED main@"));
        while let Some(event) = definitions.next().await {
            if event["type"] == "DELETED" {
                break;
            }
        }
        while sails.next().await.is_some() {}
        world.get(SAILS).await.fails(404, "NotFound");
        world.post(DEFINITIONS, &definition()).await.ok();
        assert!(names(&world.get(SAILS).await.ok()).is_empty(), "the old objects are gone");
    }

    async fn a_definition_that_is_not_whole_is_refused(world) {
        let mut nameless = definition();
        nameless["metadata"]["name"] = "x".into();
        world.post(DEFINITIONS, &nameless).await.fails(422, "Invalid");
    }
}
