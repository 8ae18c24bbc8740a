//! Events that go when their time is over, with stores that do not see to it.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use masthead_core::{Object, Resource, Scope};
use masthead_server::{Config, Limits};
use masthead_store::{Condition, MemoryStore, Store, Write};
use serde_json::{Value, json};

use crate::held::HeldStore;
use crate::world::{MAPS, Place, Watch, World, config, names, run, version};

const GROUPS: [&str; 2] = ["/api/v1", "/apis/events.k8s.io/v1"];
const EVENTS: &str = "/api/v1/namespaces/shop/events";
const TTL: Duration = Duration::from_secs(1);

fn limits(event_ttl: Duration) -> Limits {
    Limits { event_ttl, ..Limits::default() }
}

/// Runs a test against servers whose stores do not remove anything, side by side.
fn everywhere(event_ttl: Duration, test: &impl AsyncFn(&World)) {
    let run_in = async |name, place, http2, compress_bodies| {
        let config = Config { compress_bodies, ..config(limits(event_ttl)) };
        let (world, server) = World::of(name, config, place, http2).await;
        world.namespace("shop").await;
        test(&world).await;
        server.shutdown().await;
    };
    run(async {
        tokio::join!(
            run_in("memory", Place::Memory, false, None),
            run_in("compressed", Place::Memory, true, Some(0)),
            run_in("embedded", Place::directory(), false, None),
        );
    });
}

/// What happens to one event from a version on.
async fn watch(world: &World, path: &str, event: &Value) -> Watch {
    let (name, from) = (event["metadata"]["name"].as_str().unwrap(), version(event));
    let selector = format!("fieldSelector=metadata.name%3D{name}");
    world.watch(&format!("{path}?watch=true&{selector}&resourceVersion={from}")).await
}

async fn make(world: &World, path: &str, name: &str) -> Value {
    world.post(path, &json!({"metadata": {"name": name}})).await.ok()
}

#[test]
fn events_go_when_their_time_is_over_and_other_objects_stay() {
    everywhere(TTL, &async |world| {
        world.set("kept", "1").await;
        for group in GROUPS {
            let path = format!("{group}/namespaces/shop/events");
            let began = Instant::now();
            let made = make(world, &path, "short").await;
            let deleted = watch(world, &path, &made).await.short().await;
            assert!(deleted.starts_with("DELETED short@"), "{}: {deleted}", world.name);
            assert!(began.elapsed() >= TTL, "{}: after {:?}", world.name, began.elapsed());
            assert_eq!(world.get(&format!("{path}/short")).await.code, 404, "{}", world.name);
        }
        assert_eq!(names(&world.get(MAPS).await.ok()), ["kept"]);
    });
}

#[test]
fn an_event_that_is_written_again_lives_on_from_then() {
    // Longer than any pause between two writes of it.
    let ttl = 3 * TTL;
    everywhere(ttl, &async |world| {
        // It is written again and again until another one, which is younger, has gone.
        let mut written = make(world, EVENTS, "written").await;
        let other = make(world, EVENTS, "other").await;
        let mut other = watch(world, EVENTS, &other).await;
        let gone = tokio::spawn(async move { other.short().await });
        let (mut count, mut last) = (0, Instant::now());
        while !gone.is_finished() {
            count += 1;
            written["count"] = json!(count);
            last = Instant::now();
            written = world.put(&format!("{EVENTS}/written"), &written).await.ok();
        }
        assert!(gone.await.unwrap().starts_with("DELETED other@"), "{}", world.name);
        assert!(count > 1, "{}", world.name);
        let deleted = watch(world, EVENTS, &written).await.short().await;
        assert!(deleted.starts_with("DELETED written@"), "{}: {deleted}", world.name);
        assert!(last.elapsed() >= ttl, "{}: after {:?}", world.name, last.elapsed());
    });
}

/// Stores an event as a server before this one may have left it.
async fn store(store: &dyn Store, name: &str, created: &str, more: &Value) {
    let events = Resource::new("", "v1", "events", "Event", Scope::Namespaced);
    let mut event = json!({
        "kind": "Event", "apiVersion": "v1",
        "metadata": {
            "name": name, "namespace": "shop", "uid": name, "creationTimestamp": created,
        },
    });
    event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let object = Object::parse(&events, event.to_string().into()).unwrap();
    let write = Write::put((&events).into(), object, Condition::Absent);
    store.commit(vec![write]).await.remove(0).unwrap();
}

#[test]
fn after_a_restart_events_go_by_the_latest_time_that_they_name() {
    run(async {
        let now: jiff::Timestamp = SystemTime::now().try_into().unwrap();
        let (now, old) = (now.to_string(), "2020-01-01T00:00:00Z");
        let left = Arc::new(MemoryStore::new());
        let none = json!({});
        store(&*left, "created-now", &now, &none).await;
        store(&*left, "seen-now", old, &json!({"lastTimestamp": now})).await;
        store(&*left, "made-now", old, &json!({"eventTime": now})).await;
        store(&*left, "repeated-now", old, &json!({"series": {"lastObservedTime": now}})).await;
        store(&*left, "seen-long-ago", old, &json!({"lastTimestamp": "2021-01-01T00:00:00Z"}))
            .await;
        let (world, server) = World::on(left, limits(Duration::from_secs(3600))).await;
        let left = world.until(EVENTS, |answer| !answer.text().contains("seen-long-ago")).await;
        let kept = ["created-now", "made-now", "repeated-now", "seen-now"];
        assert_eq!(names(&left.ok()), kept);
        server.shutdown().await;
    });
}

#[test]
fn an_event_of_the_future_goes_a_time_to_live_after_it_was_read() {
    run(async {
        let left = Arc::new(MemoryStore::new());
        store(&*left, "of-the-future", "2999-01-01T00:00:00Z", &json!({})).await;
        let began = Instant::now();
        let (world, server) = World::on(left, limits(TTL)).await;
        let list = world.get(EVENTS).await.ok();
        assert_eq!(names(&list), ["of-the-future"]);
        let mut watch =
            world.watch(&format!("{EVENTS}?watch=true&resourceVersion={}", version(&list))).await;
        assert!(watch.short().await.starts_with("DELETED of-the-future@"));
        assert!(began.elapsed() >= TTL);
        server.shutdown().await;
    });
}

#[test]
fn events_go_later_if_the_store_takes_no_writes_when_their_time_is_over() {
    run(async {
        let held = Arc::new(HeldStore::default());
        let (world, server) = World::on(held.clone(), limits(TTL)).await;
        world.namespace("shop").await;
        let made = make(&world, EVENTS, "short").await;
        let began = Instant::now();
        let mut watch = watch(&world, EVENTS, &made).await;
        held.set_full(Some("no room"));
        held.refused(2).await;
        assert!(began.elapsed() >= TTL, "after {:?}", began.elapsed());
        assert_eq!(names(&world.get(EVENTS).await.ok()), ["short"]);
        held.set_full(None);
        assert!(watch.short().await.starts_with("DELETED short@"));
        server.shutdown().await;
    });
}
