//! Functions of the user that panic: at the first call, at a later one, at every one. All the rest goes on, the
//! log and the report have each of them, and nothing is red that is well.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use masthead_cache::HistoryLimits;
use masthead_core::{Resource, Revision, Status};
use masthead_informer::{
    Entry, Event, Factory, FactorySettings, HandlerOptions, Index, Informer, Representation,
    SyncError, Transform,
};
use masthead_reflector::{Failure, Strategy};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Deserializer};
use tokio::time::{sleep, timeout};

use crate::logs::Logs;
use crate::world::{Thing, World, things};

mod ends;

/// Which calls of a function panic.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Panics {
    First,
    Third,
    Every,
}

impl Panics {
    const ALL: [Self; 3] = [Self::First, Self::Third, Self::Every];

    /// Something to be called first in a function: panics where this says so, with a count.
    fn fuse(self) -> (Arc<AtomicU64>, impl Fn() + Clone + Send + Sync + 'static) {
        let (calls, panics) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
        let (calls, counted) = (Arc::new(calls), panics.clone());
        let fuse = move || {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            let panic = match self {
                Self::First => call == 0,
                Self::Third => call == 2,
                Self::Every => true,
            };
            if panic {
                panics.fetch_add(1, Ordering::Relaxed);
                panic!("fuse {call}");
            }
        };
        (counted, fuse)
    }
}

/// Runs on a clock that jumps ahead whenever everything waits.
fn on_paused_clock<T>(test: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(test)
}

/// Lets all happen that is to happen.
async fn settle(world: &World, informer: &Informer<Thing>) {
    informer.wait_for(Revision(world.rv()), Duration::from_secs(60)).await.unwrap();
    sleep(Duration::from_secs(2)).await;
}

fn names(informer: &Informer<Thing>) -> String {
    informer.lister().iter().map(|it| it.name().to_owned()).collect()
}

fn load(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

fn metrics(factory: &Factory) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(factory.metrics()));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text
}

/// What the figures of the tests' resource begin with.
const OF: &str = "{resource=\"things.test\",namespace=\"\"";

/// Nothing ended, and everything is synced.
fn assert_well(factory: &Factory) {
    let report = factory.report();
    assert!(report.is_complete() && report.ended.is_empty(), "{report}");
    let text = metrics(factory);
    assert!(text.contains("masthead_informer_tasks_ended 0.0"), "{text}");
}

fn assert_metric(factory: &Factory, name: &str, labels: &str, value: u64) {
    let line = format!("masthead_informer_{name}{OF}{labels}}} {value}");
    let text = metrics(factory);
    assert!(text.lines().any(|it| it.starts_with(&line)), "{line} is not in\n{text}");
}

fn assert_logged(logs: &Logs, words: &[&str], count: u64) {
    assert_eq!(logs.count(words) as u64, count, "{words:?} in\n{}", logs.text());
}

/// A handler whose filter panics hears of the objects concerned, each in its order, and others hear all.
async fn filter_panics(panics: Panics) {
    let (logs, _guard) = Logs::begin();
    let world = World::new(1);
    let factory = Factory::new(world.clone());
    let informer = factory.informer::<Thing>().build().unwrap();
    let (count, fuse) = panics.fuse();
    let filter = move |entry: &Entry<Thing>| {
        fuse();
        entry.decode().unwrap().value < 10
    };
    let mut views = Vec::new();
    for options in [HandlerOptions::default().filter(filter), HandlerOptions::default()] {
        let view = Arc::new(Mutex::new(BTreeSet::new()));
        let known = view.clone();
        let handler = move |event: Event<Thing>| {
            let name = event.key().name().to_owned();
            let in_order = match &event {
                Event::Added { .. } => known.lock().insert(name),
                Event::Updated { .. } => known.lock().contains(&name),
                Event::Deleted { .. } => known.lock().remove(&name),
            };
            assert!(in_order, "{event:?}");
            async {}
        };
        views.push((informer.add_handler(&options.named("mine"), handler).unwrap(), view));
    }
    for (name, value) in [("a", 1), ("b", 2), ("c", 30), ("d", 40)] {
        world.put(&format!("x/{name}"), value, "");
    }
    factory.start();
    factory.wait_for_sync().await.unwrap();
    settle(&world, &informer).await;
    world.put("x/c", 31, "");
    world.put("x/a", 3, "");
    world.put("x/d", 4, "");
    world.delete("x/b");
    settle(&world, &informer).await;
    let seen = |at: usize| views[at].1.lock().iter().map(String::as_str).collect::<String>();
    let kept = if panics == Panics::Every { "acd" } else { "ad" };
    assert_eq!((seen(0).as_str(), seen(1).as_str()), (kept, "acd"), "{panics:?}");
    let report = views[0].0.report();
    assert_eq!((report.filter_panics, report.panics, report.ended), (load(&count), 0, None));
    assert!(load(&count) >= 1);
    let words = ["filter panicked", "handler=mine", "things.test", "key=x/", "panic=fuse"];
    assert_logged(&logs, &words, load(&count));
    let panicked: u64 = factory.report().resources[0].handlers.iter().map(|it| it.panics).sum();
    assert_eq!(panicked, 0, "{}", logs.text());
    assert_metric(&factory, "handler_filter_panics_total", r#",handler="mine""#, load(&count));
    assert_well(&factory);
}

#[test]
fn a_filter_that_panics_chooses_the_object() {
    for panics in Panics::ALL {
        on_paused_clock(filter_panics(panics));
    }
}

/// The housekeeping asks filters what a reader knew whose place it gives up.
#[tokio::test(start_paused = true)]
async fn a_filter_that_panics_does_not_end_the_housekeeping() {
    let (logs, _guard) = Logs::begin();
    let world = World::new(2);
    let settings = FactorySettings { pinned_bytes: 0, ..FactorySettings::default() };
    let factory = Factory::with_settings(world.clone(), settings).unwrap();
    let history = HistoryLimits { changes: 2, ..HistoryLimits::default() };
    let informer = factory.informer::<Thing>().history(history).build().unwrap();
    let (count, fuse) = Panics::Every.fuse();
    let options = HandlerOptions::default().named("slow").filter(move |_| {
        fuse();
        true
    });
    let mut events = informer.events(&options).unwrap();
    world.put("x/a", 1, "");
    factory.start();
    factory.wait_for_sync().await.unwrap();
    assert!(matches!(events.next().await, Some(Event::Added { .. })));
    // Twice: after the first time the housekeeping is still there.
    for round in 1..=2 {
        for n in 0..200 {
            world.put("x/a", n, "");
            world.put(&format!("x/b{n}"), n, "");
        }
        settle(&world, &informer).await;
        sleep(Duration::from_secs(5)).await;
        let report = factory.report().resources[0].handlers[0].clone();
        assert_eq!(report.stalls, round, "{report:?}");
        while timeout(Duration::from_secs(1), events.next()).await.is_ok() {}
    }
    assert!(load(&count) > 200);
    assert_logged(&logs, &["filter panicked", "handler=slow"], load(&count));
    assert_well(&factory);
}

/// Objects whose transform panics are skipped, whatever they come with; a deletion counts.
async fn transform_panics(panics: Panics, representation: Representation, strategy: Strategy) {
    let (logs, _guard) = Logs::begin();
    let world = World::new(3);
    let settings = FactorySettings { strategy, ..FactorySettings::default() };
    let factory = Factory::with_settings(world.clone(), settings).unwrap();
    let (count, fuse) = panics.fuse();
    let transform = Transform::new(move |value| {
        fuse();
        value["value"] = 100.into();
    });
    let builder = factory.informer::<Thing>().representation(representation);
    let informer = builder.transform(transform).build().unwrap();
    for name in ["a", "b", "c", "d"] {
        world.put(&format!("x/{name}"), 1, "");
    }
    factory.start();
    factory.wait_for_sync().await.unwrap();
    settle(&world, &informer).await;
    let listed = match panics {
        Panics::First => "bcd",
        Panics::Third => "abd",
        Panics::Every => "",
    };
    assert_eq!(names(&informer), listed, "{panics:?}");
    world.put("x/e", 1, "");
    world.put("x/a", 2, "");
    world.delete("x/d");
    settle(&world, &informer).await;
    let (now, skipped) = match panics {
        Panics::First => ("abce", 1),
        Panics::Third => ("abe", 1),
        Panics::Every => ("", 7),
    };
    assert_eq!(names(&informer), now, "{panics:?} {representation:?} {strategy:?}");
    for entry in informer.lister().iter() {
        assert_eq!(entry.decode().unwrap().value, 100, "{entry:?} is not what it should be");
    }
    let it = factory.report().resources[0].clone();
    assert_eq!((it.report.skipped, it.panics.transforms), (skipped, load(&count)));
    assert_eq!(skipped, load(&count), "{panics:?}");
    let words = ["user function panicked", "resource=things.test", "key=x/", "transform", "fuse"];
    assert_logged(&logs, &words, skipped);
    assert_logged(&logs, &["panic"], skipped);
    assert_metric(&factory, "user_panics_total", r#",function="transform""#, skipped);
    assert_metric(&factory, "skipped_total", "", skipped);
    assert_well(&factory);
}

#[test]
fn r13_an_object_whose_transform_panics_is_skipped() {
    for strategy in [Strategy::Pages, Strategy::Streaming] {
        for representation in [Representation::Raw, Representation::Typed, Representation::Compact]
        {
            for it in Panics::ALL {
                on_paused_clock(transform_panics(it, representation, strategy));
            }
        }
    }
}

/// What was held before is deleted although its last state cannot be transformed.
#[tokio::test(start_paused = true)]
async fn r13_a_deletion_counts_whatever_the_transform_makes_of_the_last_state() {
    let world = World::new(4);
    let factory = Factory::new(world.clone());
    let broken = Arc::new(AtomicU64::new(0));
    let says = broken.clone();
    let transform = Transform::new(move |_| assert!(says.load(Ordering::Relaxed) == 0, "broken"));
    let informer = factory.informer::<Thing>().transform(transform).build().unwrap();
    let mut events = informer.events(&HandlerOptions::default()).unwrap();
    world.put("x/a", 1, "");
    factory.start();
    factory.wait_for_sync().await.unwrap();
    assert!(matches!(events.next().await, Some(Event::Added { .. })));
    broken.store(1, Ordering::Relaxed);
    world.delete("x/a");
    settle(&world, &informer).await;
    assert_eq!(names(&informer), "");
    let Some(Event::Deleted { last, .. }) = events.next().await else { panic!("not deleted") };
    assert_eq!(last.entry().unwrap().decode().unwrap().value, 1, "the state last seen");
    assert_eq!(factory.report().resources[0].report.skipped, 1);
}

/// The objects concerned are not in the index until they change, and the other indexes have them.
async fn index_panics(panics: Panics) {
    let (logs, _guard) = Logs::begin();
    let world = World::new(5);
    let factory = Factory::new(world.clone());
    let (count, fuse) = panics.fuse();
    let index = Index::by("value", move |thing: &Thing, values| {
        values.push("before");
        fuse();
        values.push(&thing.value.to_string());
    });
    let builder = factory.informer::<Thing>().index(index);
    let informer = builder.index(Index::label("app", "app")).build().unwrap();
    for name in ["a", "b", "c", "d"] {
        world.put(&format!("x/{name}"), 7, "app=x");
    }
    factory.start();
    factory.wait_for_sync().await.unwrap();
    let found = |index: &str, value: &str| {
        let state = informer.lister();
        let found = state.by_index(index, value).unwrap().map(|it| it.name().to_owned());
        found.collect::<BTreeSet<_>>().into_iter().collect::<String>()
    };
    settle(&world, &informer).await;
    let indexed = match panics {
        Panics::First => "bcd",
        Panics::Third => "abd",
        Panics::Every => "",
    };
    assert_eq!((found("value", "7"), found("value", "before")), (indexed.into(), indexed.into()));
    assert_eq!(found("app", "x"), "abcd");
    for name in ["a", "c"] {
        world.put(&format!("x/{name}"), 7, "app=x");
    }
    settle(&world, &informer).await;
    let indexed = if panics == Panics::Every { "" } else { "abcd" };
    assert_eq!((found("value", "7").as_str(), found("app", "x").as_str()), (indexed, "abcd"));
    let expected = if panics == Panics::Every { 6 } else { 1 };
    assert_eq!(load(&count), expected);
    assert_eq!(factory.report().resources[0].panics.indexes, expected);
    let words = ["user function panicked", "things.test", "key=x/", "function=index", "fuse"];
    assert_logged(&logs, &words, expected);
    assert_metric(&factory, "user_panics_total", r#",function="index""#, expected);
    assert_well(&factory);
}

#[test]
fn an_object_whose_index_function_panics_is_left_out_of_that_index() {
    for panics in Panics::ALL {
        on_paused_clock(index_panics(panics));
    }
}

std::thread_local! {
    /// The value at which the destructor of a [`Fussy`] panics, or zero.
    static DROPS: AtomicU64 = const { AtomicU64::new(0) };
}

/// A type whose decoding panics at 13, and whose destructor panics where a test says so.
#[derive(Debug)]
struct Fussy(u64);

impl<'de> Deserialize<'de> for Fussy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Thing { value } = Thing::deserialize(deserializer)?;
        assert!(value != 13, "no thirteen");
        Ok(Self(value))
    }
}

impl Drop for Fussy {
    fn drop(&mut self) {
        let panics = self.0 > 0 && DROPS.with(|drops| drops.load(Ordering::Relaxed) == self.0);
        assert!(!panics || std::thread::panicking(), "dropped {}", self.0);
    }
}

impl masthead_informer::Kind for Fussy {
    fn resource() -> Resource {
        things()
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_decoding_panics_is_held_as_it_came() {
    let (logs, _guard) = Logs::begin();
    let world = World::new(6);
    let factory = Factory::new(world.clone());
    let builder = factory.informer::<Fussy>().representation(Representation::Typed);
    let informer = builder.build().unwrap();
    for (name, value) in [("a", 13), ("b", 7), ("c", 13)] {
        world.put(&format!("x/{name}"), value, "");
    }
    factory.start();
    factory.wait_for_sync().await.unwrap();
    let get = |name: &str| informer.lister().get_str(name).unwrap();
    assert_eq!(get("x/b").decode().unwrap().0, 7);
    assert!(get("x/a").json().is_ok(), "it is held as JSON");
    world.put("x/a", 8, "");
    informer.wait_for(Revision(world.rv()), Duration::from_secs(60)).await.unwrap();
    assert_eq!(get("x/a").decode().unwrap().0, 8);
    assert_eq!(factory.report().resources[0].panics.decodes, 2);
    assert_logged(&logs, &["key=x/a", "function=decode", "no thirteen"], 1);
    assert_logged(&logs, &["panic"], 2);
    assert_metric(&factory, "user_panics_total", r#",function="decode""#, 2);
    assert_well(&factory);
}

async fn error_callback_panics(panics: Panics) {
    let (logs, _guard) = Logs::begin();
    let world = World::new(7);
    let factory = Factory::new(world.clone());
    let (count, fuse) = panics.fuse();
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    factory.on_error(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        fuse();
    });
    let informer = factory.informer::<Thing>().build().unwrap();
    world.refuse(Some(Status::of_response(403, b"").into()));
    factory.start();
    sleep(Duration::from_secs(60)).await;
    assert!(load(&calls) >= 4, "it is called again: {}", load(&calls));
    world.refuse(None);
    sleep(Duration::from_secs(120)).await;
    assert!(informer.has_synced());
    assert_eq!(factory.report().resources[0].panics.error_callbacks, load(&count));
    let words = ["things.test", "function=error_callback", "panic=fuse"];
    assert_logged(&logs, &words, load(&count));
    let function = r#",function="error_callback""#;
    assert_metric(&factory, "user_panics_total", function, load(&count));
    assert_well(&factory);
}

#[test]
fn an_error_callback_that_panics_is_called_again() {
    for panics in Panics::ALL {
        on_paused_clock(error_callback_panics(panics));
    }
}

async fn handler_panics(panics: Panics, before_the_future: bool) {
    let (logs, _guard) = Logs::begin();
    let world = World::new(8);
    let factory = Factory::new(world.clone());
    let informer = factory.informer::<Thing>().build().unwrap();
    let (count, fuse) = panics.fuse();
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let handler = move |_: Event<Thing>| {
        counted.fetch_add(1, Ordering::Relaxed);
        if before_the_future {
            fuse();
        }
        let fuse = fuse.clone();
        async move {
            if !before_the_future {
                fuse();
            }
        }
    };
    let options = HandlerOptions::default().named("mine");
    let handle = informer.add_handler(&options, handler).unwrap();
    factory.start();
    for n in 0..5 {
        world.put("x/a", n, "");
        informer.wait_for_sync().await.unwrap();
        settle(&world, &informer).await;
    }
    assert_eq!(load(&calls), 5);
    assert!(handle.report().synced);
    assert_eq!((handle.report().panics, handle.report().ended), (load(&count), None));
    let words = ["handler panicked", "handler=mine", "things.test", "key=x/a", "panic=fuse"];
    assert_logged(&logs, &words, load(&count));
    assert_metric(&factory, "handler_panics_total", r#",handler="mine""#, load(&count));
    assert_well(&factory);
}

#[test]
fn r21_a_handler_that_panics_is_called_again_and_the_log_has_its_text() {
    for before_the_future in [false, true] {
        for panics in Panics::ALL {
            on_paused_clock(handler_panics(panics, before_the_future));
        }
    }
}

/// A source of the user's own that panics is asked again.
#[tokio::test(start_paused = true)]
async fn a_source_that_panics_is_a_failure_with_its_text() {
    let (logs, _guard) = Logs::begin();
    let world = World::new(11);
    world.put("x/a", 1, "");
    world.refuse(Some(Failure::Panicked("as a source would".into())));
    let factory = Factory::new(world.clone());
    let informer = factory.informer::<Thing>().build().unwrap();
    factory.start();
    sleep(Duration::from_secs(5)).await;
    let report = factory.report().to_string();
    assert!(report.contains("the source panicked: as a source would"), "{report}");
    world.refuse(None);
    informer.wait_for_sync().await.unwrap();
    assert!(logs.count(&["source panicked", "resource=things.test", "as a source would"]) >= 1);
    assert_well(&factory);
}
