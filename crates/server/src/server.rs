//! Putting a server together, running it, and ending it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use masthead_cache::HistoryLimits;
use masthead_store::{Range, Store, StoreError};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use crate::app::App;
use crate::authn::Tokens;
use crate::budget::Budget;
use crate::catalog::Catalog;
use crate::connections::Connections;
use crate::definitions;
use crate::feed::Feed;
use crate::flights::{Clock, Flights};
use crate::housekeeping::Housekeeping;
use crate::limits::{
    CUSTOM_RESOURCES_MAX, DEFINITIONS_PAGE, FRESH_WAIT, HANDOVER_PARTS, Limits, READY_POLL,
    SHUTDOWN_GRACE, SHUTDOWN_PATIENCE, SHUTDOWN_WATCHES,
};
use crate::metrics::{Metrics, WatchCounters};
use crate::reads::Reads;
use crate::resources::Kind;
use crate::tasks::Tasks;
use crate::writes::Writes;
use crate::zipped::Pieces;

/// How a server is set up.
#[derive(Debug)]
pub struct Config {
    /// Where it listens.
    pub listen: SocketAddr,
    /// How it talks.
    pub security: Security,
    /// Who is let in by token.
    pub tokens: Tokens,
    /// What clients may use.
    pub limits: Limits,
    /// How much history each cache keeps.
    pub history: HistoryLimits,
    /// The caches hold bodies of at least so many bytes compressed: a fraction of the memory, for some
    /// microseconds an object that is written or read. [`COMPRESSED_BYTES_MIN`] is what pays off.
    ///
    /// [`COMPRESSED_BYTES_MIN`]: crate::limits::COMPRESSED_BYTES_MIN
    pub compress_bodies: Option<usize>,
}

/// How a server talks.
#[derive(Clone, Debug)]
pub enum Security {
    /// Over TLS.
    Tls(Arc<rustls::ServerConfig>),
    /// In the clear; only on loopback.
    InsecureHttp,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Plain HTTP was asked for where others could listen in.
    #[error(
        "plain HTTP is served on loopback only, and {0} is not: use TLS or listen on 127.0.0.1"
    )]
    InsecureAddress(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The store does not answer.
    #[error("the store cannot be read")]
    Store(#[from] StoreError),
}

/// A server that listens.
pub struct Server {
    app: Arc<App>,
    address: SocketAddr,
    down: watch::Sender<bool>,
    serving: JoinHandle<()>,
    tasks: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts to listen and to fill the caches. It answers at once, and says 429 to reads until the
    /// caches are there: see [`Server::ready`].
    pub async fn start(config: Config, store: Arc<dyn Store>) -> Result<Self, StartError> {
        let Config { listen, security, tokens, limits, history, compress_bodies } = config;
        let tls = match security {
            Security::Tls(config) => Some(TlsAcceptor::from(config)),
            Security::InsecureHttp if listen.ip().is_loopback() => None,
            Security::InsecureHttp => return Err(StartError::InsecureAddress(listen)),
        };
        let failed = |source| StartError::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        store.current().await?;

        let (clock, limits) = (Clock::start(), Arc::new(limits));
        let seed = getrandom::u64().unwrap_or(0);
        let tasks = Arc::<Tasks>::default();
        let catalog = Arc::new(Catalog::new());
        for versions in stored_definitions(&*store, &catalog).await? {
            catalog.put(versions);
        }
        let feed = Arc::new(Feed::new(
            store.clone(),
            catalog.clone(),
            history,
            compress_bodies,
            seed,
            tasks.clone(),
        ));
        let flights = Flights::new(limits.clone());
        let reads = Arc::new(Reads::new(
            store.clone(),
            flights.clone(),
            feed.unreadable().clone(),
            compress_bodies.is_some(),
        ));
        open_caches(&catalog, &feed, &reads);
        let writes =
            Arc::new(Writes::new(reads.clone(), store.clone(), catalog.clone(), limits.event_ttl));
        let metrics = Arc::new(Metrics::new(reads.clone(), flights.clone(), store.clone()));
        let (defined, defined_up_to) = watch::channel(0);
        let (begins, begun) = watch::channel(false);
        let app = Arc::new(App {
            catalog: catalog.clone(),
            feed: feed.clone(),
            reads: reads.clone(),
            writes: writes.clone(),
            store,
            flights: flights.clone(),
            pieces: Arc::new(Pieces::new(limits.zipped_bytes)),
            metrics,
            tokens,
            reading: Budget::new(limits.reads_in_flight, "reads at once", "max-reads-in-flight"),
            writing: Budget::new(limits.writes_in_flight, "writes at once", "max-writes-in-flight"),
            receiving: Budget::new(
                limits.request_bytes_in_flight,
                "bytes of request bodies",
                "max-request-bytes-in-flight",
            ),
            limits,
            defined: defined_up_to,
            begun,
            tasks: tasks.clone(),
            address: address.to_string(),
            began: Instant::now(),
        });
        let housekeeping =
            Arc::new(Housekeeping { catalog, feed, reads, writes, defined, tasks: tasks.clone() });
        let (down, goes_down) = watch::channel(false);
        let connections = Connections::new(app.clone(), tls, clock, goes_down.clone());
        let serving = tasks.spawn("accepting connections", connections.run(listener));
        let running = vec![
            tasks.spawn("housekeeping", live(app.clone(), housekeeping, begins)),
            tasks.spawn("watching for stalls", watch_for_stalls(app.clone(), clock, goes_down)),
        ];
        Ok(Self { app, address, down, serving, tasks: running })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Resolves when all caches are filled, the kept history is replayed and the namespaces that
    /// every cluster has are there.
    pub async fn ready(&self) {
        let mut begun = self.app.begun.clone();
        // The sender lives in a task that ends with the server.
        let _ = begun.wait_for(|begun| *begun).await;
    }

    /// How many watches are open.
    pub fn watches(&self) -> usize {
        self.app.flights.watches()
    }

    /// Ends watches cleanly, when they have been sent what was written, with a last bookmark; lets
    /// requests finish, and closes.
    pub async fn shutdown(self) {
        info!(watches = self.watches(), "shutting down");
        self.down.send_replace(true);
        if let Err(status) = self.app.reads.catch_up(FRESH_WAIT).await {
            warn!(error = status.message(), "watches end without what was written last");
        }
        let handover = self.app.limits.handover.min(SHUTDOWN_GRACE / 2);
        if !handover.is_zero() {
            for part in 0..HANDOVER_PARTS {
                self.app.flights.end_part(part, HANDOVER_PARTS);
                sleep(handover / HANDOVER_PARTS).await;
            }
        }
        self.app.flights.end_all();
        let mut serving = self.serving;
        if timeout(SHUTDOWN_WATCHES, &mut serving).await.is_err() {
            self.app.flights.cut_watches();
            let _ = serving.await;
        }
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// What the definitions in the store define, so that their objects are followed from the beginning.
async fn stored_definitions(
    store: &dyn Store,
    catalog: &Catalog,
) -> Result<Vec<Vec<Arc<Kind>>>, StoreError> {
    let kinds = catalog.now();
    let group = "apiextensions.k8s.io";
    let definitions =
        &kinds.stored(group, "customresourcedefinitions").expect("is built in").resource;
    let (at, mut after, mut found) = (store.current().await?, None, Vec::new());
    loop {
        let resource = definitions.into();
        let page = store.range(Range { resource, after, limit: DEFINITIONS_PAGE, at }).await?;
        for value in &page.values {
            let members = serde_json::from_slice(value.body()).ok();
            let versions = members.and_then(|it| definitions::read(&it).ok()).unwrap_or_default();
            let is_built_in = |kind: &Kind| !kinds.versions(&(&kind.resource).into()).is_empty();
            if versions.first().is_some_and(|stored| !is_built_in(stored)) {
                found.push(versions.into_iter().map(Arc::new).collect());
            }
        }
        after = page.next;
        if after.is_none() {
            found.truncate(CUSTOM_RESOURCES_MAX);
            return Ok(found);
        }
    }
}

/// Housekeeping, which begins anew with everything else when the store went back.
async fn live(app: Arc<App>, housekeeping: Arc<Housekeeping>, begins: watch::Sender<bool>) {
    let mut rewound = app.feed.rewound();
    loop {
        tokio::select! {
            () = begin(&app, &housekeeping, &begins) => return,
            _ = rewound.changed() => {}
        }
        begins.send_replace(false);
        app.feed.restart();
        open_caches(&app.catalog, &app.feed, &app.reads);
        // When the old caches cannot be asked any more: who comes back finds the new ones.
        app.flights.rewind_all();
        warn!(revision = ?app.store.oldest(), "the store went back: caches are filled anew");
    }
}

/// A cache for each kind, and following.
fn open_caches(catalog: &Catalog, feed: &Feed, reads: &Reads) {
    for kind in catalog.now().iter() {
        let cache = feed.open(&kind.resource);
        reads.open(&kind.resource, cache, WatchCounters::default());
    }
    feed.begin();
}

/// Housekeeping begins when the caches have got to the present: what it is shown before that is the past,
/// in which namespaces were deleted that are there again, and definitions were not there yet.
async fn begin(app: &App, housekeeping: &Arc<Housekeeping>, begins: &watch::Sender<bool>) {
    while !(app.reads.is_ready() && app.feed.is_replayed()) {
        sleep(READY_POLL).await;
    }
    let beginning = async {
        housekeeping.make_namespaces().await;
        begins.send_replace(true);
        begins.closed().await;
    };
    let definitions = housekeeping.clone().follow_definitions();
    let namespaces = housekeeping.clone().follow_namespaces();
    let events = async {
        if app.writes.has_to_expire() {
            let groups = ["", "events.k8s.io"].map(|group| housekeeping.expire_events(group));
            let [core, events] = groups;
            tokio::join!(core, events);
        }
    };
    tokio::join!(beginning, definitions, namespaces, events);
}

/// Lets go of answers that do not move: sooner once the server goes down.
async fn watch_for_stalls(app: Arc<App>, clock: Clock, mut down: watch::Receiver<bool>) {
    let patience = app.limits.stall_timeout;
    tokio::select! {
        () = end_stalled(&app, clock, patience) => {}
        _ = down.wait_for(|down| *down) => {}
    }
    end_stalled(&app, clock, patience.min(SHUTDOWN_PATIENCE)).await;
}

async fn end_stalled(app: &App, clock: Clock, patience: Duration) {
    let mut ticks = interval((patience / 6).max(Duration::from_millis(10)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        app.flights.end_stalled(clock, patience);
    }
}
