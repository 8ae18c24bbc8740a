//! W32–W38: writes.

use http::Method;
use serde_json::{Value, json};

use crate::rules;
use crate::world::{MAPS, PODS, names, pod, version};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";

fn deployment(replicas: u32) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}}})
}

rules! {
    async fn w32a_metadata_and_options_of_the_wrong_type_are_refused_and_nothing_is_lost(world) {
        let first = world.post(MAPS, &json!({"metadata": {"name": "a"}, "data": {"v": "1"}})).await.ok();
        let item = format!("{MAPS}/a");
        let newest = world.put(&item, &json!({"metadata": {"name": "a"}, "data": {"v": "2"}})).await.ok();
        let stale: u64 = version(&first);
        let body = json!({"metadata": {"name": "a", "resourceVersion": stale}, "data": {"v": "old"}});
        world.put(&item, &body).await.fails(400, "BadRequest");
        let patch = json!({"metadata": {"resourceVersion": stale}, "data": {"v": "old"}});
        world.patch(&item, "merge-patch", &patch).await.fails(400, "BadRequest");
        for options in [
            json!({"preconditions": {"resourceVersion": stale}}),
            json!({"preconditions": "x"}),
            json!({"dryRun": "All"}),
        ] {
            let answer = world.ask(http::Method::DELETE, &item, &[("content-type", "application/json")], options.to_string()).await;
            answer.fails(400, "BadRequest");
        }
        assert_eq!(world.get(&item).await.ok(), newest, "nothing of that was done");
        for metadata in [
            json!({"name": "b", "managedFields": "x"}),
            json!({"name": "b", "labels": {"a": 1}}),
            json!({"name": "b", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p",
                "uid": "u", "controller": "yes"}]}),
        ] {
            world.post(MAPS, &json!({"metadata": metadata})).await.fails(400, "BadRequest");
        }
        for metadata in [
            json!({"name": "b", "finalizers": [""]}),
            json!({"name": "b", "managedFields": [{"operation": "Guess"}]}),
        ] {
            world.post(MAPS, &json!({"metadata": metadata})).await.fails(422, "Invalid");
        }
        world.get(&format!("{MAPS}/b")).await.fails(404, "NotFound");
    }

    async fn w35_namespaces_that_every_cluster_has_cannot_be_deleted(world) {
        for name in ["default", "kube-system", "kube-public"] {
            let path = format!("/api/v1/namespaces/{name}");
            world.delete(&path).await.fails(403, "Forbidden");
            assert_eq!(world.get(&path).await.ok()["status"]["phase"], "Active");
        }
    }

    async fn w32_the_server_gives_uid_time_generation_and_version(world) {
        let answer = world.post(DEPLOYMENTS, &deployment(1)).await;
        assert_eq!(answer.code, 201);
        let made = answer.json();
        let meta = &made["metadata"];
        let uid = meta["uid"].as_str().unwrap();
        assert_eq!((uid.len(), &uid[14..15]), (36, "4"), "a uuid of version 4");
        let time = meta["creationTimestamp"].as_str().unwrap();
        assert_eq!((time.len(), &time[19..]), (20, "Z"), "whole seconds");
        assert_eq!(meta["generation"], 1);
        let item = format!("{DEPLOYMENTS}/web");
        let changed = world.put(&item, &deployment(2)).await.ok();
        assert_eq!(changed["metadata"]["generation"], 2, "the specification changed");
        assert_eq!((&changed["metadata"]["uid"], version(&changed) > version(&made)), (&meta["uid"], true));
        let labelled = json!({"metadata": {"labels": {"a": "b"}}});
        let labelled = world.patch(&item, "merge-patch", &labelled).await.ok();
        assert_eq!(labelled["metadata"]["generation"], 2, "labels are no specification");
        let got = world.get(&item).await.ok();
        assert_eq!(got, labelled, "what was answered is what is stored");
    }

    async fn w32a_bodies_are_stored_in_one_form(world) {
        let body = json!({"data": {"k": "v"}, "kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"creationTimestamp": null, "name": "a", "annotations": null}});
        let made = world.post(MAPS, &body).await;
        assert!(made.text().starts_with(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a""#));
        assert!(!made.text().contains("null") && !made.text().contains("generation"), "{}", made.text());
        let secret = json!({"metadata": {"name": "s"}});
        let secret = world.post("/api/v1/namespaces/shop/secrets", &secret).await.ok();
        assert!(secret["metadata"].get("generation").is_none());
    }

    async fn w32a_a_write_to_the_object_never_changes_its_status(world) {
        let mut given = pod("p", &json!({}));
        given["status"] = json!({"phase": "Running"});
        let made = world.post(PODS, &given).await.ok();
        assert_eq!(made["status"]["phase"], "Pending");
        let mut changed = made.clone();
        changed["status"]["phase"] = "Failed".into();
        changed["spec"]["priority"] = 5.into();
        let put = world.put(&format!("{PODS}/p"), &changed).await.ok();
        assert_eq!((&put["status"]["phase"], &put["spec"]["priority"]), (&json!("Pending"), &json!(5)));
    }

    async fn w32b_pods_have_the_defaults_that_selectors_see_and_go_at_once(world) {
        let made = world.post(PODS, &pod("p", &json!({}))).await.ok();
        assert_eq!(made["spec"]["restartPolicy"], "Always");
        assert_eq!(made["spec"]["schedulerName"], "default-scheduler");
        world.delete(&format!("{PODS}/p")).await.ok();
        world.get(&format!("{PODS}/p")).await.fails(404, "NotFound");
    }

    async fn w32b_a_namespace_must_be_there_and_stay(world) {
        let path = "/api/v1/namespaces/nowhere/configmaps";
        let status = world.post(path, &json!({"metadata": {"name": "a"}})).await.fails(404, "NotFound");
        assert_eq!(status["details"]["kind"], "namespaces");
        let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
        world.post(MAPS, &held).await.ok();
        world.delete("/api/v1/namespaces/shop").await.ok();
        world.post(MAPS, &json!({"metadata": {"name": "late"}})).await.fails(403, "Forbidden");
    }

    async fn w32c_a_put_without_a_version_is_unconditional(world) {
        world.set("a", "1").await;
        let body = json!({"metadata": {"name": "a"}, "data": {"value": "2"}});
        assert_eq!(world.put(&format!("{MAPS}/a"), &body).await.ok()["data"]["value"], "2");
    }

    async fn w33_a_stale_version_is_a_conflict(world) {
        let old = world.set("a", "1").await;
        world.set("a", "2").await;
        let status = world.put(&format!("{MAPS}/a"), &old).await.fails(409, "Conflict");
        let text = "the object has been modified; please apply your changes to the latest version and try again";
        assert!(status["message"].as_str().unwrap().contains(text));
        assert_eq!((&status["details"]["name"], &status["details"]["kind"]), (&json!("a"), &json!("configmaps")));
    }

    async fn w33_a_taken_name_and_a_missing_object_are_told_apart(world) {
        world.set("a", "1").await;
        let taken = world.post(MAPS, &json!({"metadata": {"name": "a"}})).await.fails(409, "AlreadyExists");
        assert_eq!(taken["message"], "configmaps \"a\" already exists");
        for answer in [
            world.get(&format!("{MAPS}/b")).await,
            world.delete(&format!("{MAPS}/b")).await,
            world.put(&format!("{MAPS}/b"), &json!({"metadata": {"name": "b"}})).await,
            world.patch(&format!("{MAPS}/b"), "merge-patch", &json!({})).await,
        ] {
            let status = answer.fails(404, "NotFound");
            assert_eq!((&status["message"], &status["details"]["name"]),
                (&json!("configmaps \"b\" not found"), &json!("b")));
        }
    }

    async fn w33_one_of_many_conditional_writers_wins(world) {
        let base = world.set("a", "0").await;
        let path = format!("{MAPS}/a");
        let write = async |value: u32| {
            let mut body = base.clone();
            body["data"]["value"] = value.to_string().into();
            world.put(&path, &body).await.code
        };
        let (a, b, c, d) = tokio::join!(write(1), write(2), write(3), write(4));
        let mut codes = [a, b, c, d];
        codes.sort_unstable();
        assert_eq!(codes, [200, 409, 409, 409]);
    }

    async fn w34_names_are_generated(world) {
        let body = json!({"metadata": {"generateName": "job-"}});
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..5 {
            let made = world.post(MAPS, &body).await.ok();
            let name = made["metadata"]["name"].as_str().unwrap().to_owned();
            assert!(name.starts_with("job-") && name.len() == 9, "{name}");
            assert!(seen.insert(name));
        }
        let long = json!({"metadata": {"generateName": "a".repeat(100)}});
        let made = world.post(MAPS, &long).await.ok();
        assert_eq!(made["metadata"]["name"].as_str().unwrap().len(), 63);
        world.post(MAPS, &json!({"metadata": {}})).await.fails(422, "Invalid");
    }

    async fn w35_finalizers_hold_an_object_until_the_last_is_gone(world) {
        let body = json!({"metadata": {"name": "a", "finalizers": ["x.io/one", "x.io/two"]}});
        let made = world.post(MAPS, &body).await.ok();
        let path = format!("{MAPS}?watch=true&resourceVersion={}", version(&made));
        let mut watch = world.watch(&path).await;
        let item = format!("{MAPS}/a");
        let going = world.delete(&item).await.ok();
        assert!(going["metadata"]["deletionTimestamp"].is_string());
        assert!(watch.short().await.starts_with("MODIFIED a@"));
        assert_eq!(version(&world.delete(&item).await.ok()), version(&going), "again changes nothing");
        let adds = json!({"metadata": {"finalizers": ["x.io/one", "x.io/two", "x.io/new"]}});
        world.patch(&item, "merge-patch", &adds).await.fails(422, "Invalid");
        let first = json!({"metadata": {"finalizers": ["x.io/two"]}});
        world.patch(&item, "merge-patch", &first).await.ok();
        assert!(watch.short().await.starts_with("MODIFIED a@"));
        world.patch(&item, "merge-patch", &json!({"metadata": {"finalizers": null}})).await.ok();
        assert_eq!(watch.short().await, format!("DELETED a@{}", world.revision().await));
        world.get(&item).await.fails(404, "NotFound");
    }

    async fn w35_preconditions_hold_a_delete_to_its_object(world) {
        let made = world.set("a", "1").await;
        let item = format!("{MAPS}/a");
        let delete = async |conditions: Value| {
            let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": conditions});
            world.ask(Method::DELETE, &item, &[], body.to_string()).await
        };
        delete(json!({"uid": "other"})).await.fails(409, "Conflict");
        delete(json!({"resourceVersion": "1"})).await.fails(409, "Conflict");
        let meta = &made["metadata"];
        let right = json!({"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]});
        let status = delete(right).await.ok();
        assert_eq!((&status["status"], &status["details"]["uid"]), (&json!("Success"), &meta["uid"]));
    }

    async fn w35_deletecollection_honours_selectors(world) {
        for (name, app) in [("a", "web"), ("b", "db"), ("c", "web")] {
            let body = json!({"metadata": {"name": name, "labels": {"app": app}}});
            world.post(MAPS, &body).await.ok();
        }
        let deleted = world.delete(&format!("{MAPS}?labelSelector=app%3Dweb")).await.ok();
        assert_eq!((deleted["kind"].as_str(), names(&deleted)), (Some("ConfigMapList"), vec!["a", "c"]));
        assert_eq!(names(&world.get(MAPS).await.ok()), ["b"]);
    }

    async fn w35_deleting_a_namespace_deletes_what_is_in_it(world) {
        world.set("a", "1").await;
        world.post(PODS, &pod("p", &json!({}))).await.ok();
        let now = world.revision().await;
        let path = format!("/api/v1/namespaces?watch=true&resourceVersion={now}");
        let mut watch = world.watch(&path).await;
        let going = world.delete("/api/v1/namespaces/shop").await.ok();
        assert_eq!(going["status"]["phase"], "Terminating");
        assert!(watch.short().await.starts_with("MODIFIED shop@"));
        loop {
            let event = watch.next().await.unwrap();
            if event["type"] == "DELETED" {
                break;
            }
        }
        assert!(names(&world.get("/api/v1/pods").await.ok()).is_empty());
        assert!(names(&world.get("/api/v1/configmaps").await.ok()).is_empty());
    }

    async fn w36_patches_are_applied_and_conflicts_retried(world) {
        world.set("a", "1").await;
        let item = format!("{MAPS}/a");
        let json_patch = json!([{"op": "add", "path": "/data/more", "value": "x"}]);
        assert_eq!(world.patch(&item, "json-patch", &json_patch).await.ok()["data"]["more"], "x");
        let failing = json!([{"op": "test", "path": "/data/more", "value": "y"}]);
        world.patch(&item, "json-patch", &failing).await.fails(422, "Invalid");
        let key = |name: &str| json!({"data": {name: "1"}});
        let (k1, k2, k3) = (key("k1"), key("k2"), key("k3"));
        let patches = tokio::join!(
            world.patch(&item, "merge-patch", &k1),
            world.patch(&item, "merge-patch", &k2),
            world.patch(&item, "merge-patch", &k3),
        );
        for answer in [patches.0, patches.1, patches.2] {
            answer.ok();
        }
        let data = world.get(&item).await.ok()["data"].clone();
        assert_eq!(data, json!({"value": "1", "more": "x", "k1": "1", "k2": "1", "k3": "1"}));
        let stale = json!({"metadata": {"resourceVersion": "1"}});
        world.patch(&item, "merge-patch", &stale).await.fails(409, "Conflict");
        world.patch(&item, "strategic-merge-patch", &json!({})).await.fails(415, "UnsupportedMediaType");
        let renamed = json!({"metadata": {"name": "b"}});
        world.patch(&item, "merge-patch", &renamed).await.fails(400, "BadRequest");
    }

    async fn w37_a_status_write_changes_only_the_status(world) {
        let mut made = world.post(PODS, &pod("p", &json!({}))).await.ok();
        made["status"] = json!({"phase": "Running", "podIP": "10.0.0.1"});
        made["spec"]["nodeName"] = "elsewhere".into();
        made["metadata"]["labels"] = json!({"sneaked": "in"});
        let status = format!("{PODS}/p/status");
        let put = world.put(&status, &made).await.ok();
        assert_eq!(put["status"]["podIP"], "10.0.0.1");
        assert!(put["spec"].get("nodeName").is_none() && put["metadata"]["labels"].get("sneaked").is_none());
        let patch = json!({"status": {"phase": "Failed"}});
        let patched = world.patch(&status, "merge-patch", &patch).await.ok();
        assert_eq!(patched["status"], json!({"phase": "Failed", "podIP": "10.0.0.1"}));
        assert_eq!(world.get(&status).await.ok(), patched);
        world.get(&format!("{MAPS}/a/status")).await.fails(404, "NotFound");
    }

    async fn w37_scale_shows_and_sets_replicas(world) {
        world.post(DEPLOYMENTS, &deployment(2)).await.ok();
        let path = format!("{DEPLOYMENTS}/web/scale");
        let mut scale = world.get(&path).await.ok();
        assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
        assert_eq!((&scale["spec"]["replicas"], &scale["status"]["selector"]), (&json!(2), &json!("app=web")));
        scale["spec"]["replicas"] = 5.into();
        assert_eq!(world.put(&path, &scale).await.ok()["spec"]["replicas"], 5);
        world.put(&path, &scale).await.fails(409, "Conflict");
        let seven = json!({"spec": {"replicas": 7}});
        assert_eq!(world.patch(&path, "merge-patch", &seven).await.ok()["spec"]["replicas"], 7);
        let deployment = world.get(&format!("{DEPLOYMENTS}/web")).await.ok();
        assert_eq!((&deployment["spec"]["replicas"], &deployment["metadata"]["generation"]), (&json!(7), &json!(3)));
    }

    async fn w38_bodies_are_bounded_at_3_mib(world) {
        let body = |bytes: usize| {
            let frame = json!({"metadata": {"name": "big"}, "data": {"k": ""}}).to_string().len();
            json!({"metadata": {"name": "big"}, "data": {"k": "x".repeat(bytes - frame)}})
        };
        let limit = 3 * 1024 * 1024;
        world.post(MAPS, &body(limit + 1)).await.fails(413, "RequestEntityTooLarge");
        let answer = world.post(MAPS, &body(limit)).await;
        if world.name.starts_with("etcd") {
            // etcd takes half of it.
            let status = answer.fails(413, "RequestEntityTooLarge");
            assert!(status["message"].as_str().unwrap().contains("etcd"), "{status}");
        } else {
            assert_eq!(answer.code, 201);
        }
    }

    async fn w38_a_dry_run_answers_and_stores_nothing(world) {
        let before = world.revision().await;
        let body = json!({"metadata": {"name": "a"}, "data": {"value": "1"}});
        let made = world.post(&format!("{MAPS}?dryRun=All"), &body).await;
        assert_eq!(made.code, 201);
        assert!(made.json()["metadata"].get("resourceVersion").is_none());
        assert!(made.json()["metadata"]["uid"].is_string());
        assert_eq!(world.revision().await, before);
        world.set("a", "1").await;
        world.post(&format!("{MAPS}?dryRun=All"), &body).await.fails(409, "AlreadyExists");
        let before = world.revision().await;
        let item = format!("{MAPS}/a");
        let put = json!({"metadata": {"name": "a"}, "data": {"value": "9"}});
        assert_eq!(world.put(&format!("{item}?dryRun=All"), &put).await.ok()["data"]["value"], "9");
        world.delete(&format!("{item}?dryRun=All")).await.ok();
        assert_eq!(world.revision().await, before);
        world.post(&format!("{MAPS}?dryRun=Some"), &body).await.fails(422, "Invalid");
    }

    async fn w38_members_that_stand_twice_are_refused_warned_about_or_ignored(world) {
        let body = r#"{"metadata":{"name":"NAME"},"data":{"a":"1","a":"2"}}"#;
        let post = async |name: &str, validation: &str| {
            let path = format!("{MAPS}?fieldValidation={validation}");
            world.ask(Method::POST, &path, &[], body.replace("NAME", name)).await
        };
        let refused = post("strict", "Strict").await.fails(400, "BadRequest");
        assert!(refused["message"].as_str().unwrap().contains("duplicate field \"data.a\""));
        let warned = post("warn", "Warn").await;
        assert!(warned.header("warning").contains("duplicate field"), "{:?}", warned.headers);
        assert_eq!(warned.ok()["data"]["a"], "2", "the last one counts");
        let ignored = post("ignore", "Ignore").await;
        assert_eq!(ignored.header("warning"), "");
        post("other", "Other").await.fails(422, "Invalid");
    }

    async fn objects_of_another_kind_name_or_namespace_are_refused(world) {
        let table = [
            json!({"kind": "Pod", "metadata": {"name": "a"}}),
            json!({"apiVersion": "v2", "metadata": {"name": "a"}}),
            json!({"metadata": {"name": "a", "namespace": "other"}}),
            json!({"metadata": {"name": "a", "resourceVersion": "5"}}),
            json!({"metadata": []}),
            json!([]),
        ];
        for body in table {
            world.post(MAPS, &body).await.fails(400, "BadRequest");
        }
        for meta in [
            json!({"name": "A"}),
            json!({"name": "a", "labels": {"a b": "c"}}),
            json!({"name": "a", "labels": {"a": "c d"}}),
            json!({"name": "a", "ownerReferences": [{"name": "x"}]}),
        ] {
            world.post(MAPS, &json!({"metadata": meta})).await.fails(422, "Invalid");
        }
        world.set("a", "1").await;
        let other = json!({"metadata": {"name": "b"}});
        world.put(&format!("{MAPS}/a"), &other).await.fails(400, "BadRequest");
    }

    async fn methods_without_a_meaning_are_405(world) {
        for (method, path) in [
            (Method::POST, "/api/v1/pods"),
            (Method::POST, "/api/v1/namespaces/shop/pods/p"),
            (Method::PUT, MAPS),
            (Method::DELETE, "/api/v1/namespaces/shop/pods/p/status"),
            (Method::POST, "/version"),
        ] {
            world.ask(method, path, &[], "{}").await.fails(405, "MethodNotAllowed");
        }
    }
}
