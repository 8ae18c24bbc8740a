//! W29 and W30: what clients ask first.

use http::Method;
use serde_json::{Value, json};

use crate::rules;

rules! {
    async fn w29_groups_versions_and_resources_are_listed(world) {
        assert_eq!(world.get("/api").await.ok()["versions"], json!(["v1"]));
        let groups = world.get("/apis").await.ok();
        assert_eq!(groups["kind"], "APIGroupList");
        let named: Vec<_> = groups["groups"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
        for group in ["apps", "batch", "networking.k8s.io", "policy", "rbac.authorization.k8s.io",
            "storage.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io",
            "autoscaling", "scheduling.k8s.io", "apiextensions.k8s.io"] {
            assert!(named.contains(&&json!(group)), "{group}");
        }
        let apps = world.get("/apis/apps").await.ok();
        assert_eq!(apps["preferredVersion"]["groupVersion"], "apps/v1");
        let list = world.get("/apis/apps/v1").await.ok();
        let find = |name: &str| {
            let all = list["resources"].as_array().unwrap();
            all.iter().find(|it| it["name"] == name).unwrap_or_else(|| panic!("{name}")).clone()
        };
        let deployments = find("deployments");
        assert_eq!((&deployments["kind"], &deployments["shortNames"]), (&json!("Deployment"), &json!(["deploy"])));
        assert!(deployments["verbs"].as_array().unwrap().contains(&json!("watch")));
        assert_eq!(find("deployments/scale")["group"], "autoscaling");
        assert_eq!(find("deployments/status")["kind"], "Deployment");
        world.get("/apis/nope").await.fails(404, "NotFound");
        world.get("/apis/apps/v9").await.fails(404, "NotFound");
    }

    async fn w29_a_client_that_prefers_aggregated_discovery_gets_the_plain_one(world) {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        let answer = world.ask(Method::GET, "/apis", &[("accept", accept)], "").await;
        assert_eq!(answer.header("content-type"), "application/json");
        assert_eq!(answer.ok()["kind"], "APIGroupList");
    }

    async fn w30_openapi_declares_field_validation_for_every_kind(world) {
        let index = world.get("/openapi/v3").await.ok();
        for (path, entry) in index["paths"].as_object().unwrap() {
            let url = entry["serverRelativeURL"].as_str().unwrap();
            let document = world.get(url).await.ok();
            let patches = document["paths"].as_object().unwrap().values().filter_map(|it| it.get("patch"));
            let mut count = 0;
            for patch in patches {
                let has = |it: &Value| it["name"] == "fieldValidation" && it["in"] == "query";
                assert!(patch["parameters"].as_array().unwrap().iter().any(has), "{path}");
                assert!(patch["x-kubernetes-group-version-kind"]["kind"].is_string());
                count += 1;
            }
            assert!(count > 0, "{path}");
        }
        assert!(index["paths"].get("api/v1").is_some());
    }

    async fn w30_version_and_health_are_answered(world) {
        let version = world.get("/version").await.ok();
        assert!(version["gitVersion"].as_str().unwrap().starts_with("v1."));
        for check in ["/livez", "/readyz", "/healthz"] {
            let answer = world.ask(Method::GET, check, &[("authorization", "")], "").await;
            assert_eq!((answer.code, answer.text().as_str()), (200, "ok"), "{check}");
        }
        let verbose = world.get("/readyz?verbose").await.text();
        assert!(verbose.contains("[+]caches ok") && verbose.contains("readyz check passed"), "{verbose}");
    }

    async fn metrics_and_statistics_tell_of_watches_and_objects(world) {
        world.set("a", "1").await;
        let _watch = world.watch(&format!("{}?watch=true", crate::world::MAPS)).await;
        let line = "apiserver_resource_objects{group=\"\",version=\"v1\",resource=\"configmaps\"} 1";
        let metrics = world.until("/metrics", |answer| answer.text().contains(line)).await.text();
        assert!(metrics.contains("apiserver_registered_watchers{group=\"\",version=\"v1\",resource=\"configmaps\"} 1"));
        assert!(metrics.contains("apiserver_request_total{"));
        let statistics = world.get("/statz").await.ok();
        let all = statistics["resources"].as_array().unwrap();
        let maps = all.iter().find(|it| it["resource"] == "configmaps").unwrap();
        assert_eq!((&maps["objects"], &maps["watches"]), (&json!(1), &json!(1)));
    }
}
