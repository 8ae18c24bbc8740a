//! W13–W22: the watch stream.

use masthead_server::Limits;
use serde_json::{Value, json};

use crate::rules;
use crate::world::{MAPS, PODS, TOKEN, World, pod, version};

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

    async fn w13_a_client_that_leaves_is_noticed_before_and_after_an_event(world) {
        let now = world.revision().await;
        let follow = format!("{MAPS}?watch=true&resourceVersion={now}");
        for events in 0..3 {
            let mut watch = world.watch(&follow).await;
            world.until("/statz", |answer| answer.json()["watches"] == 1).await;
            for count in 0..events {
                world.set("one", &format!("{events} {count}")).await;
                watch.short().await;
            }
            drop(watch);
            world.until("/statz", |answer| answer.json()["watches"] == 0).await;
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

fn get(path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n{more}\r\n")
}

/// All are sent at once: the second while a list is sent, the last while a watch is open behind it.
#[test]
fn a_connection_goes_on_after_large_lists_and_a_watch_behind_them() {
    crate::world::run(async {
        let (world, server) = World::limited(Limits::default(), false).await;
        for name in ["a", "b", "c", "d"] {
            world.set(name, &"x".repeat(100_000)).await;
        }
        let now = world.revision().await;
        let watch = format!("{MAPS}?watch=1&resourceVersion={now}&timeoutSeconds=1");
        let all = get(MAPS, "") + &get(MAPS, "") + &get(&watch, "");
        let all = all + &get("/version", "connection: close\r\n");
        let mut answer = &*world.raw(all.as_bytes()).await;
        for _ in 0..2 {
            let (head, rest) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("date: "), "{head}");
            let length = head.split("content-length: ").nth(1).unwrap().lines().next().unwrap();
            let (list, next) = rest.split_at(length.parse().unwrap());
            let list: Value = serde_json::from_str(list).unwrap();
            assert_eq!(list["items"].as_array().unwrap().len(), 4);
            answer = next;
        }
        let (watch, version) = answer.split_once("0\r\n\r\n").expect("the watch ends");
        assert!(watch.contains("transfer-encoding: chunked"), "{watch}");
        assert!(version.contains("gitVersion"), "{version}");
        server.shutdown().await;
    });
}

/// Both requests are sent at once, so the second one arrives while the watch is open.
#[test]
fn a_connection_goes_on_after_its_watch() {
    crate::world::run(async {
        let (world, server) = World::limited(Limits::default(), false).await;
        let map = world.set("one", "a").await;
        let from = version(&map) - 1;
        let watch = format!("{MAPS}?watch=1&resourceVersion={from}&timeoutSeconds=1");
        let both = get(&watch, "") + &get("/version", "connection: close\r\n");
        let answer = world.raw(both.as_bytes()).await;
        let (first, second) = answer.split_once("\r\n0\r\n\r\n").expect("the watch ends");
        let (head, body) = first.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("date: "), "{head}");
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        let (length, event) = body.split_once("\r\n").unwrap();
        assert_eq!(usize::from_str_radix(length, 16).unwrap(), event.len(), "{body}");
        assert!(event.contains("\"ADDED\"") && event.ends_with("}\n"), "{event}");
        assert!(second.starts_with("HTTP/1.1 200 OK\r\n"), "{second}");
        assert!(second.contains("gitVersion"), "{second}");
        server.shutdown().await;
    });
}
