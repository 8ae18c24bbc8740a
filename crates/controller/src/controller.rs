//! Controllers: what is done for each object that something happened to.

mod feed;
mod metrics;
mod panics;
mod predicate;
mod quarantine;
mod reconcile;
mod running;
mod worker;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_core::Stream;
use futures_util::future::BoxFuture;
use masthead_core::ObjectKey;
use masthead_informer::{
    BuildError, Entry, Factory, HandlerOptions, Informer, Kind, TaskEnded, TooManyHandlers,
};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tracing::error;

pub use metrics::ControllerMetrics;
pub use panics::ControllerPanics;
pub use predicate::Predicate;
pub use quarantine::Quarantined;
pub use reconcile::{Action, Context, ReconcileError};

use crate::leader::Leadership;
use crate::limits::{RECONCILE_TIMEOUT, STOP_GRACE, WORKERS, WORKERS_MAX};
use crate::manager::RunError;
use crate::queue::{Settings, Snapshot, Trigger, WorkQueue};
use feed::Feed;
use metrics::Counts;
use panics::UserCalls;
use quarantine::Quarantine;
use reconcile::Reads;
use worker::Shared;

/// Describes a controller of one kind. Everything but what it does has a default.
#[must_use]
pub struct Controller<K> {
    name: String,
    informer: Informer<K>,
    predicate: Option<Predicate<K>>,
    resync: Duration,
    queue: Settings<ObjectKey>,
    reads: Vec<Arc<dyn Reads>>,
    feeds: Vec<PlannedFeed<K>>,
    workers: usize,
    timeout: Duration,
    grace: Duration,
}

/// A feed that is made when the controller starts.
struct PlannedFeed<K> {
    name: String,
    make: MakeFeed<K>,
}

type MakeFeed<K> = Box<dyn FnOnce(Inlet<'_, K>) -> Result<Feed, TooManyHandlers> + Send>;

/// What a feed is made of.
struct Inlet<'a, K> {
    informer: &'a Informer<K>,
    queue: WorkQueue<ObjectKey>,
    calls: UserCalls,
}

impl<K: Kind> Controller<K> {
    /// A controller of all objects of a kind. The name is for logs and metrics.
    pub fn new(factory: &Factory, name: &str) -> Result<Self, BuildError> {
        Ok(Self::of(name, factory.informer::<K>().build()?))
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Controller<K> {
    /// A controller of what an informer follows.
    pub fn of(name: &str, informer: Informer<K>) -> Self {
        Self {
            name: name.to_owned(),
            predicate: None,
            resync: Duration::ZERO,
            queue: Settings::default(),
            reads: vec![Arc::new(informer.clone())],
            feeds: Vec::new(),
            workers: WORKERS,
            timeout: RECONCILE_TIMEOUT,
            grace: STOP_GRACE,
            informer,
        }
    }

    /// What it follows.
    pub fn informer(&self) -> &Informer<K> {
        &self.informer
    }

    /// Reconciles the object that manages a changed one, by its owner references.
    pub fn owns<W: DeserializeOwned + Send + Sync + 'static>(self, owned: &Informer<W>) -> Self {
        let resource = self.informer.resource().clone();
        let manager =
            move |entry: &Entry<W>| feed::manager_of(&resource, entry).into_iter().collect();
        self.watching(owned, Trigger("owned"), |_| Box::new(manager))
    }

    /// Reconciles what a function makes of a changed object, of the old state as well as of the new. A state for
    /// which it panics has no keys, and the panic is logged and counted: see [`ControllerSnapshot::panics`].
    pub fn watches<W: DeserializeOwned + Send + Sync + 'static>(
        self,
        watched: &Informer<W>,
        map: impl Fn(&Entry<W>) -> Vec<ObjectKey> + Send + 'static,
    ) -> Self {
        self.watching(watched, Trigger("watched"), |_| Box::new(map))
    }

    /// Reconciles the objects that have a changed one's key (`namespace/name`) as a value of an index.
    pub fn watches_index<W: DeserializeOwned + Send + Sync + 'static>(
        self,
        watched: &Informer<W>,
        index: &str,
    ) -> Self {
        let (controller, index) = (self.name.clone(), index.to_owned());
        let logged = AtomicBool::new(false);
        self.watching(watched, Trigger("indexed"), |informer| {
            Box::new(move |entry: &Entry<W>| {
                let state = informer.lister();
                match state.by_index(&index, entry.key().as_str()) {
                    Ok(found) => found.map(|it| it.key().clone()).collect(),
                    Err(unknown) => {
                        if !logged.swap(true, Ordering::Relaxed) {
                            error!(controller, key = %entry.key(), %unknown, "nothing is found");
                        }
                        Vec::new()
                    }
                }
            })
        })
    }

    fn watching<W: DeserializeOwned + Send + Sync + 'static>(
        mut self,
        watched: &Informer<W>,
        trigger: Trigger,
        map: impl FnOnce(Informer<K>) -> Box<dyn Fn(&Entry<W>) -> Vec<ObjectKey> + Send>,
    ) -> Self {
        self.reads.push(Arc::new(watched.clone()));
        let (watched, map) = (watched.clone(), map(self.informer.clone()));
        let options = HandlerOptions::default().named(&self.name);
        let name = format!("feed of {trigger} {}", watched.resource());
        let make: MakeFeed<K> = Box::new(move |Inlet { queue, calls, .. }| {
            let events = watched.events(&options)?;
            Ok(Box::pin(feed::mapped(events, map, trigger, queue, calls)))
        });
        self.feeds.push(PlannedFeed { name, make });
        self
    }

    /// Reconciles the keys of a stream. A stream may come to its end; one that panics ends the controller with
    /// an error.
    pub fn triggered_by(
        mut self,
        keys: impl Stream<Item = ObjectKey> + Unpin + Send + 'static,
    ) -> Self {
        let make: MakeFeed<K> = Box::new(move |Inlet { queue, calls, .. }| {
            Ok(Box::pin(feed::triggered(keys, queue, calls)))
        });
        self.feeds.push(PlannedFeed { name: "feed of a stream of keys".to_owned(), make });
        self
    }

    /// Which updates of its own objects matter.
    pub fn when(mut self, predicate: Predicate<K>) -> Self {
        self.predicate = Some(predicate);
        self
    }

    /// Reconciles all objects every so often, without a hurry.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = period;
        self
    }

    /// How the queue behaves: backoff, fair shares, bounds.
    pub fn queue(mut self, settings: Settings<ObjectKey>) -> Self {
        self.queue = settings;
        self
    }

    /// Objects that are reconciled at a time.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.clamp(1, WORKERS_MAX);
        self
    }

    /// How long a reconcile may take; then it is cancelled where it waits, and tried again with backoff.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long reconciles that are under way may still take after a stop.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// What it does: brings what is there closer to what an object says. It is called again and again, must
    /// not mind, and is never called twice at once for one object.
    pub fn reconcile<R, F>(self, reconcile: R) -> Runner
    where
        R: Fn(Context<K>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Action, ReconcileError>> + Send + 'static,
    {
        let counts = Arc::new(Counts::new(self.workers));
        let calls = UserCalls::new(&self.name, &counts);
        let reports = calls.clone();
        let settings = self.queue.on_panic(move |function, key, panic| {
            reports.report(function.into(), Some(key), panic);
        });
        let queue = WorkQueue::new(settings);
        let quarantine = Arc::new(Quarantine::default());
        let handle = ControllerHandle {
            name: self.name.clone(),
            queue: queue.clone(),
            quarantine: quarantine.clone(),
            counts: counts.clone(),
        };
        let options = HandlerOptions::default().named(&self.name).resync(self.resync);
        let (informer, predicate, workers, grace) =
            (self.informer, self.predicate, self.workers, self.grace);
        let mut feeds = self.feeds;
        let make: MakeFeed<K> = Box::new(move |Inlet { informer, queue, calls }| {
            Ok(Box::pin(feed::own(informer.events(&options)?, predicate, queue, calls)))
        });
        feeds.push(PlannedFeed { name: format!("feed of {}", informer.resource()), make });
        let (name, reads, timeout) = (self.name, self.reads.into(), self.timeout);
        let run = move |leadership, stop| -> BoxFuture<'static, Result<(), RunError>> {
            let shared = Shared {
                name,
                informer,
                reads,
                reconcile,
                queue,
                quarantine,
                counts,
                calls,
                timeout,
                leadership,
            };
            Box::pin(running::run(Arc::new(shared), feeds, workers, grace, stop))
        };
        Runner { handle, run: Box::new(run) }
    }
}

type Run =
    dyn FnOnce(Leadership, CancellationToken) -> BoxFuture<'static, Result<(), RunError>> + Send;

/// A controller that can be run.
#[must_use]
pub struct Runner {
    handle: ControllerHandle,
    run: Box<Run>,
}

impl Runner {
    /// What can be seen and done from outside.
    pub fn handle(&self) -> ControllerHandle {
        self.handle.clone()
    }

    /// Runs it until it is stopped; its factory has to be started. It waits until all caches that it reads
    /// have synced, and fails where that fails. After a stop nothing new begins, and what is under way has
    /// some time to come to its end.
    ///
    /// It also fails if one of its tasks ends although nothing stopped it, for example because a stream of keys
    /// panicked, or because of a bug in it: then it stops as it does after a stop.
    pub async fn run(self, stop: CancellationToken) -> Result<(), RunError> {
        self.run_while(Leadership::always(), stop).await
    }

    /// The same, only while somebody leads.
    pub async fn run_while(
        self,
        leadership: Leadership,
        stop: CancellationToken,
    ) -> Result<(), RunError> {
        (self.run)(leadership, stop).await
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Runner").field(&self.handle.name).finish()
    }
}

/// What can be seen of a controller, and done to it, from outside.
#[derive(Clone)]
pub struct ControllerHandle {
    name: String,
    queue: WorkQueue<ObjectKey>,
    quarantine: Arc<Quarantine>,
    counts: Arc<Counts>,
}

/// Everything that a controller has to do, at one moment, and what went wrong with it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ControllerSnapshot {
    /// What waits, is delayed, and is worked on.
    pub queue: Snapshot<ObjectKey>,
    /// What is not reconciled until it changes.
    pub quarantined: Vec<Quarantined>,
    /// How often functions of the user panicked.
    pub panics: ControllerPanics,
    /// The task that ended unexpectedly, and with it the controller.
    pub ended: Option<TaskEnded>,
}

impl ControllerHandle {
    /// What logs and metrics call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its queue.
    pub fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    /// What there is to do, and what went wrong.
    pub fn snapshot(&self) -> ControllerSnapshot {
        ControllerSnapshot {
            queue: self.queue.snapshot(),
            quarantined: self.quarantined(),
            panics: self.counts.counted().user_panics,
            ended: self.counts.ended(),
        }
    }

    /// The objects that are not reconciled until they change.
    pub fn quarantined(&self) -> Vec<Quarantined> {
        self.quarantine.list()
    }

    /// Has an object reconciled although it has not changed. Says whether it was in quarantine.
    pub fn release(&self, key: &ObjectKey) -> bool {
        let released = self.quarantine.release(key);
        if released {
            let add = crate::queue::Add { trigger: Trigger("released"), ..Default::default() };
            // A queue that takes nothing any more does not have to.
            let _ = self.queue.add_with(key.clone(), add);
        }
        released
    }

    /// Waits until one of its tasks ends unexpectedly. It then takes a while for the controller to end.
    pub(crate) async fn task_ended(&self) -> TaskEnded {
        self.counts.wait_for_end().await
    }

    pub(crate) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }
}

impl fmt::Debug for ControllerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ControllerHandle").field(&self.name).finish()
    }
}

impl<K> fmt::Debug for Controller<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Controller").field(&self.name).finish()
    }
}
