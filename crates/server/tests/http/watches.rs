//! W13–W22: the watch stream.

use serde_json::{Value, json};

use crate::rules;
use crate::world::{MAPS, PODS, pod, version};

const INITIAL: &str =
    "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

rules! {
    async fn w13_headers_come_at_once(world) {
        let now = world.revision().await;
        let watch = world.watch(&format!("{MAPS}?watch=true&resourceVersion={now}")).await;
        assert_eq!(watch.headers["cache-control"], "no-cache, private");
        assert_eq!(watch.headers["content-type"], "application/json");
        if world.name.contains("1.1") {
            assert_eq!(watch.headers["transfer-encoding"], "chunked");
        }
    }

    async fn w14_errors_before_the_stream_are_http_errors(world) {
        let path = format!("{MAPS}?watch=true&labelSelector=a%20b");
        world.get(&path).await.fails(400, "BadRequest");
        let headers = [("authorization", "Bearer wrong")];
        let path = format!("{MAPS}?watch=true");
        world.ask(http::Method::GET, &path, &headers, "").await.fails(401, "Unauthorized");
    }

    async fn w16_the_error_of_a_future_revision_says_so(world) {
        let future = world.revision().await + 500;
        let mut watch = world.watch(&format!("{MAPS}?{INITIAL}&resourceVersion={future}")).await;
        let status = watch.next().await.unwrap()["object"].clone();
        assert_eq!((&status["reason"], &status["code"]), (&json!("Timeout"), &json!(504)));
        let message = status["message"].as_str().unwrap();
        let text = format!("Timeout: Too large resource version: {future}, current: ");
        assert!(message.starts_with(&text), "{message}");
        assert_eq!(status["details"]["retryAfterSeconds"], 1);
        assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    }

    async fn w18_selector_transitions_are_added_modified_and_deleted(world) {
        let now = world.revision().await;
        let path = format!("{PODS}?watch=true&resourceVersion={now}&labelSelector=app%3Dweb");
        let mut watch = world.watch(&path).await;
        let item = format!("{PODS}/p");
        world.post(PODS, &pod("p", &json!({"app": "db"}))).await.ok();
        let label = |value: &str| json!({"metadata": {"labels": {"app": value, "n": value}}});
        let entered = version(&world.patch(&item, "merge-patch", &label("web")).await.ok());
        assert_eq!(watch.short().await, format!("ADDED p@{entered}"));
        let stays = json!({"metadata": {"labels": {"more": "x"}}});
        let stayed = version(&world.patch(&item, "merge-patch", &stays).await.ok());
        assert_eq!(watch.short().await, format!("MODIFIED p@{stayed}"));
        let left = version(&world.patch(&item, "merge-patch", &label("db")).await.ok());
        let event = watch.next().await.unwrap();
        assert_eq!((&event["type"], version(&event["object"])), (&json!("DELETED"), left));
        assert_eq!(event["object"]["metadata"]["labels"]["app"], "web", "its previous content");
        world.patch(&item, "merge-patch", &label("web")).await.ok();
        assert!(watch.short().await.starts_with("ADDED p@"));
        world.delete(&item).await.ok();
        let event = watch.next().await.unwrap();
        assert_eq!(event["type"], "DELETED");
        assert_eq!(version(&event["object"]), world.revision().await, "the delete's own revision");
        assert_eq!(event["object"]["metadata"]["labels"]["app"], "web", "its last content");
    }

    async fn w19_initial_events_are_added_and_later_ones_are_above_the_list(world) {
        world.set("a", "1").await;
        world.set("b", "1").await;
        let list = version(&world.get(MAPS).await.ok());
        let mut watch = world.watch(&format!("{MAPS}?{INITIAL}")).await;
        assert!(watch.short().await.starts_with("ADDED a@"));
        assert!(watch.short().await.starts_with("ADDED b@"));
        assert!(watch.short().await.starts_with("BOOKMARK @"));
        world.set("a", "2").await;
        let event = watch.next().await.unwrap();
        assert_eq!(event["type"], "MODIFIED");
        assert!(version(&event["object"]) > list);
    }

    async fn w20_bookmarks_come_only_where_they_are_asked_for_and_before_the_deadline(world) {
        let now = version(&world.set("a", "1").await);
        let path = format!("{MAPS}?watch=true&resourceVersion={now}&timeoutSeconds=3");
        let (with, without) = (format!("{path}&allowWatchBookmarks=true"), path);
        let (mut with, mut without) = (world.watch(&with).await, world.watch(&without).await);
        let bookmark = with.next().await.unwrap();
        assert_eq!(bookmark["type"], "BOOKMARK");
        let object = bookmark["object"].as_object().unwrap();
        assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
        assert_eq!(object["metadata"], json!({"resourceVersion": world.revision().await.to_string()}));
        assert_eq!(without.next().await, None, "only the end");
    }

    async fn w20_bookmarks_are_never_filtered(world) {
        world.set("a", "1").await;
        let path = format!(
            "{MAPS}?watch=true&allowWatchBookmarks=true&labelSelector=no%3Dbody&timeoutSeconds=3\
             &resourceVersion={}",
            world.revision().await
        );
        let mut watch = world.watch(&path).await;
        assert_eq!(watch.short().await, format!("BOOKMARK @{}", world.revision().await));
    }

    async fn w21_the_end_of_the_initial_events_is_marked_exactly_once(world) {
        let at = version(&world.set("a", "1").await);
        let mut watch = world.watch(&format!("{MAPS}?{INITIAL}&timeoutSeconds=3&resourceVersion={at}")).await;
        let mut marked = 0;
        let mut kinds = Vec::new();
        while let Some(event) = watch.next().await {
            let annotations = &event["object"]["metadata"]["annotations"];
            if annotations["k8s.io/initial-events-end"] == "true" {
                marked += 1;
                assert!(version(&event["object"]) >= at);
            }
            kinds.push(event["type"].as_str().unwrap().to_owned());
        }
        assert_eq!(marked, 1);
        assert_eq!(kinds[..2], ["ADDED", "BOOKMARK"]);
    }

    async fn w21_without_bookmarks_there_is_no_mark(world) {
        world.set("a", "1").await;
        let query = INITIAL.replace("&allowWatchBookmarks=true", "&timeoutSeconds=1");
        let mut watch = world.watch(&format!("{MAPS}?{query}")).await;
        assert!(watch.short().await.starts_with("ADDED a@"));
        assert_eq!(watch.next().await, None);
    }

    async fn w21_an_empty_state_has_a_mark_too(world) {
        let mut watch = world.watch(&format!("{MAPS}?{INITIAL}")).await;
        let event = watch.next().await.unwrap();
        assert_eq!(event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    }

    async fn w22_an_update_that_changes_nothing_makes_no_event_and_no_version(world) {
        let made = world.set("a", "1").await;
        let mut watch =
            world.watch(&format!("{MAPS}?watch=true&resourceVersion={}", version(&made))).await;
        let again = world.put(&format!("{MAPS}/a"), &made).await.ok();
        assert_eq!(version(&again), version(&made));
        let mut shuffled: Value = json!({});
        for (name, value) in made.as_object().unwrap().iter().rev() {
            shuffled[name] = value.clone();
        }
        shuffled["metadata"]["managedFields"] = Value::Null;
        assert_eq!(version(&world.put(&format!("{MAPS}/a"), &shuffled).await.ok()), version(&made));
        let same = json!({"data": {"value": "1"}});
        let patched = world.patch(&format!("{MAPS}/a"), "merge-patch", &same).await.ok();
        assert_eq!(version(&patched), version(&made));
        let next = version(&world.set("a", "2").await);
        assert_eq!(watch.short().await, format!("MODIFIED a@{next}"), "nothing in between");
    }
}
