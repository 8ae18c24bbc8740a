//! One upstream watch, a source for each resource.
//!
//! A store tells of all its changes on one watch. The multiplexer hands each to the lane of its
//! resource and moves one shared [`Progress`] along, so that a write to pods also moves what the
//! cache of secrets may promise.
//!
//! **Invariant:** no lane waits for another. A lane whose reader is too slow is cut off; it comes
//! back from what is kept for replay, or by a list, like any client of any server.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use futures_core::Stream;
use masthead_cache::{Lane, Progress};
use masthead_core::{Resource, Revision, Status, Time};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, warn};

use crate::backoff::{Backoff, Pace};
use crate::limits::{LANE_BATCHES_MAX, LANE_BOOKMARK, REPLAY_EVENTS_MAX, SHORT_WATCH};
use crate::random::Random;
use crate::source::{BoxFuture, Events};
use crate::{
    Failure, ListRequest, Meter, Page, Recovery, Source, WatchFrom, WatchItem, WatchRequest,
};

mod hub;

use hub::Hub;

/// The events of an upstream, of all resources, in batches and in the order of their revisions.
pub type UpstreamEvents = Pin<Box<dyn Stream<Item = Result<Vec<UpstreamItem>, Failure>> + Send>>;

/// A store that is watched as a whole.
pub trait Upstream: Send + Sync {
    /// The newest revision. At least 1, also of an empty store: zero is no revision on the wire.
    fn current(&self) -> BoxFuture<Result<Revision, Failure>>;

    /// One page of a list of one resource.
    fn list(
        &self,
        resource: &Resource,
        request: ListRequest,
        meter: Meter,
    ) -> BoxFuture<Result<Page, Failure>>;

    /// Everything that happens after a revision.
    fn watch(&self, from: Revision) -> BoxFuture<Result<UpstreamEvents, Failure>>;
}

/// What an upstream's watch says.
#[derive(Clone, Debug)]
pub enum UpstreamItem {
    /// An object of a resource changed.
    Change {
        /// Which resource.
        resource: Resource,
        /// When.
        revision: Revision,
        /// What.
        item: WatchItem,
    },
    /// Everything up to here has been told.
    Progress(Revision),
}

/// Makes a [`Source`] for each resource out of one [`Upstream`]. Clones are the same multiplexer.
///
/// Somebody has to run it: see [`Mux::run`]. Lanes may be opened before and at any time after.
#[derive(Clone)]
pub struct Mux {
    shared: Arc<Shared>,
}

struct Shared {
    upstream: Box<dyn Upstream>,
    hub: Mutex<Hub>,
    progress: Arc<Progress>,
    /// Whether it is known where the watch begins.
    ready: watch::Sender<bool>,
}

impl Mux {
    /// A multiplexer with nothing on it yet.
    pub fn new(upstream: impl Upstream + 'static) -> Self {
        Self::with_limits(upstream, REPLAY_EVENTS_MAX, LANE_BATCHES_MAX)
    }

    /// The same with other bounds: events kept for replay, batches that may wait for a lane's reader.
    pub fn with_limits(
        upstream: impl Upstream + 'static,
        replay_events_max: usize,
        lane_batches_max: usize,
    ) -> Self {
        let hub = Mutex::new(Hub::new(replay_events_max, lane_batches_max));
        let upstream = Box::new(upstream);
        let (progress, ready) = (Progress::new(), watch::Sender::new(false));
        Self { shared: Arc::new(Shared { upstream, hub, progress, ready }) }
    }

    /// The number that moves all caches on it.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.shared.progress
    }

    /// A source for a resource, and the lane that goes into the configuration of its cache. A
    /// resource has one lane: a second call gives the same one.
    pub fn source(&self, resource: &Resource) -> (MuxSource, Arc<Lane>) {
        let (number, lane) = self.shared.hub.lock().lane(resource, &self.shared.progress);
        let (shared, resource) = (self.shared.clone(), resource.clone());
        (MuxSource { shared, resource, number }, lane)
    }

    /// Follows the upstream until it is dropped. The seed spreads its waits.
    pub async fn run(self, pace: Pace, seed: u64) -> std::convert::Infallible {
        let mut retry = Retry { backoff: Backoff::new(pace), random: Random::new(seed) };
        let began = Instant::now();
        loop {
            let asked = Instant::now();
            let (failure, heard) = self.follow().await;
            debug!(class = %failure.class(), %failure, "upstream watch ended");
            let recovery = failure.recovery();
            if recovery == Recovery::Relist {
                self.shared.hub.lock().expire();
                self.shared.ready.send_replace(false);
            }
            let now = Time(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
            match recovery {
                Recovery::Backoff { at_least } => retry.wait(now, at_least).await,
                _ if !heard && asked.elapsed() < SHORT_WATCH => retry.wait(now, None).await,
                _ => {}
            }
        }
    }

    /// Watches until the watch ends; says why, and whether anything was heard.
    async fn follow(&self) -> (Failure, bool) {
        let from = match self.begin().await {
            Ok(from) => from,
            Err(failure) => return (failure, false),
        };
        let mut events = match self.shared.upstream.watch(from).await {
            Ok(events) => events,
            Err(failure) => return (failure, false),
        };
        let mut heard = false;
        let mut bookmark = pin!(sleep(LANE_BOOKMARK));
        loop {
            let next = poll_fn(|cx| {
                if let Poll::Ready(next) = events.as_mut().poll_next(cx) {
                    return Poll::Ready(Some(next));
                }
                bookmark.as_mut().poll(cx).map(|()| None)
            });
            match next.await {
                Some(Some(Ok(items))) => {
                    heard = true;
                    self.hand_out(items);
                }
                Some(Some(Err(failure))) => return (failure, heard),
                Some(None) => return (Failure::Ended, heard),
                None => {
                    self.shared.hub.lock().bookmark_all();
                    bookmark.set(sleep_until(Instant::now() + LANE_BOOKMARK));
                }
            }
        }
    }

    /// Where to watch from: where the last watch stopped, or where the upstream is now.
    async fn begin(&self) -> Result<Revision, Failure> {
        if let Some(position) = self.shared.hub.lock().position() {
            return Ok(position);
        }
        let current = self.shared.upstream.current().await?;
        self.shared.hub.lock().begin(current);
        self.shared.progress.advance(current);
        self.shared.ready.send_replace(true);
        Ok(current)
    }

    fn hand_out(&self, items: Vec<UpstreamItem>) {
        let (position, cut) = self.shared.hub.lock().hand_out(items);
        for resource in cut {
            warn!(%resource, "lane cut off: its reader is too slow");
        }
        // After all lanes: whatever the shared number covers is on its way to its cache.
        self.shared.progress.advance(position);
    }
}

struct Retry {
    backoff: Backoff,
    random: Random,
}

impl Retry {
    async fn wait(&mut self, now: Time, at_least: Option<std::time::Duration>) {
        let until = self.backoff.fail(now, at_least, &mut self.random);
        sleep(until.since(now)).await;
    }
}

/// One resource of a multiplexed upstream.
///
/// Lists go to the upstream. Watches are served from the one upstream watch: gap-free from any
/// revision that is still kept for replay, and refused as expired from any other.
#[derive(Clone)]
pub struct MuxSource {
    shared: Arc<Shared>,
    resource: Resource,
    number: usize,
}

impl Source for MuxSource {
    fn list(&self, request: ListRequest, meter: Meter) -> BoxFuture<Result<Page, Failure>> {
        let this = self.clone();
        Box::pin(async move {
            // A list from before the watch begins could not be continued.
            this.shared.started().await;
            this.shared.upstream.list(&this.resource, request, meter).await
        })
    }

    fn watch(&self, request: WatchRequest, _meter: Meter) -> BoxFuture<Result<Events, Failure>> {
        let this = self.clone();
        Box::pin(async move {
            let WatchFrom::After(from) = request.from else {
                let status = Status::bad_request("initial events are not served here: list first");
                return Err(status.into());
            };
            let from = from.parse().map_err(|_| Status::bad_request("no revision"))?;
            this.shared.started().await;
            let stream = this.shared.hub.lock().open(this.number, from)?;
            // What the lane's cache may promise has moved with it: tell those who wait for that.
            this.shared.progress.advance(this.shared.progress.revision());
            let (shared, number) = (this.shared.clone(), this.number);
            Ok(Box::pin(LaneEvents { shared, number, stream }) as Events)
        })
    }
}

impl Shared {
    async fn started(&self) {
        let mut ready = self.ready.subscribe();
        // The sender lives as long as `self`.
        let _ = ready.wait_for(|ready| *ready).await;
    }
}

/// The events of one lane.
struct LaneEvents {
    shared: Arc<Shared>,
    number: usize,
    stream: hub::LaneStream,
}

impl Stream for LaneEvents {
    type Item = Result<Vec<WatchItem>, Failure>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        self.stream.poll_next(cx)
    }
}

impl Drop for LaneEvents {
    fn drop(&mut self) {
        self.shared.hub.lock().close(self.number, self.stream.serial());
    }
}

impl std::fmt::Debug for Mux {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mux").field("progress", &self.shared.progress).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for MuxSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MuxSource").field(&self.resource).finish()
    }
}
