//! One list and one watch, however many ask.

use std::time::Duration;

use kube_core::DynamicObject;
use masthead_core::Revision;
use masthead_informer::{
    BuildError, Event, Factory, HandlerOptions, Index, Projection, Representation,
};
use prometheus_client::registry::Registry;

use crate::world::{Thing, World, things};

#[tokio::test(start_paused = true)]
async fn ten_handlers_and_three_informers_cost_one_list_and_one_watch() {
    let world = World::new(1);
    for n in 0..5 {
        world.put(&format!("a/n{n}"), n, "app=x");
    }
    let factory = Factory::new(world.clone());
    let first = factory.informer::<Thing>().build().unwrap();
    let same = factory.informer::<Thing>().index(Index::label("app", "app")).build().unwrap();
    let untyped = factory.dynamic(&things()).build().unwrap();
    let mut added = Vec::new();
    for _ in 0..10 {
        let handler = |_: Event<Thing>| async {};
        added.push(first.add_handler(&HandlerOptions::default(), handler).unwrap());
    }
    factory.start();
    factory.wait_for_sync().await.unwrap();
    for handle in &added {
        handle.synced().await;
    }
    world.put("a/n1", 9, "");
    first.wait_for(Revision(7), Duration::from_secs(60)).await.unwrap();
    // Streamed: one request is the list and the watch.
    assert_eq!(world.requests(), (1, 1));
    assert_eq!(same.lister().by_index("app", "x").unwrap().count(), 4);
    let object: std::sync::Arc<DynamicObject> =
        untyped.lister().get_str("a/n1").unwrap().decode().unwrap();
    assert_eq!(object.data["value"], 9);
    assert_eq!(factory.report().resources.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_differs_is_not_shared() {
    let world = World::new(2);
    world.put("a/n", 1, "app=x");
    world.put("b/n", 1, "app=y");
    let factory = Factory::new(world.clone());
    let builder = || factory.informer::<Thing>();
    let informers = [
        builder().build().unwrap(),
        builder().labels("app=x").build().unwrap(),
        builder().namespace("b").build().unwrap(),
        builder().representation(Representation::Typed).build().unwrap(),
        builder().representation(Representation::Compact).build().unwrap(),
        builder().project(Projection::dropping(["metadata.managedFields"])).build().unwrap(),
    ];
    factory.start();
    factory.wait_for_sync().await.unwrap();
    assert_eq!(factory.report().resources.len(), informers.len());
    let lens = informers.each_ref().map(|informer| informer.lister().len());
    assert_eq!(lens, [2, 1, 1, 2, 2, 2]);
    drop(informers);
    assert!(factory.report().resources.is_empty(), "nobody holds them");
}

#[tokio::test(start_paused = true)]
async fn several_namespaces_are_read_as_one() {
    let world = World::new(3);
    for key in ["a/n", "ab/n", "b/n"] {
        world.put(key, 1, "app=x");
    }
    let factory = Factory::new(world.clone());
    let builder = factory.informer::<Thing>().namespace("a").namespace("b");
    let informer = builder.index(Index::label("app", "app")).build().unwrap();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    let state = informer.lister();
    let keys: Vec<_> = state.iter().map(|it| it.key().to_string()).collect();
    assert_eq!(keys, ["a/n", "b/n"]);
    assert!(state.get_str("ab/n").is_none());
    assert_eq!(state.by_indexes(&[("app", "x"), ("namespace", "b")]).unwrap().count(), 1);
    assert_eq!(state.namespace("a").count(), 1);
    assert!(state.by_index("none", "x").is_err());
    let many = (0..65).fold(factory.informer::<Thing>(), |it, n| it.namespace(&format!("n{n}")));
    assert!(matches!(many.build(), Err(BuildError::TooManyNamespaces)));
}

#[tokio::test(start_paused = true)]
async fn indexes_may_come_late_and_their_failures_are_their_own() {
    let world = World::new(4);
    world.put("a/n", 7, "app=x");
    let factory = Factory::new(world.clone());
    let informer = factory.informer::<Thing>().build().unwrap();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    assert!(informer.lister().by_index("value", "7").is_err());
    let by_value =
        Index::by("value", |thing: &Thing, values| values.push(&thing.value.to_string()));
    informer.add_index(&by_value).unwrap();
    assert!(informer.add_index(&by_value).is_err(), "there is one of that name");
    informer.add_index(&Index::field("field", "value")).unwrap();
    let broken = Index::by_entry("broken", |_, _| Err(masthead_cache::IndexError("no".into())));
    informer.add_index(&broken).unwrap();
    let state = informer.lister();
    for index in ["value", "field"] {
        assert_eq!(state.by_index(index, "7").unwrap().count(), 1, "{index}");
    }
    assert_eq!(state.by_index("broken", "7").unwrap().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn r33_a_read_after_a_write_waits_for_it_and_no_longer_than_it_may() {
    let world = World::new(5);
    let factory = Factory::new(world.clone());
    let informer = factory.informer::<Thing>().build().unwrap();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    let key = masthead_core::ObjectKey::new("a", "n").unwrap();
    let written = Revision(world.put("a/n", 1, "").rv);
    let minute = Duration::from_secs(60);
    let entry = informer.get_at_least(&key, written, minute).await.unwrap().unwrap();
    assert_eq!(entry.revision(), written);
    let late = informer.wait_for(Revision(99), Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(late.to_string(), "the cache is at revision 2, 99 was waited for");
    world.delete("a/n");
    assert!(informer.get_at_least(&key, Revision(3), minute).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn figures_are_those_of_what_is_there() {
    let world = World::new(6);
    world.put("a/n", 1, "");
    let factory = Factory::new(world.clone());
    let informer = factory.informer::<Thing>().build().unwrap();
    let events = informer.events(&HandlerOptions::default().named("mine")).unwrap();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(factory.metrics()));
    let text = || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    };
    let of = r#"{resource="things.test",namespace=""#;
    assert!(text().contains(&format!("masthead_informer_objects{of}\"}} 1")), "{}", text());
    assert!(
        text().contains(&format!("masthead_informer_handler_lag_events{of}\",handler=\"mine\"}}"))
    );
    drop((events, informer));
    assert!(!text().contains("things"), "{}", text());
}
