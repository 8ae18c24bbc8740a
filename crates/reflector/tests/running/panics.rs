//! Sources and transforms that panic, and what is deleted unread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use masthead_cache::{Batch, Cache, Config, From, Gaps, Interest};
use masthead_core::{Cause, Object};
use masthead_reflector::{
    BoxFuture, Class, Decoder, Driver, Events, Failure, ListRequest, Meter, Page, Scripted,
    ServerMemory, Settings, Source, Strategy, WatchItem, WatchRequest,
};

use crate::{object, on_paused_clock, pass_ms, things};

/// Where a source panics.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Panics {
    InList,
    InPage,
    InWatch,
    InOpening,
    InStream,
    WhenDropped,
}

/// A script that panics in one place at some of its calls.
struct Panicking {
    script: Scripted,
    at: Panics,
    left: Arc<AtomicU32>,
}

impl Panicking {
    fn call(&self, place: Panics) {
        panic_if(self.at == place && take(&self.left), place);
    }
}

/// Takes one of what is left.
fn take(left: &AtomicU32) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_sub(1)).is_ok()
}

fn panic_if(panics: bool, place: Panics) {
    assert!(!panics, "{place:?}");
}

struct Bomb(bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        panic_if(self.0, Panics::WhenDropped);
    }
}

impl Source for Panicking {
    fn list(&self, request: ListRequest, meter: Meter) -> BoxFuture<Result<Page, Failure>> {
        self.call(Panics::InList);
        let panics = self.at == Panics::InPage && take(&self.left);
        let bomb = Bomb(self.at == Panics::WhenDropped && take(&self.left));
        let page = self.script.list(request, meter);
        // Dropped with the future, and not before.
        let mut bomb = Some(bomb);
        let mut page = Box::pin(async move {
            panic_if(panics, Panics::InPage);
            page.await
        });
        Box::pin(std::future::poll_fn(move |cx| {
            let _ = bomb.as_mut();
            page.as_mut().poll(cx)
        }))
    }

    fn watch(&self, request: WatchRequest, meter: Meter) -> BoxFuture<Result<Events, Failure>> {
        self.call(Panics::InWatch);
        let opening = self.at == Panics::InOpening && take(&self.left);
        let left = (self.at == Panics::InStream).then(|| self.left.clone());
        let watch = self.script.watch(request, meter);
        Box::pin(async move {
            panic_if(opening, Panics::InOpening);
            let mut events = watch.await?;
            Ok(Box::pin(futures(move |cx| {
                panic_if(left.as_deref().is_some_and(take), Panics::InStream);
                events.as_mut().poll_next(cx)
            })) as Events)
        })
    }
}

/// A stream of a function.
fn futures<F, T>(poll: F) -> impl futures_core::Stream<Item = T>
where
    F: FnMut(&mut std::task::Context<'_>) -> std::task::Poll<Option<T>> + Unpin,
{
    struct PollFn<F>(F);
    impl<F, T> futures_core::Stream for PollFn<F>
    where
        F: FnMut(&mut std::task::Context<'_>) -> std::task::Poll<Option<T>> + Unpin,
    {
        type Item = T;

        fn poll_next(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<T>> {
            (self.0)(cx)
        }
    }
    PollFn(poll)
}

fn thing(name: &str, version: &str) -> Object {
    object(&things(), name, version)
}

#[test]
fn a_source_that_panics_fails_a_request_and_the_driver_goes_on() {
    use Panics::{InList, InOpening, InPage, InStream, InWatch, WhenDropped};
    for at in [InList, InPage, InWatch, InOpening, InStream, WhenDropped] {
        on_paused_clock(async {
            let script = Scripted::new();
            // What is asked for and then panics is asked for once more.
            let pages = if at == InPage { 3 } else { 1 };
            for _ in 0..pages {
                let (objects, resource_version) = (vec![thing("a", "3")], "10".into());
                script.page(Page { objects, resource_version, ..Page::default() });
            }
            let streams = if matches!(at, InOpening | InStream) { 3 } else { 1 };
            let streams: Vec<_> = (0..streams).map(|_| script.stream()).collect();
            let left = Arc::new(AtomicU32::new(2));
            let source = Panicking { script: script.clone(), at, left: left.clone() };
            let settings = Settings { strategy: Strategy::Pages, ..Settings::default() };
            let (writer, cache) = Cache::new(Config::default());
            let driver = Driver::new(source, writer, settings, ServerMemory::new(), 1);
            let report = driver.report();
            let task = tokio::spawn(driver.run());
            pass_ms(60_000).await;
            assert!(!task.is_finished(), "{at:?}");
            let report = report.borrow().clone();
            assert!(report.synced && report.ended.is_none(), "{at:?}: {report:?}");
            assert_eq!(cache.snapshot().len(), 1, "{at:?}");
            assert_eq!(left.load(Ordering::Relaxed), u32::from(at == WhenDropped), "{at:?}");
            if at != WhenDropped {
                let error = report.last_error.clone().unwrap();
                assert_eq!((error.class, report.errors.of(Class::Panicked)), (Class::Panicked, 2));
                assert!(error.text.contains(&format!("{at:?}")), "{}", error.text);
            }
            drop(streams);
            task.abort();
        });
    }
}

#[test]
fn what_is_deleted_unread_leaves_the_cache_and_is_counted() {
    on_paused_clock(async {
        let source = Scripted::new();
        let stream = source.stream();
        let settings = Settings { strategy: Strategy::Streaming, ..Settings::default() };
        let (writer, cache) = Cache::new(Config::default());
        let driver = Driver::new(source, writer, settings, ServerMemory::new(), 1);
        let report = driver.report();
        tokio::spawn(driver.run());
        let end = WatchItem::Bookmark { resource_version: "9".into(), initial_events_end: true };
        let gone = WatchItem::DeletedUnread(thing("b", "5"));
        let added = ["a", "b"].map(|name| WatchItem::Added(thing(name, "3")));
        stream.send(added.into_iter().chain([gone, end]).collect());
        pass_ms(1).await;
        assert_eq!((cache.snapshot().len(), report.borrow().skipped), (1, 1));
        let mut cursor = cache.subscribe(Interest::all(), From::State, Gaps::End).unwrap();
        let mut batch = Batch::default();
        assert!(cursor.try_read(&mut batch, 100).unwrap());
        stream.send(vec![WatchItem::DeletedUnread(thing("a", "12"))]);
        pass_ms(1).await;
        assert_eq!((cache.snapshot().len(), report.borrow().skipped), (0, 2));
        assert!(cursor.try_read(&mut batch, 100).unwrap());
        let event = &batch.events[0];
        assert_eq!((event.cause, event.object.key().as_str()), (Cause::Watch, "a"));
        assert_eq!(event.object.resource_version(), "3", "the state last seen");
    });
}

const THING: &str = r#"{"metadata":{"name":"NAME","resourceVersion":"7"}}"#;

fn text(name: &str) -> String {
    THING.replace("NAME", name)
}

/// Which calls panic, by their number.
type OfCall = fn(u32) -> bool;

/// A decoder whose transform panics where a function says so, by the number of the call.
fn panicking(panics: impl Fn(u32) -> bool + Send + Sync + 'static) -> Decoder {
    let calls = AtomicU32::new(0);
    Decoder::new(things()).with_transform(move |object| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        assert!(!panics(call), "call {call}");
        object
    })
}

#[test]
fn r13_an_object_whose_transform_panics_is_skipped_and_the_others_are_not() {
    let list: Vec<_> = ["a", "b", "c"].map(text).into();
    let list = format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{}]}}"#, list.join(","));
    let cases: [(OfCall, &str); 3] =
        [(|call| call == 0, "bc"), (|call| call == 1, "ac"), (|_| true, "")];
    for (panics, kept) in cases {
        let page = panicking(panics).page(list.as_bytes()).unwrap();
        let names: String = page.objects.iter().map(|it| it.key().name()).collect();
        assert_eq!((names.as_str(), page.skipped), (kept, 3 - kept.len()));
        let decoder = panicking(panics);
        let items = ["a", "b", "c"].map(|it| decoder.item(text(it).as_bytes()).unwrap());
        let names: String = items.iter().flatten().map(|it| it.key().name()).collect();
        assert_eq!(names, kept);
    }
}

/// The transform runs once also if it panics: the line is not read again.
#[test]
fn r13_an_event_whose_transform_panics_is_skipped_and_a_deletion_counts() {
    let line = |event: &str| format!(r#"{{"type":"{event}","object":{}}}"#, text("a"));
    let decoder = panicking(|call| call % 2 == 0);
    for event in ["ADDED", "MODIFIED"] {
        let skipped = decoder.line(line(event).as_bytes()).unwrap();
        assert!(matches!(skipped, WatchItem::Skipped), "{skipped:?}");
        let taken = decoder.line(line(event).as_bytes()).unwrap();
        assert!(matches!(taken, WatchItem::Added(_) | WatchItem::Modified(_)), "{taken:?}");
    }
    for written in [line("DELETED"), line("DELETED").replace(':', ": ")] {
        let WatchItem::DeletedUnread(object) = decoder.line(written.as_bytes()).unwrap() else {
            panic!("{written}")
        };
        assert_eq!(object.key().as_str(), "a");
        let taken = decoder.line(written.as_bytes()).unwrap();
        assert!(matches!(taken, WatchItem::Deleted(_)), "{taken:?}");
    }
}

#[test]
fn r16_a_transform_that_changes_the_key_is_not_believed() {
    let decoder = Decoder::new(things()).with_transform(|_| thing("other", "7"));
    assert!(decoder.item(text("a").as_bytes()).unwrap().is_none());
    let line = format!(r#"{{"type":"DELETED","object":{}}}"#, text("a"));
    assert!(matches!(decoder.line(line.as_bytes()), Ok(WatchItem::DeletedUnread(_))));
}
