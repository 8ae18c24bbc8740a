//! The driver with a scripted source.

use masthead_cache::{Batch, Cache, Config, From, Gaps, Interest};
use masthead_core::{Object, Revision};
use masthead_reflector::{
    Class, Driver, Failure, Page, Phase, Report, Scripted, ServerMemory, Settings, Strategy,
    WatchItem,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::{object, on_paused_clock, pass_ms, things};

fn thing(name: &str, version: &str) -> Object {
    object(&things(), name, version)
}

fn page(version: &str, objects: Vec<Object>) -> Page {
    Page { objects, resource_version: version.into(), ..Page::default() }
}

fn mark(version: &str) -> WatchItem {
    WatchItem::Bookmark { resource_version: version.into(), initial_events_end: false }
}

struct Running {
    source: Scripted,
    cache: Cache,
    report: watch::Receiver<Report>,
    task: JoinHandle<()>,
}

impl Running {
    fn start(source: &Scripted, strategy: Strategy) -> Self {
        let (writer, cache) = Cache::new(Config::default());
        let settings = Settings { strategy, ..Settings::default() };
        let driver = Driver::new(source.clone(), writer, settings, ServerMemory::new(), 1);
        let report = driver.report();
        let task = tokio::spawn(async move {
            driver.run().await;
        });
        Self { source: source.clone(), cache, report, task }
    }

    fn names(&self) -> String {
        let all: Vec<_> = self.cache.snapshot().iter().map(|it| format!("{it:?}")).collect();
        all.join(" ")
    }

    fn report(&self) -> Report {
        self.report.borrow().clone()
    }
}

#[test]
fn a_list_and_a_watch_fill_the_cache_without_a_gap() {
    on_paused_clock(async {
        let source = Scripted::new();
        source.page(page("10", vec![thing("a", "3"), thing("b", "4")]));
        let first = source.stream();
        let second = source.stream();
        let running = Running::start(&source, Strategy::Pages);
        pass_ms(1).await;
        assert_eq!((running.names().as_str(), running.report().synced), ("a@3 b@4", true));

        first.send(vec![WatchItem::Modified(thing("a", "11"))]);
        pass_ms(1).await;
        drop(first);
        second.send(vec![WatchItem::Deleted(thing("b", "12")), mark("20")]);
        pass_ms(1).await;
        assert_eq!(running.names(), "a@11");
        assert_eq!(running.cache.revision(), Revision(20));
        assert_eq!(running.source.asked(), ["list", "watch rv=10", "watch rv=11"]);
    });
}

#[test]
fn what_is_ready_is_applied_as_one_batch() {
    on_paused_clock(async {
        let source = Scripted::new();
        source.page(page("10", vec![]));
        let stream = source.stream();
        let running = Running::start(&source, Strategy::Pages);
        pass_ms(1).await;
        let from = From::After(Revision(10));
        let mut cursor = running.cache.subscribe(Interest::all(), from, Gaps::End).unwrap();
        for version in 11..=15 {
            stream.send(vec![WatchItem::Added(thing("a", &version.to_string()))]);
        }
        let held = running.cache.snapshot();
        pass_ms(1).await;
        let mut batch = Batch::default();
        assert!(cursor.try_read(&mut batch, 100).unwrap());
        assert_eq!(batch.events.len(), 5);
        assert_eq!((held.revision(), running.cache.revision()), (Revision(10), Revision(15)));
    });
}

#[test]
fn initial_events_fill_the_cache_and_their_stream_goes_on() {
    on_paused_clock(async {
        let source = Scripted::new();
        let stream = source.stream();
        let running = Running::start(&source, Strategy::Streaming);
        stream.send(vec![WatchItem::Added(thing("a", "3"))]);
        pass_ms(1).await;
        assert_eq!(running.report().phase, Phase::Streaming { objects: 1 });
        assert!(!running.cache.is_ready(), "nothing is shown before the list is whole");
        let end = WatchItem::Bookmark { resource_version: "9".into(), initial_events_end: true };
        stream.send(vec![end, WatchItem::Added(thing("b", "10"))]);
        pass_ms(1).await;
        assert_eq!((running.names().as_str(), running.report().phase), ("a@3 b@10", Phase::Synced));
        assert_eq!(running.source.asked(), ["watch rv= initial"]);
    });
}

#[test]
fn a_dropped_driver_cancels_its_request() {
    on_paused_clock(async {
        let listing = Scripted::new();
        let running = Running::start(&listing, Strategy::Pages);
        pass_ms(1).await;
        running.task.abort();
        pass_ms(1).await;
        assert_eq!(listing.cancelled(), 1);

        let watching = Scripted::new();
        watching.page(page("10", vec![]));
        let stream = watching.stream();
        let running = Running::start(&watching, Strategy::Pages);
        pass_ms(1).await;
        running.task.abort();
        pass_ms(1).await;
        assert!(!stream.send(vec![]), "nobody listens");
        assert_eq!(watching.cancelled(), 1);
        assert!(running.report().synced, "the last report stays readable");
    });
}

#[test]
fn the_report_shows_a_list_and_its_stall() {
    on_paused_clock(async {
        let source = Scripted::new();
        let continue_token = "t".to_owned();
        let first = page("10", vec![thing("a", "3")]);
        source.page(Page { continue_token, remaining: Some(2), ..first });
        source.stall_after(1_000);
        let running = Running::start(&source, Strategy::Pages);
        pass_ms(10).await;
        let report = running.report();
        assert_eq!(report.phase.to_string(), "listing 1 of ~3");
        assert_eq!((report.pages, report.bytes, report.attempts), (1, 1_000, 1));

        pass_ms(30_000).await;
        assert_eq!(running.report().last_error.unwrap().class, Class::TimedOutProgress);
        assert_eq!(running.source.asked(), ["list", "list continue=t", "list continue=t"]);
        assert_eq!(running.source.cancelled(), 1);
    });
}

#[test]
fn the_report_says_what_is_wrong_and_when_the_next_try_is() {
    on_paused_clock(async {
        let source = Scripted::new();
        source.fail(Failure::from_response(403, b"", None));
        source.page(page("10", vec![]));
        let running = Running::start(&source, Strategy::Pages);
        pass_ms(10).await;
        let report = running.report();
        assert_eq!((report.phase, report.synced), (Phase::Failed, false));
        assert_eq!(report.last_error.as_ref().unwrap().class, Class::Forbidden);
        assert!(report.advice().unwrap().starts_with("Grant"));
        assert!((800..=1_600).contains(&report.next_try.unwrap().0));
        pass_ms(1_700).await;
        assert!(running.report().synced, "rights often come later");
    });
}

#[test]
fn r12_a_source_without_versions_repeats_itself_without_effect() {
    on_paused_clock(async {
        let source = Scripted::new();
        source.page(page("", vec![thing("a", "x1")]));
        let stream = source.stream();
        let running = Running::start(&source, Strategy::Pages);
        pass_ms(1).await;
        let before = running.cache.snapshot();
        let interest = Interest::all();
        let from = From::After(before.revision());
        let mut cursor = running.cache.subscribe(interest, from, Gaps::End).unwrap();
        stream.send(vec![WatchItem::Added(thing("a", "x1")), WatchItem::Added(thing("b", "x2"))]);
        pass_ms(1).await;
        let mut batch = Batch::default();
        assert!(cursor.try_read(&mut batch, 100).unwrap());
        let changed: Vec<_> =
            batch.events.iter().map(|event| format!("{:?}", event.object)).collect();
        assert_eq!(changed, ["b@x2"]);
        assert!(running.report().opaque);
    });
}

#[test]
fn i08_a_relist_keeps_the_objects_that_it_repeats() {
    on_paused_clock(async {
        let source = Scripted::new();
        source.page(page("10", vec![thing("a", "3"), thing("b", "4")]));
        source.fail(Failure::from_response(410, b"", None));
        source.page(page("20", vec![thing("a", "3"), thing("b", "15")]));
        let running = Running::start(&source, Strategy::Pages);
        let mut report = running.report.clone();
        report.wait_for(|report| report.synced).await.unwrap();
        let before = running.cache.snapshot().get_str("a").unwrap();
        pass_ms(10).await;
        assert_eq!(running.names(), "a@3 b@15");
        let after = running.cache.snapshot().get_str("a").unwrap();
        assert_eq!(before.body().as_ptr(), after.body().as_ptr());
        assert_eq!(running.report().relists.expired, 1);
    });
}
