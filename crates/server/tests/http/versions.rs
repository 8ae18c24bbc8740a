//! W5–W9: resource versions.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::rules;
use crate::world::{MAPS, PODS, World, everywhere_with, names, pod, short_history, version};

rules! {
    async fn w5_versions_are_numbers_of_one_counter_that_only_rises(world) {
        let mut last = 0;
        for round in 0..3 {
            let map = version(&world.set("a", &round.to_string()).await);
            let made = world.post(PODS, &pod(&format!("p{round}"), &json!({}))).await.ok();
            assert!(last < map && map < version(&made), "{last} {map} {}", version(&made));
            last = version(&made);
        }
    }

    async fn w6_get_is_latest_cached_or_not_older_than(world) {
        let made = version(&world.set("a", "1").await);
        for query in ["", "?resourceVersion=0", &format!("?resourceVersion={made}")] {
            let got = world.get(&format!("{MAPS}/a{query}")).await.ok();
            assert_eq!(version(&got), made, "{query}");
        }
        let began = Instant::now();
        let future = made + 1000;
        let answer = world.get(&format!("{MAPS}/a?resourceVersion={future}")).await;
        let status = answer.fails(504, "Timeout");
        assert!(began.elapsed() >= Duration::from_millis(2900), "after {:?}", began.elapsed());
        assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    }

    async fn w6_a_get_waits_for_a_revision_that_is_about_to_come(world) {
        let made = version(&world.set("a", "1").await);
        let path = format!("{MAPS}/a?resourceVersion={}", made + 1);
        let (got, ()) = tokio::join!(world.get(&path), async {
            world.set("a", "2").await;
        });
        assert_eq!(got.ok()["data"]["value"], "2");
    }

    async fn w7_a_list_without_a_version_has_everything_acknowledged(world) {
        for round in 0..20 {
            let made = version(&world.set("a", &round.to_string()).await);
            let list = world.get(MAPS).await.ok();
            assert!(version(&list) >= made);
            assert_eq!(list["items"][0]["data"]["value"], round.to_string());
        }
    }

    async fn w7_version_zero_ignores_the_limit(world) {
        for name in ["a", "b", "c"] {
            world.set(name, "1").await;
        }
        // Version zero may show the past; after this it cannot.
        world.get(MAPS).await.ok();
        let list = world.get(&format!("{MAPS}?resourceVersion=0&limit=1")).await.ok();
        assert_eq!(names(&list).len(), 3);
        assert!(list["metadata"].get("continue").is_none());
    }

    async fn w7_exact_and_legacy_lists_show_that_very_revision(world) {
        let first = version(&world.set("a", "1").await);
        let second = version(&world.set("b", "1").await);
        world.set("a", "2").await;
        world.delete(&format!("{MAPS}/b")).await.ok();
        for (at, expected) in [(first, &["a"][..]), (second, &["a", "b"])] {
            for query in [
                format!("resourceVersion={at}&resourceVersionMatch=Exact"),
                format!("resourceVersion={at}&limit=10"),
            ] {
                let list = world.get(&format!("{MAPS}?{query}")).await.ok();
                assert_eq!((version(&list), names(&list)), (at, expected.to_vec()), "{query}");
                assert_eq!(list["items"][0]["data"]["value"], "1");
            }
        }
    }

    async fn w7_not_older_than_may_be_newer_and_is_paged(world) {
        let first = version(&world.set("a", "1").await);
        world.set("b", "1").await;
        let newer = format!("{MAPS}?resourceVersion={first}");
        world.until(&newer, |answer| names(&answer.json()) == ["a", "b"]).await;
        let query = format!("resourceVersion={first}&resourceVersionMatch=NotOlderThan&limit=1");
        let paged = world.get(&format!("{MAPS}?{query}")).await.ok();
        assert_eq!(names(&paged), ["a"]);
        assert!(paged["metadata"]["continue"].is_string());
    }

    async fn w7a_a_future_revision_is_refused_at_once_or_after_the_wait(world) {
        let future = world.revision().await + 1000;
        let wait = Duration::from_millis(2900);
        for query in ["resourceVersionMatch=Exact", "limit=1"] {
            let began = Instant::now();
            let path = format!("{MAPS}?resourceVersion={future}&{query}");
            let status = world.get(&path).await.fails(504, "Timeout");
            let message = status["message"].as_str().unwrap();
            let text = format!("Too large resource version: {future}, current: ");
            assert!(message.contains(&text), "{message}");
            assert!(began.elapsed() < wait, "at once");
        }
        let began = Instant::now();
        let path = format!("{MAPS}?resourceVersion={future}&resourceVersionMatch=NotOlderThan");
        let answer = world.get(&path).await;
        assert_eq!(answer.header("retry-after"), "1");
        let status = answer.fails(504, "Timeout");
        assert!(began.elapsed() >= wait, "after the wait");
        assert_eq!(status["details"]["retryAfterSeconds"], 1);
    }

    async fn w8_an_exact_list_carries_its_revision_though_nothing_of_it_changed(world) {
        world.set("a", "1").await;
        let at = version(&world.post(PODS, &pod("p", &json!({}))).await.ok());
        world.set("a", "2").await;
        let path = format!("{MAPS}?resourceVersion={at}&resourceVersionMatch=Exact");
        let list = world.get(&path).await.ok();
        assert_eq!((version(&list), &list["items"][0]["data"]["value"]), (at, &json!("1")));
    }

    async fn w9_a_watch_from_a_revision_has_what_came_after_it(world) {
        let first = version(&world.set("a", "1").await);
        let second = version(&world.set("a", "2").await);
        let mut watch = world.watch(&format!("{MAPS}?watch=true&resourceVersion={first}")).await;
        assert_eq!(watch.short().await, format!("MODIFIED a@{second}"));
        let third = version(&world.set("b", "1").await);
        assert_eq!(watch.short().await, format!("ADDED b@{third}"));
    }

    async fn w9_a_watch_from_the_future_waits_silently(world) {
        let now = version(&world.set("a", "1").await);
        let from = now + 2;
        let mut watch = world.watch(&format!("{MAPS}?watch=true&resourceVersion={from}")).await;
        for value in ["2", "3", "4"] {
            world.set("a", value).await;
        }
        assert_eq!(watch.short().await, format!("MODIFIED a@{}", now + 3));
    }

    async fn w9_initial_events_from_a_future_that_does_not_come_are_an_error_event(world) {
        let future = world.revision().await + 1000;
        let path = format!(
            "{MAPS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
             &resourceVersion={future}&allowWatchBookmarks=true"
        );
        let mut watch = world.watch(&path).await;
        let event = watch.next().await.unwrap();
        assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(504)));
        assert_eq!(watch.next().await, None);
    }
}

#[test]
fn w7_an_exact_list_from_before_the_history_is_gone() {
    everywhere_with(short_history(), &async |world: &World| {
        let first = version(&world.set("a", "0").await);
        for round in 1..20 {
            world.set("a", &round.to_string()).await;
        }
        for query in ["resourceVersionMatch=Exact", "limit=1"] {
            let answer = world.get(&format!("{MAPS}?resourceVersion={first}&{query}")).await;
            answer.fails(410, "Expired");
        }
    });
}

#[test]
fn w9_w15_a_watch_from_before_the_history_is_one_error_event() {
    everywhere_with(short_history(), &async |world: &World| {
        let first = version(&world.set("a", "0").await);
        for round in 1..20 {
            world.set("a", &round.to_string()).await;
        }
        let mut watch = world.watch(&format!("{MAPS}?watch=true&resourceVersion={first}")).await;
        let event = watch.next().await.unwrap();
        let status = &event["object"];
        assert_eq!((&event["type"], &status["code"]), (&json!("ERROR"), &json!(410)));
        assert_eq!((&status["kind"], &status["reason"]), (&json!("Status"), &json!("Expired")));
        let message = status["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("too old resource version: {first} (")), "{message}");
        assert_eq!(watch.next().await, None, "and nothing else");
        let now = world.revision().await;
        let mut watch = world.watch(&format!("{MAPS}?watch=true&resourceVersion={now}")).await;
        let next = version(&world.set("a", "x").await);
        assert_eq!(watch.short().await, format!("MODIFIED a@{next}"));
    });
}
