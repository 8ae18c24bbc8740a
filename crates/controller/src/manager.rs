//! Several controllers in one process.

mod endpoints;

use std::error::Error;
use std::iter::successors;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use masthead_core::{Panic, contain_future};
use masthead_informer::{Factory, SyncError, TaskEnded};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::leader::{LeaderElection, Leadership};
use crate::queue::QueueMetrics;
use crate::{ControllerHandle, ControllerMetrics, Runner};

/// Why a manager ended by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A cache did not sync, and its report says why.
    #[error("the caches did not sync")]
    Sync(#[from] SyncError),
    /// The address for health and metrics cannot be had.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// A task of a controller ended although nothing told it to, and the controller with it: because of a bug, or of
    /// a stream of keys that panicked.
    #[error("the controller {controller} ended unexpectedly")]
    #[non_exhaustive]
    Controller {
        /// The controller's name.
        controller: String,
        /// Which of its tasks ended, and how.
        #[source]
        ended: TaskEnded,
    },
    /// A task that controllers need ended although nothing told it to: of the informers, of the election, or of
    /// the endpoints.
    #[error("the manager cannot go on")]
    Task(#[source] TaskEnded),
    /// A signal cannot be waited for.
    #[error("cannot wait for signals")]
    Signals(#[source] std::io::Error),
}

/// Runs controllers on one factory: starts it, waits for its caches, then leads if there is an election, and
/// only then lets them reconcile. A manager that does not lead keeps its caches and queues warm.
#[derive(Debug)]
#[must_use]
pub struct Manager {
    factory: Factory,
    runners: Vec<Runner>,
    election: Option<LeaderElection>,
    listener: Option<SocketAddr>,
}

impl Manager {
    /// No controllers yet.
    pub fn new(factory: &Factory) -> Self {
        Self { factory: factory.clone(), runners: Vec::new(), election: None, listener: None }
    }

    /// One more controller.
    pub fn with(mut self, runner: Runner) -> Self {
        self.runners.push(runner);
        self
    }

    /// Only while it leads.
    pub fn elected(mut self, election: LeaderElection) -> Self {
        self.election = Some(election);
        self
    }

    /// Answers `/healthz`, `/readyz` and `/metrics` here.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listener = Some(address);
        self
    }

    /// What can be seen of its controllers from outside.
    pub fn handles(&self) -> Vec<ControllerHandle> {
        self.runners.iter().map(Runner::handle).collect()
    }

    /// Runs until SIGINT or SIGTERM.
    pub async fn run_until_signalled(self) -> Result<(), RunError> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut interrupt = signal(SignalKind::interrupt()).map_err(RunError::Signals)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(RunError::Signals)?;
        let stop = CancellationToken::new();
        let mut running = pin!(self.run(stop.clone()));
        tokio::select! {
            ended = &mut running => return ended,
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stop.cancel();
        running.await
    }

    /// Runs until it is stopped: first the controllers end, then the lease is given back, then the factory
    /// is stopped.
    ///
    /// It also ends, with an error, if one of its controllers or a task that they need ends although nothing
    /// stopped it. From that moment on `/readyz` fails, and the others are stopped as after a stop.
    pub async fn run(self, stop: CancellationToken) -> Result<(), RunError> {
        let readiness = Arc::new(Readiness::default());
        // Ends with this function, however it ends.
        let mut serving = JoinSet::new();
        if let Some(address) = self.listener {
            let listener = TcpListener::bind(address).await;
            let listener = listener.map_err(|source| RunError::Listen { address, source })?;
            let serve = endpoints::serve(listener, self.registry(), readiness.clone());
            serving.spawn(contain_future(serve, log_drop));
        }
        self.factory.start();
        let mut leading = Leading {
            factory: &self.factory,
            handles: self.handles(),
            serving,
            readiness: readiness.clone(),
            ended: None,
        };
        let ended = leading.run(self.runners, self.election, &stop).await;
        if ended.is_ok() {
            readiness.set(Some("stopped"));
        }
        self.factory.stop().await;
        ended
    }

    fn registry(&self) -> Registry {
        let (queues, controllers) = (QueueMetrics::default(), ControllerMetrics::default());
        for handle in self.handles() {
            queues.add(handle.name(), handle.queue());
            controllers.add(handle.name(), handle.counts().clone());
        }
        let mut registry = Registry::default();
        registry.register_collector(Box::new(queues));
        registry.register_collector(Box::new(controllers));
        registry.register_collector(Box::new(self.factory.metrics()));
        registry
    }
}

/// Logs that the destructor of a task's future panicked.
fn log_drop(panic: &Panic) {
    error!(%panic, "destructor panicked");
}

/// What a task of the manager gave, or its panic.
type Joined<T> = Result<Result<T, Panic>, JoinError>;

/// A controller's name and how it ended.
type NamedEnd = (String, Result<Result<(), RunError>, Panic>);

/// How a task ended that may not end.
fn task_ended<T>(task: &str, joined: Joined<T>) -> TaskEnded {
    match joined {
        Ok(Ok(_)) => TaskEnded::returned(task),
        Ok(Err(panic)) => TaskEnded::panicked(task, &panic),
        Err(error) => TaskEnded::new(task, &error.to_string()),
    }
}

const ENDPOINTS: &str = "endpoints for health and metrics";
const ELECTION: &str = "leader election";

/// Warms up, leads and reconciles.
struct Leading<'a> {
    factory: &'a Factory,
    handles: Vec<ControllerHandle>,
    serving: JoinSet<Result<(), Panic>>,
    readiness: Arc<Readiness>,
    /// What ended unexpectedly: the first.
    ended: Option<RunError>,
}

impl Leading<'_> {
    async fn run(
        &mut self,
        runners: Vec<Runner>,
        election: Option<LeaderElection>,
        stop: &CancellationToken,
    ) -> Result<(), RunError> {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            synced = self.factory.wait_for_sync() => drop(synced?),
            ended = trouble(self.factory, &self.handles, &mut self.serving) => self.note(ended),
        }
        if let Some(ended) = self.ended.take() {
            return Err(ended);
        }
        self.readiness.set(None);
        // One that ends takes the others along, and nobody else who has the caller's token.
        let (stop, resign) = (stop.child_token(), CancellationToken::new());
        let mut campaign = JoinSet::new();
        let leadership = match election {
            None => Leadership::always(),
            Some(election) => {
                let (leadership, run) = election.campaign(resign.clone());
                campaign.spawn(contain_future(run, log_drop));
                leadership
            }
        };
        let mut running = JoinSet::new();
        for runner in runners {
            let name = runner.handle().name().to_owned();
            let run = runner.run_while(leadership.clone(), stop.clone());
            running.spawn(async move { (name, contain_future(run, log_drop).await) });
        }
        self.watch(&mut running, &mut campaign, &stop).await;
        resign.cancel();
        while let Some(joined) = campaign.join_next().await {
            if !matches!(joined, Ok(Ok(()))) {
                self.note(RunError::Task(task_ended(ELECTION, joined)));
            }
        }
        self.ended.take().map_or(Ok(()), Err)
    }

    /// Waits until all controllers have ended. Whatever ends before it is stopped stops all of them.
    async fn watch(
        &mut self,
        running: &mut JoinSet<NamedEnd>,
        campaign: &mut JoinSet<Result<(), Panic>>,
        stop: &CancellationToken,
    ) {
        while !running.is_empty() {
            let ended = tokio::select! {
                // A controller also ends because of what it needs: that comes first.
                biased;
                Some(joined) = campaign.join_next() => {
                    Some(RunError::Task(task_ended(ELECTION, joined)))
                }
                Some(joined) = running.join_next() => controller_ended(joined, stop),
                ended = trouble(self.factory, &self.handles, &mut self.serving), if self.ended.is_none() => {
                    Some(ended)
                }
            };
            if let Some(ended) = ended {
                self.note(ended);
                stop.cancel();
            }
        }
    }

    /// Has an unexpected end seen. The first is the one that the manager ends with.
    fn note(&mut self, ended: RunError) {
        if self.ended.is_some() {
            return;
        }
        let reason = chain(&ended);
        error!(%reason, "the manager ends");
        self.readiness.set(Some(&reason));
        self.ended = Some(ended);
    }
}

/// Waits for an unexpected end: of a task of a controller, which then has to come to its end, or of one that all
/// controllers need.
async fn trouble(
    factory: &Factory,
    handles: &[ControllerHandle],
    serving: &mut JoinSet<Result<(), Panic>>,
) -> RunError {
    let controllers = handles.iter().map(async |handle: &ControllerHandle| {
        let ended = handle.task_ended().await;
        RunError::Controller { controller: handle.name().to_owned(), ended }
    });
    let mut controllers: FuturesUnordered<_> = controllers.collect();
    tokio::select! {
        ended = factory.task_ended() => RunError::Task(ended),
        Some(ended) = controllers.next() => ended,
        Some(joined) = serving.join_next() => RunError::Task(task_ended(ENDPOINTS, joined)),
    }
}

/// How a controller ended; none if it was stopped.
fn controller_ended(
    joined: Result<NamedEnd, JoinError>,
    stop: &CancellationToken,
) -> Option<RunError> {
    let (controller, ended) = match joined {
        Ok((_, Ok(Ok(())))) if stop.is_cancelled() => return None,
        Ok((_, Ok(Err(error)))) => return Some(error),
        Ok((controller, Ok(Ok(())))) => (controller, TaskEnded::returned("controller")),
        Ok((controller, Err(panic))) => (controller, TaskEnded::panicked("controller", &panic)),
        Err(error) => (String::new(), TaskEnded::new("controller", &error.to_string())),
    };
    Some(RunError::Controller { controller, ended })
}

/// An error and what caused it, in one line.
fn chain(error: &dyn Error) -> String {
    let causes = successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Whether the manager is ready, and if not, why.
#[derive(Debug)]
struct Readiness(Mutex<Option<String>>);

impl Default for Readiness {
    fn default() -> Self {
        Self(Mutex::new(Some("the caches have not synced".to_owned())))
    }
}

impl Readiness {
    /// Not ready for this reason, or ready.
    fn set(&self, reason: Option<&str>) {
        *self.0.lock() = reason.map(str::to_owned);
    }

    /// Why it is not ready.
    fn reason(&self) -> Option<String> {
        self.0.lock().clone()
    }
}
