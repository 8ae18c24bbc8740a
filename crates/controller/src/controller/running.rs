//! A controller's life: its feeds and its workers, from the sync to the stop.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use masthead_core::{Panic, contain_future, planted};
use masthead_informer::{SyncError, TaskEnded};
use serde::de::DeserializeOwned;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::feed::FeedEnd;
use super::worker::Shared;
use super::{Action, Context, Inlet, PlannedFeed, ReconcileError};
use crate::manager::RunError;

/// The tasks of a controller. Each is watched: one that ends unexpectedly ends the controller.
struct Tasks {
    controller: Arc<str>,
    feeds: JoinSet<(String, Result<FeedEnd, Panic>)>,
    workers: JoinSet<Result<(), Panic>>,
}

const WORKER: &str = "worker";

pub(super) async fn run<K, R, F>(
    shared: Arc<Shared<K, R>>,
    feeds: Vec<PlannedFeed<K>>,
    workers: usize,
    grace: Duration,
    stop: CancellationToken,
) -> Result<(), RunError>
where
    K: DeserializeOwned + Send + Sync + 'static,
    R: Fn(Context<K>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Action, ReconcileError>> + Send + 'static,
{
    let controller = shared.name.clone();
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        synced = synced(&shared) => synced?,
    }
    let mut tasks = Tasks::new(&controller);
    let mut ended = tasks.start(&shared, feeds, workers).err();
    if ended.is_none() {
        info!(controller, workers, "runs");
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            task = tasks.ended(|| shared.queue.is_shut_down()) => ended = Some(task),
            task = needed(&shared) => ended = Some(task),
        }
    }
    if let Some(ended) = &ended {
        note(&shared, ended);
    }
    shared.queue.abort();
    match timeout(grace, tasks.workers_done()).await {
        Err(_) => warn!(controller, ?grace, "cancelled what was under way"),
        Ok(None) => {}
        Ok(Some(panicked)) => {
            note(&shared, &panicked);
            ended.get_or_insert(panicked);
        }
    }
    ended.map_or(Ok(()), |ended| Err(RunError::Controller { controller, ended }))
}

async fn synced<K, R>(shared: &Shared<K, R>) -> Result<(), SyncError> {
    let reads = shared.reads.iter().map(|it| it.synced());
    futures_util::future::try_join_all(reads).await.map(drop)
}

/// Waits for the end of what the controller needs and does not run itself: what fills its caches, of whatever
/// factory they are, and the election that it takes part in.
async fn needed<K, R>(shared: &Shared<K, R>) -> TaskEnded {
    // One of them is always there: that of the controller's own objects.
    let caches = select_all(shared.reads.iter().map(|cache| cache.ended()));
    tokio::select! {
        (ended, ..) = caches => ended,
        () = shared.leadership.abandoned() => TaskEnded::returned("leader election"),
    }
}

/// Has an unexpected end seen: in the log, in the report, in the metrics.
fn note<K, R>(shared: &Shared<K, R>, ended: &TaskEnded) {
    let TaskEnded { task, reason, .. } = ended;
    error!(controller = shared.name, %task, %reason, "task ended unexpectedly");
    shared.counts.set_ended(ended.clone());
}

impl Tasks {
    fn new(controller: &str) -> Self {
        Self { controller: controller.into(), feeds: JoinSet::new(), workers: JoinSet::new() }
    }

    /// Spawns all tasks. Fails, with nothing left running, if a feed cannot be made: without it the controller
    /// would not hear of what it has to.
    fn start<K, R, F>(
        &mut self,
        shared: &Arc<Shared<K, R>>,
        feeds: Vec<PlannedFeed<K>>,
        workers: usize,
    ) -> Result<(), TaskEnded>
    where
        K: DeserializeOwned + Send + Sync + 'static,
        R: Fn(Context<K>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Action, ReconcileError>> + Send + 'static,
    {
        let mut made = Vec::with_capacity(feeds.len());
        for PlannedFeed { name, make } in feeds {
            let (queue, calls) = (shared.queue.clone(), shared.calls.clone());
            let feed = make(Inlet { informer: &shared.informer, queue, calls });
            made.push((feed.map_err(|error| TaskEnded::new(&name, &error.to_string()))?, name));
        }
        for (feed, name) in made {
            let in_drop = self.report_of(&name);
            self.feeds.spawn(async move { (name, contain_future(feed, in_drop).await) });
        }
        for _ in 0..workers {
            let (shared, in_drop) = (shared.clone(), self.report_of(WORKER));
            self.workers.spawn(async move { contain_future(shared.work(), in_drop).await });
        }
        Ok(())
    }

    /// What logs that a destructor in a task panicked.
    fn report_of(&self, task: &str) -> impl Fn(&Panic) + Send + 'static + use<> {
        let (controller, task) = (self.controller.clone(), task.to_owned());
        move |panic: &Panic| error!(%controller, task, %panic, "destructor panicked")
    }

    /// Waits for a task that ends unexpectedly. Workers may end if the queue was shut down.
    async fn ended(&mut self, queue_is_shut_down: impl Fn() -> bool) -> TaskEnded {
        loop {
            let joined = tokio::select! {
                Some(joined) = self.feeds.join_next(), if !planted::on("feeds_are_not_joined") => {
                    feed_ended(joined)
                }
                Some(joined) = self.workers.join_next() => match joined {
                    Ok(Ok(())) if queue_is_shut_down() => None,
                    joined => Some(worker_ended(joined)),
                },
                // There is always a feed of the controller's own objects, unless a stop is on its way.
                else => std::future::pending().await,
            };
            if let Some(ended) = joined {
                return ended;
            }
        }
    }

    /// Waits until all workers are done. Returns how one panicked, if one did.
    async fn workers_done(&mut self) -> Option<TaskEnded> {
        let mut panicked = None;
        while let Some(joined) = self.workers.join_next().await {
            if !matches!(joined, Ok(Ok(()))) {
                panicked = Some(worker_ended(joined));
            }
        }
        panicked
    }
}

/// How a feed ended; none if it was a stream of the user that is over.
fn feed_ended(joined: Result<(String, Result<FeedEnd, Panic>), JoinError>) -> Option<TaskEnded> {
    match joined {
        Ok((_, Ok(FeedEnd::Over))) => None,
        Ok((name, Ok(FeedEnd::Returned))) => Some(TaskEnded::returned(&name)),
        Ok((name, Ok(FeedEnd::Panicked(panic)) | Err(panic))) => {
            Some(TaskEnded::panicked(&name, &panic))
        }
        Err(error) => Some(TaskEnded::new("feed", &error.to_string())),
    }
}

fn worker_ended(joined: Result<Result<(), Panic>, JoinError>) -> TaskEnded {
    match joined {
        Ok(Ok(())) => TaskEnded::returned(WORKER),
        Ok(Err(panic)) => TaskEnded::panicked(WORKER, &panic),
        Err(error) => TaskEnded::new(WORKER, &error.to_string()),
    }
}
