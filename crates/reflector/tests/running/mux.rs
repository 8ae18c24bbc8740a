//! The multiplexer over a store in memory.

use std::future::poll_fn;

use masthead_cache::{Cache, Config};
use masthead_core::{Resource, Revision, Scope};
use masthead_reflector::{
    Class, Driver, Events, Failure, Meter, Mux, MuxSource, Pace, ServerMemory, Settings, Source,
    Strategy, WatchFrom, WatchItem, WatchRequest,
};

use crate::store::Store;
use crate::{on_paused_clock, pass_ms};

fn resource(plural: &str) -> Resource {
    Resource::new("test", "v1", plural, "Thing", Scope::Cluster)
}

fn start(mux: &Mux) {
    let mux = mux.clone();
    tokio::spawn(async move {
        mux.run(Pace::default(), 1).await;
    });
}

/// A cache on a lane of its own, kept in step by a driver.
fn follow(mux: &Mux, resource: &Resource) -> Cache {
    let (source, lane) = mux.source(resource);
    let (writer, cache) = Cache::new(Config { lane: Some(lane), ..Config::default() });
    let settings = Settings { strategy: Strategy::Pages, ..Settings::default() };
    let driver = Driver::new(source, writer, settings, ServerMemory::new(), 1);
    tokio::spawn(async move {
        driver.run().await;
    });
    cache
}

fn names(cache: &Cache) -> String {
    let all: Vec<_> = cache.snapshot().iter().map(|it| format!("{it:?}")).collect();
    all.join(" ")
}

async fn watch(source: &MuxSource, from: Revision) -> Result<Events, Failure> {
    let timeout = std::time::Duration::from_secs(300);
    let from = WatchFrom::After(from.to_string());
    source.watch(WatchRequest { from, timeout, elsewhere: false }, Meter::default()).await
}

async fn next(events: &mut Events) -> Option<Result<Vec<WatchItem>, Failure>> {
    poll_fn(|cx| events.as_mut().poll_next(cx)).await
}

/// Reads until the stream's end: the objects' revisions and the failure.
async fn drain(events: &mut Events) -> (Vec<u64>, Failure) {
    let mut revisions = Vec::new();
    loop {
        match next(events).await.expect("a stream ends with a failure") {
            Ok(items) => revisions.extend(items.iter().filter_map(revision)),
            Err(failure) => return (revisions, failure),
        }
    }
}

fn revision(item: &WatchItem) -> Option<u64> {
    match item {
        WatchItem::Added(object) | WatchItem::Modified(object) | WatchItem::Deleted(object) => {
            Some(object.revision().0)
        }
        _ => None,
    }
}

#[test]
fn lanes_open_at_any_time_and_miss_nothing() {
    on_paused_clock(async {
        let (pods, secrets) = (resource("pods"), resource("secrets"));
        let store = Store::new();
        store.put(&pods, "before");
        let mux = Mux::new(store.clone());
        let first = follow(&mux, &pods);
        start(&mux);
        for round in 0..50 {
            store.put(&pods, &format!("p{}", round % 7));
            store.put(&secrets, &format!("s{}", round % 5));
            if round == 20 {
                let late = follow(&mux, &secrets);
                store.put(&secrets, "in between");
                pass_ms(1).await;
                assert_eq!(names(&late), store.names(&secrets));
            }
            if round % 10 == 9 {
                store.delete(&pods, &format!("p{}", round % 7));
            }
            if round % 3 == 0 {
                pass_ms(1).await;
            }
        }
        pass_ms(1).await;
        assert_eq!(names(&first), store.names(&pods));
        let again = follow(&mux, &secrets);
        pass_ms(1).await;
        assert_eq!(names(&again), store.names(&secrets));
        assert_eq!(store.watches(), 1, "one watch for all of them");
    });
}

#[test]
fn a_write_to_one_resource_moves_the_caches_of_all() {
    on_paused_clock(async {
        let (pods, secrets) = (resource("pods"), resource("secrets"));
        let store = Store::new();
        store.put(&secrets, "quiet");
        let mux = Mux::new(store.clone());
        start(&mux);
        let (busy, quiet) = (follow(&mux, &pods), follow(&mux, &secrets));
        pass_ms(1).await;
        let revision = store.put(&pods, "p");
        quiet.wait_for(revision).await;
        assert_eq!((busy.revision(), quiet.revision()), (revision, revision));
        assert_eq!(names(&quiet), store.names(&secrets));
    });
}

#[test]
fn a_slow_lane_is_cut_off_and_the_others_go_on() {
    on_paused_clock(async {
        let (pods, secrets) = (resource("pods"), resource("secrets"));
        let store = Store::new();
        let mux = Mux::with_limits(store.clone(), 100, 4);
        start(&mux);
        let (slow, _lane) = mux.source(&pods);
        let others = follow(&mux, &secrets);
        pass_ms(1).await;
        let mut stream = watch(&slow, Revision(1)).await.unwrap();
        for _ in 0..10 {
            store.put(&pods, "p");
            store.put(&secrets, "s");
            pass_ms(1).await;
        }
        assert_eq!(names(&others), store.names(&secrets), "nobody waits for the slow one");

        let (seen, failure) = drain(&mut stream).await;
        assert_eq!((seen.as_slice(), &failure), (&[2, 4, 6, 8][..], &Failure::CutOff));
        // It comes back to where it was, and the rest is there.
        let mut stream = watch(&slow, Revision(8)).await.unwrap();
        let rest = next(&mut stream).await.unwrap().unwrap();
        assert_eq!(rest.iter().filter_map(revision).collect::<Vec<_>>(), [10, 12, 14, 16, 18, 20]);
    });
}

#[test]
fn a_lane_that_is_too_far_behind_has_to_list() {
    on_paused_clock(async {
        let (pods, secrets) = (resource("pods"), resource("secrets"));
        let store = Store::new();
        let mux = Mux::with_limits(store.clone(), 3, 4);
        start(&mux);
        let (source, _lane) = mux.source(&pods);
        let _others = follow(&mux, &secrets);
        pass_ms(1).await;
        for _ in 0..10 {
            store.put(&pods, "p");
        }
        pass_ms(1).await;
        assert_eq!(watch(&source, Revision(6)).await.err().unwrap().class(), Class::Expired);
        let mut stream = watch(&source, Revision(9)).await.unwrap();
        let rest = next(&mut stream).await.unwrap().unwrap();
        assert_eq!(rest.iter().filter_map(revision).collect::<Vec<_>>(), [10, 11]);
    });
}

#[test]
fn a_slow_cache_catches_up_by_itself() {
    on_paused_clock(async {
        let pods = resource("pods");
        let store = Store::new();
        let mux = Mux::with_limits(store.clone(), 2, 1);
        start(&mux);
        let cache = follow(&mux, &pods);
        pass_ms(1).await;
        // All of it before the driver runs again: cut off, and too far behind to resume.
        for round in 0..20 {
            store.put(&pods, &format!("p{round}"));
            tokio::task::yield_now().await;
        }
        pass_ms(10_000).await;
        assert_eq!(names(&cache), store.names(&pods));
    });
}

#[test]
fn the_upstream_watch_is_resumed_and_after_compaction_all_lanes_list() {
    on_paused_clock(async {
        let (pods, secrets) = (resource("pods"), resource("secrets"));
        let store = Store::new();
        let mux = Mux::new(store.clone());
        start(&mux);
        let caches =
            [(pods.clone(), follow(&mux, &pods)), (secrets.clone(), follow(&mux, &secrets))];
        for compact in [false, true] {
            pass_ms(5_000).await;
            store.put(&pods, "kept");
            store.put(&secrets, "gone");
            pass_ms(1).await;
            store.cut(compact);
            store.put(&pods, "while away");
            store.delete(&secrets, "gone");
            pass_ms(60_000).await;
            for (resource, cache) in &caches {
                assert_eq!(names(cache), store.names(resource), "compacted: {compact}");
            }
        }
    });
}

#[test]
fn a_quiet_lane_hears_where_the_upstream_is() {
    on_paused_clock(async {
        let (pods, secrets) = (resource("pods"), resource("secrets"));
        let store = Store::new();
        let mux = Mux::with_limits(store.clone(), 4, 100);
        start(&mux);
        let (quiet, _lane) = mux.source(&secrets);
        let _busy = follow(&mux, &pods);
        pass_ms(1).await;
        let mut stream = watch(&quiet, Revision(1)).await.unwrap();
        pass_ms(61_000).await;
        let once_a_minute = next(&mut stream).await.unwrap().unwrap();
        assert!(matches!(&once_a_minute[..], [WatchItem::Bookmark { .. }]));
        // And before what it would resume from is thrown away.
        for _ in 0..20 {
            store.put(&pods, "p");
            pass_ms(1).await;
        }
        let mut told = 0;
        while let Ok(Some(Ok(items))) =
            tokio::time::timeout(std::time::Duration::from_millis(1), next(&mut stream)).await
        {
            let [WatchItem::Bookmark { resource_version, .. }] = &items[..] else { panic!() };
            told = resource_version.parse().unwrap();
        }
        assert!(watch(&quiet, Revision(told)).await.is_ok(), "resumable from {told}");
    });
}

#[test]
fn a_lane_promises_nothing_while_nobody_reads_it() {
    on_paused_clock(async {
        let (pods, secrets) = (resource("pods"), resource("secrets"));
        let store = Store::new();
        let mux = Mux::new(store.clone());
        start(&mux);
        let (source, lane) = mux.source(&secrets);
        let (mut writer, cache) = Cache::new(Config { lane: Some(lane), ..Config::default() });
        pass_ms(1).await;
        writer.replace(Vec::new(), Revision(1), masthead_core::Time(0)).unwrap();
        let _busy = follow(&mux, &pods);
        let stream = watch(&source, Revision(1)).await.unwrap();
        for _ in 0..5 {
            store.put(&pods, "p");
        }
        pass_ms(1).await;
        assert_eq!(cache.revision(), Revision(6));
        drop(stream);
        store.put(&pods, "p");
        pass_ms(1).await;
        assert_eq!(cache.revision(), Revision(1), "only what it has itself");
    });
}
