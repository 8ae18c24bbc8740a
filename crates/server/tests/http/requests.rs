//! W1–W4: which requests there are, and which are refused.

use std::time::{Duration, Instant};

use crate::rules;
use crate::world::{MAPS, names, version};

rules! {
    async fn w1_collections_are_listed_over_all_namespaces_or_one(world) {
        world.set("a", "1").await;
        world.namespace("other").await;
        let list = world.get("/api/v1/configmaps").await.ok();
        assert_eq!((list["kind"].as_str(), list["apiVersion"].as_str()), (Some("ConfigMapList"), Some("v1")));
        assert_eq!(names(&list), ["a"]);
        assert_eq!(names(&world.get(MAPS).await.ok()), ["a"]);
        let elsewhere = world.get("/api/v1/namespaces/other/configmaps").await.ok();
        assert!(names(&elsewhere).is_empty());
        assert!(names(&world.get("/apis/apps/v1/deployments").await.ok()).is_empty());
    }

    async fn w1_watch_true_and_the_old_watch_paths_are_watches(world) {
        let made = world.set("a", "1").await;
        let expected = format!("ADDED a@{}", version(&made));
        for path in [
            "/api/v1/configmaps?watch=true",
            "/api/v1/configmaps?watch=1",
            "/api/v1/watch/configmaps",
            "/api/v1/watch/namespaces/shop/configmaps",
            "/api/v1/watch/namespaces/shop/configmaps/a",
        ] {
            assert_eq!(world.watch(path).await.short().await, expected, "{path}");
        }
    }

    async fn w2_one_item_is_watched_by_its_path_or_by_a_field_selector(world) {
        world.set("b", "1").await;
        for (round, path) in [
            format!("{MAPS}/a?watch=true"),
            format!("{MAPS}?watch=true&fieldSelector=metadata.name%3Da"),
        ]
        .iter()
        .enumerate()
        {
            let value = |step: usize| format!("{round}.{step}");
            let first = version(&world.set("a", &value(0)).await);
            let mut watch = world.watch(path).await;
            assert_eq!(watch.short().await, format!("ADDED a@{first}"));
            world.set("b", &value(1)).await;
            let second = version(&world.set("a", &value(2)).await);
            assert_eq!(watch.short().await, format!("MODIFIED a@{second}"), "b is not in view");
            world.delete(&format!("{MAPS}/a")).await.ok();
            assert_eq!(watch.short().await, format!("DELETED a@{}", world.revision().await));
            let third = version(&world.set("a", &value(3)).await);
            assert_eq!(watch.short().await, format!("ADDED a@{third}"));
        }
    }

    async fn w3_timeout_seconds_ends_a_watch_cleanly_and_timeout_is_ignored(world) {
        let began = Instant::now();
        let path = format!("{MAPS}?watch=true&timeoutSeconds=1&timeout=50ms");
        let mut watch = world.watch(&path).await;
        assert_eq!(watch.next().await, None, "a clean end");
        assert!(began.elapsed() >= Duration::from_millis(900), "after {:?}", began.elapsed());
    }

    async fn w4_a_watch_without_a_version_begins_with_the_state(world) {
        world.set("a", "1").await;
        world.set("b", "1").await;
        for version in ["", "&resourceVersion=0", "&resourceVersion="] {
            let mut watch = world.watch(&format!("{MAPS}?watch=true{version}")).await;
            assert!(watch.short().await.starts_with("ADDED a@"));
            assert!(watch.short().await.starts_with("ADDED b@"));
        }
    }

    async fn refused_combinations_have_the_texts_of_kubernetes(world) {
        world.set("a", "1").await;
        let token = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MywibnN0YXJ0IjoiYSJ9";
        let match_and_none = "resourceVersionMatch is forbidden unless resourceVersion is provided";
        let match_and_token = "resourceVersionMatch is forbidden when continue is provided";
        let exact_zero = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
        let table = [
            ("resourceVersionMatch=Exact", match_and_none),
            ("resourceVersionMatch=NotOlderThan", match_and_none),
            ("resourceVersionMatch=Exact&limit=5", match_and_none),
            (&*format!("resourceVersionMatch=Exact&continue={token}&resourceVersion=1"), match_and_token),
            ("resourceVersionMatch=Nearly&resourceVersion=1", "supported values: \"Exact\", \"NotOlderThan\""),
            ("resourceVersionMatch=Exact&resourceVersion=0", exact_zero),
            ("sendInitialEvents=true", "sendInitialEvents is forbidden for list"),
            ("sendInitialEvents=false", "sendInitialEvents is forbidden for list"),
            ("watch=true&sendInitialEvents=true", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
            ("watch=true&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1", "NotOlderThan"),
            ("watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=1",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"),
            ("watch=true&resourceVersion=x", "resourceVersion"),
        ];
        for (query, text) in table {
            let status = world.get(&format!("{MAPS}?{query}")).await.fails(422, "Invalid");
            let details = &status["details"];
            assert_eq!((&details["kind"], &details["group"]), (&"ListOptions".into(), &"meta.k8s.io".into()));
            let message = status["message"].as_str().unwrap();
            assert!(message.contains(text), "{query}: {message}");
        }
    }

    async fn requests_that_make_no_sense_are_bad_requests(world) {
        let table = [
            "limit=many",
            "labelSelector=a%20b",
            "fieldSelector=spec.colour%3Dred",
            "fieldSelector=a",
            "continue=nonsense",
            "resourceVersion=x",
            "resourceVersion=-1",
            "watch=perhaps",
            "labelSelector=%ff",
            "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MywibnN0YXJ0IjoiYSJ9&resourceVersion=5",
        ];
        for query in table {
            let answer = world.get(&format!("{MAPS}?{query}")).await;
            let status = answer.fails(400, "BadRequest");
            assert!(!status["message"].as_str().unwrap().is_empty());
        }
    }

    async fn every_combination_of_limit_continue_version_and_match_has_its_answer(world) {
        for name in ["a", "b", "c"] {
            world.set(name, "1").await;
        }
        let first = world.get(&format!("{MAPS}?limit=1")).await.ok();
        let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
        let now = version(&first);
        for limit in ["", "limit=1"] {
            for continued in [false, true] {
                for version in ["", "0", &now.to_string()] {
                    for matching in ["", "Exact", "NotOlderThan"] {
                        let token = if continued { token.as_str() } else { "" };
                        let path = format!(
                            "{MAPS}?{limit}&continue={token}&resourceVersion={version}\
                             &resourceVersionMatch={matching}"
                        );
                        let expected = expected(limit, continued, version, matching);
                        let answer = world.get(&path).await;
                        assert_eq!(answer.code, expected.0, "{path}: {}", answer.text());
                        if expected.0 == 200 {
                            let list = answer.json();
                            assert_eq!(names(&list), expected.1, "{path}");
                            let more = list["metadata"]["continue"].is_string();
                            assert_eq!(more, expected.2, "{path}");
                        }
                    }
                }
            }
        }
    }
}

/// Code, names, and whether there is more: the table of W7 and of the refused combinations.
fn expected(
    limit: &str,
    continued: bool,
    version: &str,
    matching: &str,
) -> (u16, &'static [&'static str], bool) {
    let limited = !limit.is_empty();
    if !matching.is_empty()
        && (version.is_empty() || continued || (version == "0" && matching == "Exact"))
    {
        return (422, &[], false);
    }
    if continued {
        return match version {
            "" | "0" if limited => (200, &["b"], true),
            "" | "0" => (200, &["b", "c"], false),
            _ => (400, &[], false),
        };
    }
    if limited && version != "0" { (200, &["a"], true) } else { (200, &["a", "b", "c"], false) }
}
