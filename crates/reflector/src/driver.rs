//! Runs a machine on a source into a cache.

use std::convert::Infallible;
use std::future::{Future, poll_fn, ready};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use masthead_cache::{Cache, Writer};
use masthead_core::{Mutation, Panic, Time, contain};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until};
use tracing::error;

use crate::limits::BATCH_EVENTS_MAX;
use crate::source::{BoxFuture, Events};
use crate::{
    Failure, Meter, Output, Page, Reflector, Report, RequestId, ServerMemory, Settings, Source,
    Start, WatchItem, share_unchanged,
};

/// Owns a [`Reflector`], its [`Source`] and the [`Writer`] of the cache, and lives on tokio's clock.
///
/// ```no_run
/// # use masthead_reflector::{Driver, Source, Settings, ServerMemory};
/// # async fn example(source: impl Source + 'static) {
/// let (writer, cache) = masthead_cache::Cache::new(masthead_cache::Config::default());
/// let driver = Driver::new(source, writer, Settings::default(), ServerMemory::new(), 1);
/// let mut report = driver.report();
/// tokio::spawn(driver.run());
/// report.wait_for(|report| report.synced).await.unwrap();
/// # }
/// ```
pub struct Driver<S> {
    machine: Reflector,
    source: S,
    writer: Writer,
    cache: Cache,
    began: Instant,
    request: Request,
    report: watch::Sender<Report>,
    name: String,
}

/// What is under way.
enum Request {
    None,
    List(RequestId, Meter, BoxFuture<Result<Page, Failure>>),
    Opening(RequestId, Meter, BoxFuture<Result<Events, Failure>>),
    Open(RequestId, Meter, Events),
}

/// What happened.
enum Happened {
    Bytes(RequestId, u64),
    Page(RequestId, Page),
    Opened(RequestId, Meter, Events),
    /// Events, and what ended the stream if it did.
    Events(RequestId, Vec<WatchItem>, Option<Failure>),
    Failed(RequestId, Failure),
    Timeout,
}

impl<S: Source> Driver<S> {
    /// A driver that has not asked for anything yet. What the cache already shows is never gone
    /// back behind. The seed spreads the requests of many drivers; give each its own.
    pub fn new(
        source: S,
        writer: Writer,
        settings: Settings,
        memory: ServerMemory,
        seed: u64,
    ) -> Self {
        let start = match writer.cache() {
            cache if cache.is_ready() => Start::NotBefore(cache.revision()),
            _ => Start::Empty,
        };
        Self::starting(source, writer, settings, memory, start, seed)
    }

    /// The same with a start of one's own: [`Start::At`] for a cache that was filled from a saved
    /// state, [`Start::NotBefore`] for an empty one with a saved mark.
    pub fn starting(
        source: S,
        writer: Writer,
        settings: Settings,
        memory: ServerMemory,
        start: Start,
        seed: u64,
    ) -> Self {
        let machine = Reflector::with_memory(settings, memory, start, seed, Time(0));
        let report = watch::Sender::new(machine.report(Time(0)));
        let cache = writer.cache();
        let (request, began) = (Request::None, Instant::now());
        let name = String::new();
        Self { machine, source, writer, cache, began, request, report, name }
    }

    /// What logs call it.
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Follows how far it is. The last report stays readable when the driver is gone.
    pub fn report(&self) -> watch::Receiver<Report> {
        self.report.subscribe()
    }

    /// Reports to somebody who outlives this driver, for example to follow it across restarts.
    pub fn with_report(mut self, report: watch::Sender<Report>) -> Self {
        self.report = report;
        self
    }

    /// Runs until it is dropped, which also cancels the request that is under way.
    pub async fn run(mut self) -> Infallible {
        self.drive().await
    }

    /// Runs until `stop` resolves. Gives back the writer: the cache can be driven again.
    pub async fn run_until(mut self, stop: impl Future<Output = ()>) -> Writer {
        {
            let (mut stop, mut drive) = (pin!(stop), pin!(self.drive()));
            poll_fn(|cx| match stop.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => drive.as_mut().poll(cx).map(|never| match never {}),
            })
            .await;
        }
        self.writer
    }

    async fn drive(&mut self) -> Infallible {
        let mut sleep = Box::pin(sleep_until(self.began));
        loop {
            self.perform();
            self.publish();
            let due = self.machine.poll_timeout().map_or(u64::MAX, |due| due.0);
            let far = Duration::from_millis(due.min(Self::FAR_MS));
            sleep.as_mut().reset(self.began + far);
            let happened = poll_fn(|cx| self.poll_happened(sleep.as_mut(), cx)).await;
            self.handle(happened);
        }
    }

    /// The farthest that is slept to: a century, which no clock overflows at.
    const FAR_MS: u64 = 100 * 365 * 86_400 * 1000;

    fn now(&self) -> Time {
        Time(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn publish(&self) {
        let report = self.machine.report(self.now());
        self.report.send_if_modified(|last| {
            let news = *last != report;
            *last = report;
            news
        });
    }

    /// Does what the machine says.
    fn perform(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            let now = self.now();
            match output {
                Output::List { id, request } => {
                    let meter = Meter::default();
                    let list = contain(|| self.source.list(request, meter.clone()));
                    let list = list.unwrap_or_else(|panic| Box::pin(ready(Err(panicked(&panic)))));
                    self.request = Request::List(id, meter, list);
                }
                Output::Watch { id, request } => {
                    let meter = Meter::default();
                    let watch = contain(|| self.source.watch(request, meter.clone()));
                    let watch =
                        watch.unwrap_or_else(|panic| Box::pin(ready(Err(panicked(&panic)))));
                    self.request = Request::Opening(id, meter, watch);
                }
                Output::Cancel { id } => {
                    if self.request.id() == Some(id) {
                        self.end_request();
                    }
                }
                Output::Apply(batch) => self.apply(batch, now),
                Output::Replace { objects, revision } => {
                    let replaced = self.writer.replace(objects, revision, now);
                    replaced.expect("the machine refuses lists that are older than the cache");
                }
                // The report tells of it; the cache changes when the list is whole.
                Output::Rewound { .. } => {}
                Output::Rewind { objects, revision } => {
                    self.writer.rewind(objects, revision, now);
                }
                Output::Bookmark(revision) => self.writer.bookmark(revision, now),
            }
        }
    }

    fn apply(&mut self, mut batch: Vec<Mutation>, now: Time) {
        // The state that an unversioned watch begins with is mostly known already (R12).
        if self.machine.is_opaque() {
            let snapshot = self.cache.snapshot();
            batch.retain(|mutation| match mutation {
                Mutation::Put { object, .. } => snapshot.get(object.key()).is_none_or(|cached| {
                    cached.resource_version() != object.resource_version()
                        || cached.body() != object.body()
                }),
                Mutation::Delete { .. } => true,
            });
        }
        self.writer.apply(batch, now);
    }

    fn handle(&mut self, happened: Happened) {
        let now = self.now();
        // The last bytes of an answer come with it.
        if let Some((id, bytes)) = self.request.uncounted() {
            self.machine.handle_bytes(id, bytes, now);
        }
        match happened {
            Happened::Bytes(id, bytes) => self.machine.handle_bytes(id, bytes, now),
            Happened::Page(id, mut page) => {
                self.end_request();
                share_unchanged(&self.cache.snapshot(), &mut page.objects);
                self.machine.handle_page(id, page, now);
            }
            Happened::Opened(id, meter, events) => {
                self.request = Request::Open(id, meter, events);
                self.machine.handle_watch_open(id, now);
            }
            Happened::Events(id, mut items, ended) => {
                if let Some(failure) = &ended {
                    self.note_panic(failure);
                }
                self.share(&mut items);
                if !items.is_empty() {
                    self.machine.handle_events(id, items, now);
                }
                if let Some(failure) = ended {
                    self.end_request();
                    self.machine.handle_failure(id, &failure, now);
                }
            }
            Happened::Failed(id, failure) => {
                self.note_panic(&failure);
                self.end_request();
                self.machine.handle_failure(id, &failure, now);
            }
            Happened::Timeout => self.machine.handle_timeout(now),
        }
    }

    /// The destructor of a request is code of the user, too.
    fn end_request(&mut self) {
        let request = std::mem::replace(&mut self.request, Request::None);
        if let Err(panic) = contain(|| drop(request)) {
            self.note_panic(&panicked(&panic));
        }
    }

    /// A source is code of the user: its panic is the end of a request, which is tried again.
    fn note_panic(&self, failure: &Failure) {
        if let Failure::Panicked(panic) = failure {
            error!(resource = self.name, panic, "source panicked: the request is tried again");
        }
    }

    /// A list that comes as events holds, like one in pages, only what is new.
    fn share(&self, items: &mut [WatchItem]) {
        if !self.machine.is_listing() {
            return;
        }
        let snapshot = self.cache.snapshot();
        for item in items {
            if let WatchItem::Added(object) = item {
                share_unchanged(&snapshot, std::slice::from_mut(object));
            }
        }
    }

    fn poll_happened(&mut self, sleep: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<Happened> {
        if let Poll::Ready(happened) = self.request.poll(cx) {
            return Poll::Ready(happened);
        }
        sleep.poll(cx).map(|()| Happened::Timeout)
    }
}

impl Request {
    fn id(&self) -> Option<RequestId> {
        match self {
            Self::None => None,
            Self::List(id, ..) | Self::Opening(id, ..) | Self::Open(id, ..) => Some(*id),
        }
    }

    /// Bytes that came and that the machine does not know of.
    fn uncounted(&self) -> Option<(RequestId, u64)> {
        let (Self::List(id, meter, _) | Self::Opening(id, meter, _) | Self::Open(id, meter, _)) =
            self
        else {
            return None;
        };
        Some((*id, meter.take())).filter(|(_, bytes)| *bytes > 0)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Happened> {
        let (id, meter, happened) = match self {
            Self::None => return Poll::Pending,
            Self::List(id, meter, list) => {
                let page = poll_contained(list, cx).map(|page| match page {
                    Ok(page) => Happened::Page(*id, page),
                    Err(failure) => Happened::Failed(*id, failure),
                });
                (*id, meter, page)
            }
            Self::Opening(id, meter, watch) => {
                let opened = poll_contained(watch, cx).map(|opened| match opened {
                    Ok(events) => Happened::Opened(*id, meter.clone(), events),
                    Err(failure) => Happened::Failed(*id, failure),
                });
                (*id, meter, opened)
            }
            Self::Open(id, meter, events) => {
                let batch = poll_batch(events, cx);
                (*id, meter, batch.map(|(items, ended)| Happened::Events(*id, items, ended)))
            }
        };
        if happened.is_ready() {
            return happened;
        }
        Poll::Ready(Happened::Bytes(id, ready!(meter.poll_bytes(cx))))
    }
}

fn panicked(panic: &Panic) -> Failure {
    Failure::Panicked(panic.to_string())
}

fn poll_contained<T>(
    request: &mut BoxFuture<Result<T, Failure>>,
    cx: &mut Context<'_>,
) -> Poll<Result<T, Failure>> {
    let polled = contain(|| request.as_mut().poll(cx));
    polled.unwrap_or_else(|panic| Poll::Ready(Err(panicked(&panic))))
}

/// Everything that is ready, as one batch, and what ended the stream if it did.
fn poll_batch(
    events: &mut Events,
    cx: &mut Context<'_>,
) -> Poll<(Vec<WatchItem>, Option<Failure>)> {
    let mut batch = Vec::new();
    let ended = loop {
        let polled = contain(|| events.as_mut().poll_next(cx));
        match polled.unwrap_or_else(|panic| Poll::Ready(Some(Err(panicked(&panic))))) {
            Poll::Ready(Some(Ok(items))) if batch.is_empty() => batch = items,
            Poll::Ready(Some(Ok(items))) => batch.extend(items),
            Poll::Ready(Some(Err(failure))) => break Some(failure),
            Poll::Ready(None) => break Some(Failure::Ended),
            Poll::Pending if batch.is_empty() => return Poll::Pending,
            Poll::Pending => break None,
        }
        if batch.len() >= BATCH_EVENTS_MAX {
            break None;
        }
    };
    Poll::Ready((batch, ended))
}
