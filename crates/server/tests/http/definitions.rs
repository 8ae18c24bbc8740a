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

const SAILS_V2: &str = "/apis/ship.example/v2/namespaces/shop/sails";

/// The definition with `v1` and `v2`, of which the second is stored.
fn upgraded(made: &Value) -> Value {
    let mut upgraded = made.clone();
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object"}},
            "selectableFields": [{"jsonPath": ".spec.colour"}],
            "subresources": {"status": {}}})
    };
    upgraded["spec"]["versions"] = json!([version("v1", false), version("v2", true)]);
    upgraded
}

const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/sails.ship.example";

rules! {
    async fn w39_clients_cannot_take_a_definition_from_under_its_objects(world) {
        let held = ["customresourcecleanup.apiextensions.k8s.io"];
        let made = world.post(DEFINITIONS, &definition()).await.ok();
        assert_eq!(made["metadata"]["finalizers"], json!(held));
        let mut bare = made.clone();
        bare["metadata"]["finalizers"] = json!([]);
        let kept = world.put(DEFINITION, &bare).await.ok();
        assert_eq!(kept["metadata"]["finalizers"], json!(held));
        let mut sail = sail("held", "red");
        sail["metadata"]["finalizers"] = json!(["x.io/hold"]);
        world.post(SAILS, &sail).await.ok();
        world.delete(DEFINITION).await.ok();
        let no_finalizers = json!({"metadata": {"finalizers": null}});
        let kept = world.patch(DEFINITION, "merge-patch", &no_finalizers).await.ok();
        assert_eq!(kept["metadata"]["finalizers"], json!(held));
        world.post(DEFINITIONS, &definition()).await.fails(409, "AlreadyExists");
        let object = format!("{SAILS}/held");
        world.patch(&object, "merge-patch", &no_finalizers).await.ok();
        world.until(DEFINITION, |answer| answer.code == 404).await;
        world.post(DEFINITIONS, &definition()).await.ok();
        assert!(names(&world.get(SAILS).await.ok()).is_empty());
    }

    /// S5: a change of the stored version loses nothing, in either version.
    async fn w39_objects_are_found_whatever_version_they_were_stored_in(world) {
        let made = world.post(DEFINITIONS, &definition()).await.ok();
        for name in ["main", "jib", "held"] {
            let mut sail = sail(name, "red");
            if name == "held" {
                sail["metadata"]["finalizers"] = json!(["x.io/hold"]);
            }
            world.post(SAILS, &sail).await.ok();
        }
        let before = version(&world.get(SAILS).await.ok());
        let mut following =
            world.watch(&format!("{SAILS}?watch=true&resourceVersion={before}")).await;
        let put = world.put(DEFINITION, &upgraded(&made)).await.ok();
        assert_eq!(put["status"]["storedVersions"], json!(["v1", "v2"]));
        for (path, version) in [(SAILS, "ship.example/v1"), (SAILS_V2, "ship.example/v2")] {
            let list = world.get(path).await.ok();
            assert_eq!(names(&list), ["held", "jib", "main"], "{path}");
            assert!(list["items"].as_array().unwrap().iter().all(|it| it["apiVersion"] == version));
        }
        world.post(SAILS_V2, &json!({"metadata": {"name": "main"}})).await.fails(409, "AlreadyExists");
        let mut main = world.get(&format!("{SAILS_V2}/main")).await.ok();
        main["spec"]["colour"] = "blue".into();
        world.put(&format!("{SAILS_V2}/main"), &main).await.ok();
        let shown = world.get(&format!("{SAILS}/main?resourceVersion=")).await.ok();
        assert_eq!((&shown["apiVersion"], &shown["spec"]["colour"]),
            (&json!("ship.example/v1"), &json!("blue")));
        assert!(following.short().await.starts_with("MODIFIED main@"));
        world.delete(&format!("{SAILS}/jib")).await.ok();
        assert!(following.short().await.starts_with("DELETED jib@"));
        world.get(&format!("{SAILS_V2}/jib")).await.fails(404, "NotFound");
        let resumed = format!("{SAILS}?watch=true&resourceVersion={before}");
        assert!(world.watch(&resumed).await.short().await.starts_with("MODIFIED main@"));
    }

    async fn w39_a_deleted_definition_takes_the_objects_of_all_versions_with_it(world) {
        let made = world.post(DEFINITIONS, &definition()).await.ok();
        world.post(SAILS, &sail("main", "red")).await.ok();
        world.put(DEFINITION, &upgraded(&made)).await.ok();
        world.post(SAILS_V2, &json!({"metadata": {"name": "jib"}})).await.ok();
        world.delete(DEFINITION).await.ok();
        world.until(DEFINITION, |answer| answer.code == 404).await;
        world.post(DEFINITIONS, &definition()).await.ok();
        assert_eq!(names(&world.get(SAILS).await.ok()), [""; 0], "nothing comes back");
    }

    async fn w39_where_objects_are_stored_cannot_be_changed(world) {
        let made = world.post(DEFINITIONS, &definition()).await.ok();
        let changes = [
            ("/spec/scope", json!("Cluster")),
            ("/spec/names/kind", json!("Mast")),
            ("/spec/versions/0/name", json!("v9")),
        ];
        for (path, value) in changes {
            let mut other = made.clone();
            *other.pointer_mut(path).unwrap() = value;
            world.put(DEFINITION, &other).await.fails(422, "Invalid");
        }
        let mut status = made.clone();
        status["status"]["storedVersions"] = json!([]);
        world.put(&format!("{DEFINITION}/status"), &status).await.fails(422, "Invalid");
        assert_eq!(world.get(DEFINITION).await.ok()["spec"], made["spec"]);
    }

    /// G4 for definitions: what is created while one goes is refused, or goes with it.
    async fn g4_w39_no_object_survives_its_definition_however_many_are_created_meanwhile(world) {
        for round in 0..3 {
            world.post(DEFINITIONS, &definition()).await.ok();
            let creating = async {
                for number in 0.. {
                    let answer = world.post(SAILS, &sail(&format!("n{round}-{number}"), "red")).await;
                    match answer.code {
                        201 => {}
                        // Terminating, then gone.
                        405 | 404 => return,
                        code => panic!("{code}: {}", answer.text()),
                    }
                }
            };
            let deleting = async {
                world.until(SAILS, |answer| !names(&answer.json()).is_empty()).await;
                world.delete(DEFINITION).await.ok();
                world.post(SAILS, &sail("late", "red")).await.code
            };
            let ((), (), late) = tokio::join!(creating, creating_more(world, round), deleting);
            assert!(matches!(late, 404 | 405), "{late}");
            world.until(DEFINITION, |answer| answer.code == 404).await;
            world.post(DEFINITIONS, &definition()).await.ok();
            assert_eq!(names(&world.get(SAILS).await.ok()), [""; 0]);
            world.delete(DEFINITION).await.ok();
            world.until(DEFINITION, |answer| answer.code == 404).await;
        }
    }

    async fn w39_a_definition_that_cannot_be_served_is_refused(world) {
        for (path, value) in [
            ("/spec/names/plural", json!("Sails")),
            ("/spec/names/shortNames", json!(["a b"])),
            ("/spec/versions/0/name", json!("../v1")),
            ("/spec/versions/0/storage", json!(false)),
        ] {
            let mut wrong = definition();
            *wrong.pointer_mut(path).unwrap() = value;
            world.post(DEFINITIONS, &wrong).await.fails(422, "Invalid");
        }
    }

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

/// Creates objects until that is refused.
async fn creating_more(world: &crate::world::World, round: usize) {
    let mut number = 0;
    while world.post(SAILS, &sail(&format!("m{round}-{number}"), "red")).await.code == 201 {
        number += 1;
    }
}
