//! Finalizers, status, events.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube_client::Api;
use masthead_controller::{EventKind, Finalizer, Recorder, patch_status};
use serde_json::json;
use tokio::time::sleep;

use crate::world::World;

const NAME: &str = "example.com/cleanup";

#[tokio::test(start_paused = true)]
async fn a_finalizer_comes_before_the_work_and_goes_after_it() {
    let world = World::new();
    world.put("configmaps", "default/a", json!({"metadata": {"finalizers": ["other"]}}));
    let client = world.client(Box::new(|| (Duration::ZERO, Duration::ZERO)));
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let read = maps.get("a").await.unwrap();
    assert_eq!(Finalizer::of(&read, NAME), Finalizer::Missing);
    let added = Finalizer::add(&maps, &read, NAME).await.unwrap();
    assert_eq!(Finalizer::of(&added, NAME), Finalizer::Present);
    assert_eq!(added.metadata.finalizers.as_deref().unwrap(), ["other", NAME]);
    // What was read before is no longer what is there.
    assert!(Finalizer::add(&maps, &read, NAME).await.is_err());
    let mut going = added.clone();
    let now = k8s_openapi::jiff::Timestamp::now();
    going.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
    assert_eq!(Finalizer::of(&going, NAME), Finalizer::CleanUp);
    let removed = Finalizer::remove(&maps, &going, NAME).await.unwrap();
    assert_eq!(removed.metadata.finalizers.as_deref().unwrap(), ["other"]);
    let status = patch_status(&maps, &removed, json!({"ready": true})).await;
    assert!(
        status.is_ok() && world.get("configmaps", "default/a").unwrap()["status"]["ready"] == true
    );
}

fn regarding(name: &str) -> ObjectReference {
    ObjectReference {
        name: Some(name.to_owned()),
        namespace: Some("default".to_owned()),
        uid: Some(format!("u-{name}")),
        ..ObjectReference::default()
    }
}

#[tokio::test(start_paused = true)]
async fn events_that_are_the_same_are_counted_and_too_many_are_dropped() {
    let world = World::new();
    let client = world.client(Box::new(|| (Duration::ZERO, Duration::ZERO)));
    let recorder = Recorder::new(client, "example.com/webs", "one");
    let record = async |name: &str, reason: &str, note: &str| {
        let (recorder, object) = (recorder.clone(), regarding(name));
        recorder.record(&object, EventKind::Normal, reason, "Scaling", note).await.unwrap();
    };
    for note in ["to 1", "to 2", "to 3"] {
        record("a", "ScaledUp", note).await;
    }
    record("a", "ScaledDown", "to 1").await;
    record("b", "ScaledUp", "to 1").await;
    let events = world.all("events");
    let counts: Vec<_> = events.iter().map(|it| it["series"]["count"].as_i64()).collect();
    assert_eq!(counts.iter().filter(|it| **it == Some(3)).count(), 1, "{events:?}");
    assert_eq!((events.len(), counts.iter().filter(|it| it.is_none()).count()), (3, 2));
    // 25 at once, of which four are gone; then one in five minutes.
    for _ in 0..30 {
        record("a", "ScaledUp", "again").await;
    }
    assert_eq!(recorder.dropped(), 9);
    sleep(Duration::from_secs(300)).await;
    record("a", "ScaledUp", "again").await;
    record("a", "ScaledUp", "again").await;
    assert_eq!(recorder.dropped(), 10);
    // After a silence it is another series.
    sleep(Duration::from_secs(3600)).await;
    record("a", "ScaledUp", "much later").await;
    assert_eq!(world.all("events").len(), 4);
    record("a", "Long", &"ä".repeat(2_000)).await;
    let long = world.all("events").into_iter().find(|it| it["reason"] == "Long").unwrap();
    assert_eq!(long["note"].as_str().unwrap().len(), 1024);
}
