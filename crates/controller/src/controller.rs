//! Controllers: what is done for each object that something happened to.

mod feed;
mod metrics;
mod predicate;
mod quarantine;
mod reconcile;
mod worker;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use futures_util::future::BoxFuture;
use masthead_core::ObjectKey;
use masthead_informer::{
    BuildError, Entry, Factory, HandlerOptions, Informer, Kind, SyncError, TooManyHandlers,
};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use metrics::ControllerMetrics;
pub use predicate::Predicate;
pub use quarantine::Quarantined;
pub use reconcile::{Action, Context, ReconcileError};

use crate::leader::Leadership;
use crate::limits::{RECONCILE_TIMEOUT, STOP_GRACE, WORKERS, WORKERS_MAX};
use crate::queue::{Settings, Snapshot, Trigger, WorkQueue};
use feed::Feed;
use metrics::Counts;
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
    feeds: Vec<MakeFeed<K>>,
    workers: usize,
    timeout: Duration,
    grace: Duration,
}

/// Makes a feed of a controller's informer and queue, when it starts.
type MakeFeed<K> =
    Box<dyn FnOnce(&Informer<K>, &WorkQueue<ObjectKey>) -> Result<Feed, TooManyHandlers> + Send>;

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

    /// Reconciles what a function makes of a changed object, of the old state as well as of the new.
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
        let index = index.to_owned();
        self.watching(watched, Trigger("indexed"), |informer| {
            Box::new(move |entry: &Entry<W>| {
                let state = informer.lister();
                let found = state.by_index(&index, entry.key().as_str());
                found.map(|found| found.map(|it| it.key().clone()).collect()).unwrap_or_default()
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
        self.feeds.push(Box::new(move |_, queue| {
            Ok(Box::pin(feed::mapped(watched.events(&options)?, map, trigger, queue.clone())))
        }));
        self
    }

    /// Reconciles the keys of a stream.
    pub fn triggered_by(
        mut self,
        keys: impl Stream<Item = ObjectKey> + Unpin + Send + 'static,
    ) -> Self {
        self.feeds
            .push(Box::new(move |_, queue| Ok(Box::pin(feed::triggered(keys, queue.clone())))));
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
        let queue = WorkQueue::new(self.queue);
        let quarantine = Arc::new(Quarantine::default());
        let counts = Arc::new(Counts::new(self.workers));
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
        feeds.push(Box::new(move |informer, queue| {
            Ok(Box::pin(feed::own(informer.events(&options)?, predicate, queue.clone())))
        }));
        let (name, reads, timeout) = (self.name, self.reads.into(), self.timeout);
        let run = move |leadership, stop| -> BoxFuture<'static, Result<(), SyncError>> {
            let shared = Shared {
                name,
                informer,
                reads,
                reconcile,
                queue,
                quarantine,
                counts,
                timeout,
                leadership,
            };
            Box::pin(run(Arc::new(shared), feeds, workers, grace, stop))
        };
        Runner { handle, run: Box::new(run) }
    }
}

type Run =
    dyn FnOnce(Leadership, CancellationToken) -> BoxFuture<'static, Result<(), SyncError>> + Send;

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
    pub async fn run(self, stop: CancellationToken) -> Result<(), SyncError> {
        self.run_while(Leadership::always(), stop).await
    }

    /// The same, only while somebody leads.
    pub async fn run_while(
        self,
        leadership: Leadership,
        stop: CancellationToken,
    ) -> Result<(), SyncError> {
        (self.run)(leadership, stop).await
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Runner").field(&self.handle.name).finish()
    }
}

async fn run<K, R, F>(
    shared: Arc<Shared<K, R>>,
    feeds: Vec<MakeFeed<K>>,
    workers: usize,
    grace: Duration,
    stop: CancellationToken,
) -> Result<(), SyncError>
where
    K: DeserializeOwned + Send + Sync + 'static,
    R: Fn(Context<K>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Action, ReconcileError>> + Send + 'static,
{
    let name = shared.name.clone();
    let synced = futures_util::future::try_join_all(shared.reads.iter().map(|it| it.synced()));
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        synced = synced => drop(synced?),
    }
    let mut tasks = JoinSet::new();
    for feed in feeds {
        match feed(&shared.informer, &shared.queue) {
            Ok(feed) => drop(tasks.spawn(feed)),
            Err(error) => warn!(controller = name, %error, "hears nothing of one of its caches"),
        }
    }
    let mut working = JoinSet::new();
    for _ in 0..workers {
        let shared = shared.clone();
        working.spawn(async move { shared.work().await });
    }
    info!(controller = name, workers, "runs");
    stop.cancelled().await;
    shared.queue.abort();
    if timeout(grace, async { while working.join_next().await.is_some() {} }).await.is_err() {
        warn!(controller = name, ?grace, "cancelled what was under way");
    }
    Ok(())
}

/// What can be seen of a controller, and done to it, from outside.
#[derive(Clone)]
pub struct ControllerHandle {
    name: String,
    queue: WorkQueue<ObjectKey>,
    quarantine: Arc<Quarantine>,
    counts: Arc<Counts>,
}

/// Everything that a controller has to do, at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControllerSnapshot {
    /// What waits, is delayed, and is worked on.
    pub queue: Snapshot<ObjectKey>,
    /// What is not reconciled until it changes.
    pub quarantined: Vec<Quarantined>,
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

    /// What there is to do.
    pub fn snapshot(&self) -> ControllerSnapshot {
        ControllerSnapshot { queue: self.queue.snapshot(), quarantined: self.quarantined() }
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
