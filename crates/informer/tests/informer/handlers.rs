//! What handlers are promised: R17–R23.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use masthead_cache::HistoryLimits;
use masthead_informer::{
    DeleteCause, Event, Factory, FactorySettings, HandlerOptions, Index, Informer, LastState,
    Representation, Subscription,
};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::world::{Thing, World};

/// A world with so many things, a factory that follows it, and an informer that has synced.
async fn synced(world: &World, things: u64) -> (Factory, Informer<Thing>) {
    synced_keeping(world, things, HistoryLimits::default()).await
}

async fn synced_keeping(
    world: &World,
    things: u64,
    history: HistoryLimits,
) -> (Factory, Informer<Thing>) {
    for n in 0..things {
        world.put(&format!("a/n{n}"), n, "app=x");
    }
    let factory = Factory::new(world.clone());
    let builder = factory.informer::<Thing>().history(history);
    let informer = builder.index(Index::label("app", "app")).build().unwrap();
    factory.start();
    informer.wait_for_sync().await.unwrap();
    (factory, informer)
}

/// An event in short: `+a/n1@3`, `!` for initial; `~a/n1@3>5`, `=` for a resync; `-a/n1@5`.
fn short(event: &Event<Thing>) -> String {
    let rv = |entry: &masthead_informer::Entry<Thing>| entry.resource_version().to_owned();
    match event {
        Event::Added { object, initial } => {
            format!("{}{}@{}", if *initial { "!" } else { "+" }, object.key(), rv(object))
        }
        Event::Updated { old, new, resync } => {
            let old = old.as_ref().map_or_else(|| "?".to_owned(), rv);
            format!("{}{}@{old}>{}", if *resync { "=" } else { "~" }, new.key(), rv(new))
        }
        Event::Deleted { key, last, .. } => {
            format!("-{key}@{}", last.entry().map_or_else(|| "?".to_owned(), rv))
        }
    }
}

async fn next(events: &mut Subscription<Thing>) -> String {
    short(&timeout(Duration::from_secs(60), events.next()).await.expect("in time").unwrap())
}

async fn next_ones<const N: usize>(events: &mut Subscription<Thing>) -> [String; N] {
    let mut found = Vec::new();
    for _ in 0..N {
        found.push(next(events).await);
    }
    found.try_into().unwrap()
}

/// Waits until the cache has all that was written.
async fn reach(world: &World, informer: &Informer<Thing>) {
    let revision = masthead_core::Revision(world.rv());
    informer.wait_for(revision, Duration::from_secs(60)).await.unwrap();
}

/// Changes an object so often that no history is left.
async fn turn_over(world: &World, informer: &Informer<Thing>, key: &str) {
    for n in 0..1000 {
        world.put(key, n, "");
        if n % 100 == 0 {
            reach(world, informer).await;
        }
    }
    reach(world, informer).await;
}

fn all() -> HandlerOptions<Thing> {
    HandlerOptions::default()
}

#[tokio::test(start_paused = true)]
async fn r17_the_cache_and_its_indexes_change_before_any_handler_hears_of_it() {
    let world = World::new(1);
    let (_factory, informer) = synced(&world, 0).await;
    let (sender, mut seen) = mpsc::unbounded_channel();
    let reader = informer.clone();
    let handler = move |event: Event<Thing>| {
        let state = reader.lister();
        let cached = state.get(event.key()).map(|it| it.revision());
        let indexed = state.by_index("app", "y").unwrap().any(|it| it.key() == event.key());
        let told = event.entry().map(masthead_informer::Entry::revision);
        let _ = sender.send((cached >= told, indexed));
        async {}
    };
    informer.add_handler(&all(), handler).unwrap();
    for n in 0..20 {
        world.put("a/n", n, "app=y");
        assert_eq!(seen.recv().await, Some((true, true)));
    }
}

#[tokio::test(start_paused = true)]
async fn r18_each_handler_hears_in_order_and_a_blocked_one_holds_up_nobody() {
    let world = World::new(2);
    let (_factory, informer) = synced(&world, 0).await;
    let (open, blocked) = oneshot::channel::<()>();
    let blocked = blocked.shared();
    let stuck = move |_: Event<Thing>| {
        let blocked = blocked.clone();
        async move {
            let _ = blocked.await;
        }
    };
    let stuck = informer.add_handler(&all().named("stuck"), stuck).unwrap();
    let mut events = informer.events(&all()).unwrap();
    for n in 0..50 {
        world.put("a/n", n, "");
    }
    assert_eq!(next(&mut events).await, "+a/n@2");
    for rv in 3..=51 {
        assert_eq!(next(&mut events).await, format!("~a/n@{}>{rv}", rv - 1));
    }
    let report = stuck.report();
    assert!(report.lag_events >= 49 && report.lag > Duration::ZERO, "{report:?}");
    assert!(events.next().now_or_never().is_none());
    drop(open);
    while stuck.report().lag_events > 0 {
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!((stuck.report().lag, stuck.report().events), (Duration::ZERO, 50));
}

#[tokio::test(start_paused = true)]
async fn r19_a_late_handler_gets_the_present_state_as_adds_marked_initial() {
    let world = World::new(3);
    let (_factory, informer) = synced(&world, 3).await;
    let mut early = informer.events(&all()).unwrap();
    assert_eq!(next_ones(&mut early).await, ["!a/n0@2", "!a/n1@3", "!a/n2@4"]);
    world.put("a/n1", 9, "");
    assert_eq!(next(&mut early).await, "~a/n1@3>5");
    let mut late = informer.events(&all()).unwrap();
    assert_eq!(next_ones(&mut late).await, ["!a/n0@2", "!a/n1@5", "!a/n2@4"]);
    world.delete("a/n0");
    assert_eq!(next(&mut late).await, "-a/n0@6");
    assert_eq!(next(&mut early).await, "-a/n0@6");
}

#[tokio::test(start_paused = true)]
async fn r20_what_a_slow_handler_missed_comes_as_one_step_for_each_key() {
    let world = World::new(4);
    let history = HistoryLimits { changes: 4, ..HistoryLimits::default() };
    let (_factory, informer) = synced_keeping(&world, 3, history).await;
    let mut slow = informer.events(&all()).unwrap();
    assert_eq!(next_ones(&mut slow).await, ["!a/n0@2", "!a/n1@3", "!a/n2@4"]);
    world.delete("a/n0");
    turn_over(&world, &informer, "a/n1").await;
    world.delete("a/n2");
    world.put("a/n2", 1, "");
    world.put("a/n3", 1, "");
    reach(&world, &informer).await;
    assert_eq!(
        next_ones(&mut slow).await,
        ["-a/n0@2", "~a/n1@3>1005", "-a/n2@4", "+a/n2@1007", "+a/n3@1008"]
    );
    world.put("a/n3", 2, "");
    assert_eq!(next(&mut slow).await, "~a/n3@1008>1009");
}

#[tokio::test(start_paused = true)]
async fn r20_beyond_the_bound_of_pinned_bytes_a_handler_is_stalled_and_gets_no_old_states() {
    let world = World::new(5);
    for n in 0..3 {
        world.put(&format!("a/n{n}"), n, "");
    }
    let settings = FactorySettings { pinned_bytes: 0, ..FactorySettings::default() };
    let factory = Factory::with_settings(world.clone(), settings).unwrap();
    let history = HistoryLimits { changes: 2, ..HistoryLimits::default() };
    let informer = factory.informer::<Thing>().history(history).build().unwrap();
    factory.start();
    informer.wait_for_sync().await.unwrap();
    let mut slow = informer.events(&all().named("slow")).unwrap();
    assert_eq!(next_ones(&mut slow).await, ["!a/n0@2", "!a/n1@3", "!a/n2@4"]);
    world.delete("a/n0");
    turn_over(&world, &informer, "a/n1").await;
    let stalled = |factory: &Factory| factory.report().resources[0].handlers[0].stalled;
    while !stalled(&factory) {
        sleep(Duration::from_millis(100)).await;
    }
    let gone = timeout(Duration::from_secs(60), slow.next()).await.unwrap().unwrap();
    assert!(
        matches!(
            &gone,
            Event::Deleted { last: LastState::Unknown, cause: DeleteCause::Missed, .. }
        ),
        "{gone:?}"
    );
    assert_eq!(next_ones(&mut slow).await, ["~a/n1@?>1005", "~a/n2@?>4"]);
    assert!(slow.next().now_or_never().is_none());
    assert!(!stalled(&factory), "it has caught up");
}

#[tokio::test(start_paused = true)]
async fn r21_a_panicking_handler_loses_only_that_call() {
    let world = World::new(6);
    let (_factory, informer) = synced(&world, 0).await;
    let (sender, mut heard) = mpsc::unbounded_channel();
    let handler = move |event: Event<Thing>| {
        let sender = sender.clone();
        async move {
            let _ = sender.send(short(&event));
            if event.key().name() == "bad" {
                std::panic::resume_unwind(Box::new("on purpose"));
            }
        }
    };
    let handle = informer.add_handler(&all(), handler).unwrap();
    world.put("a/bad", 1, "");
    world.put("a/good", 1, "");
    assert_eq!(heard.recv().await.unwrap(), "+a/bad@2");
    assert_eq!(heard.recv().await.unwrap(), "+a/good@3");
    assert_eq!(handle.report().panics, 1);
}

#[tokio::test(start_paused = true)]
async fn r22_a_resync_replays_the_cache_to_those_who_asked_and_asks_the_server_nothing() {
    let world = World::new(7);
    let (_factory, informer) = synced(&world, 2).await;
    let mut asked = informer.events(&all().resync(Duration::from_millis(10))).unwrap();
    assert_eq!(next_ones(&mut asked).await, ["!a/n0@2", "!a/n1@3"]);
    let (requests, began) = (world.requests(), tokio::time::Instant::now());
    assert_eq!(next_ones(&mut asked).await, ["=a/n0@2>2", "=a/n1@3>3"]);
    assert!(began.elapsed() >= Duration::from_millis(900), "at least a second between two");
    let again = timeout(Duration::from_secs(60), asked.next()).await.unwrap().unwrap();
    let Event::Updated { old: Some(old), new, resync: true } = again else { panic!("{again:?}") };
    assert!(old.ptr_eq(&new), "old and new are one object");
    assert_eq!(world.requests(), requests);
}

#[tokio::test(start_paused = true)]
async fn r23_nothing_is_replayed_unless_asked_for_and_a_change_is_no_resync() {
    let world = World::new(7);
    let (_factory, informer) = synced(&world, 1).await;
    let mut asked = informer.events(&all().resync(Duration::from_secs(1))).unwrap();
    let mut others = informer.events(&all()).unwrap();
    assert_eq!(next_ones(&mut asked).await, ["!a/n0@2"]);
    assert_eq!(next_ones(&mut others).await, ["!a/n0@2"]);
    for _ in 0..3 {
        assert_eq!(next_ones(&mut asked).await, ["=a/n0@2>2"]);
        assert!(others.next().now_or_never().is_none(), "off unless asked for");
    }
    world.put("a/n0", 9, "");
    let changed = timeout(Duration::from_secs(60), others.next()).await.unwrap().unwrap();
    assert!(matches!(changed, Event::Updated { resync: false, .. }), "{changed:?}");
}

#[tokio::test(start_paused = true)]
async fn selectors_and_filters_turn_changes_into_comings_and_goings() {
    let world = World::new(8);
    let (_factory, informer) = synced(&world, 0).await;
    let selectors =
        masthead_core::Selectors { labels: "app=x".parse().unwrap(), ..Default::default() };
    let mut selecting = informer.events(&all().select(selectors)).unwrap();
    let even = |it: &masthead_informer::Entry<Thing>| it.decode().unwrap().value.is_multiple_of(2);
    let mut filtering = informer.events(&all().filter(even)).unwrap();
    // The present state is that of the first look.
    assert!(selecting.next().now_or_never().is_none() && filtering.next().now_or_never().is_none());
    world.put("a/n", 1, "app=x");
    world.put("a/n", 2, "app=x");
    world.put("a/n", 4, "app=y");
    world.put("a/n", 5, "app=x");
    world.delete("a/n");
    assert_eq!(
        next_ones(&mut selecting).await,
        ["+a/n@2", "~a/n@2>3", "-a/n@3", "+a/n@5", "-a/n@6"]
    );
    assert_eq!(next_ones(&mut filtering).await, ["+a/n@3", "~a/n@3>4", "-a/n@4"]);
}

#[tokio::test(start_paused = true)]
async fn deletes_say_why_and_how_much_is_known_of_what_is_gone() {
    let world = World::new(9);
    let (factory, informer) = synced(&world, 2).await;
    let mut events = informer.events(&all()).unwrap();
    next_ones::<2>(&mut events).await;
    world.delete("a/n0");
    let Some(Event::Deleted { last, cause, .. }) = events.next().await else { panic!() };
    assert!(matches!(last, LastState::Final(_)), "{last:?}");
    assert_eq!(cause, DeleteCause::Deleted);
    factory.stop().await;
    world.delete("a/n1");
    world.compact();
    factory.start();
    let Some(Event::Deleted { last, cause, .. }) = events.next().await else { panic!() };
    assert!(matches!(last, LastState::LastSeen(_)), "{last:?}");
    assert_eq!(cause, DeleteCause::Relist);
}

#[tokio::test(start_paused = true)]
async fn i8_a_list_of_what_is_known_is_told_to_nobody_and_is_not_held_twice() {
    for how in [Representation::Raw, Representation::Typed, Representation::Compact] {
        let world = World::new(12);
        for n in 0..100 {
            world.put(&format!("a/n{n:02}"), n, "app=x");
        }
        let factory = Factory::new(world.clone());
        let informer = factory.informer::<Thing>().representation(how).build().unwrap();
        factory.start();
        informer.wait_for_sync().await.unwrap();
        let mut events = informer.events(&all()).unwrap();
        next_ones::<100>(&mut events).await;
        let (before, (lists, _)) = (informer.lister(), world.requests());
        factory.stop().await;
        world.put("a/n07", 700, "app=x");
        world.compact();
        factory.start();
        assert_eq!(next(&mut events).await, "~a/n07@9>102", "{how:?}: and nothing before it");
        assert_eq!(world.requests().0, lists + 1, "{how:?}: it was listed");
        let after = informer.lister();
        let other = after.iter().filter(|it| !before.get(it.key()).unwrap().ptr_eq(it));
        assert_eq!(other.map(|it| it.key().to_string()).collect::<Vec<_>>(), ["a/n07"], "{how:?}");
        assert_eq!(events.next().now_or_never().map(|it| it.is_some()), None, "{how:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_removed_handler_hears_nothing_more_and_costs_nothing_more() {
    let world = World::new(10);
    let (factory, informer) = synced(&world, 0).await;
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let handler = move |_: Event<Thing>| {
        counted.fetch_add(1, Ordering::Relaxed);
        async {}
    };
    let handle = informer.add_handler(&all(), handler).unwrap();
    handle.synced().await;
    assert_eq!(factory.report().resources[0].handlers.len(), 1);
    handle.remove();
    while !factory.report().resources[0].handlers.is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    world.put("a/n", 1, "");
    informer.wait_for(masthead_core::Revision(2), Duration::from_secs(60)).await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn r24_a_handler_is_synced_when_it_has_returned_from_all_initial_events() {
    let world = World::new(11);
    let (_factory, informer) = synced(&world, 3).await;
    let seen = Arc::new(Mutex::new(0));
    let counted = seen.clone();
    let handler = move |_: Event<Thing>| {
        let counted = counted.clone();
        async move {
            sleep(Duration::from_secs(1)).await;
            *counted.lock() += 1;
        }
    };
    let handle = informer.add_handler(&all(), handler).unwrap();
    assert!(!handle.report().synced);
    handle.synced().await;
    assert_eq!(*seen.lock(), 3);
}
