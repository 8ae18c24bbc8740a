//! Several controllers in one process.

mod endpoints;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use masthead_informer::{Factory, SyncError};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

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
        let mut terminate = signal(SignalKind::terminate()).map_err(RunError::Signals)?;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let waiting = tokio::spawn(async move {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            stopped.cancel();
        });
        let ended = self.run(stop).await;
        waiting.abort();
        ended
    }

    /// Runs until it is stopped: first the controllers end, then the lease is given back, then the factory
    /// is stopped.
    pub async fn run(self, stop: CancellationToken) -> Result<(), RunError> {
        let ready = Arc::new(AtomicBool::new(false));
        // Ends with this function, however it ends.
        let mut serving = JoinSet::new();
        if let Some(address) = self.listener {
            let listener = TcpListener::bind(address).await;
            let listener = listener.map_err(|source| RunError::Listen { address, source })?;
            serving.spawn(endpoints::serve(listener, self.registry(), ready.clone()));
        }
        self.factory.start();
        let ended = lead(self.runners, self.election, &self.factory, &ready, &stop).await;
        ready.store(false, Ordering::Relaxed);
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

/// Warms up, leads and reconciles.
async fn lead(
    runners: Vec<Runner>,
    election: Option<LeaderElection>,
    factory: &Factory,
    ready: &AtomicBool,
    stop: &CancellationToken,
) -> Result<(), RunError> {
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        synced = factory.wait_for_sync() => drop(synced?),
    }
    ready.store(true, Ordering::Relaxed);
    // One that ends takes the others along, and nobody else who has the caller's token.
    let (stop, resign) = (stop.child_token(), CancellationToken::new());
    let mut campaign = JoinSet::new();
    let leadership = match election {
        None => Leadership::always(),
        Some(election) => {
            let (leadership, run) = election.campaign(resign.clone());
            campaign.spawn(run);
            leadership
        }
    };
    let mut running = JoinSet::new();
    for runner in runners {
        running.spawn(runner.run_while(leadership.clone(), stop.clone()));
    }
    let mut ended = Ok(());
    while let Some(result) = running.join_next().await {
        // A controller that panics outside of a reconcile is our bug, and ends like one that cannot sync.
        if let Ok(Err(error)) = result {
            ended = Err(RunError::Sync(error));
        }
        stop.cancel();
    }
    resign.cancel();
    campaign.join_all().await;
    ended
}
