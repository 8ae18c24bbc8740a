//! The case that started it: a list that takes longer than a request may, under constant churn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use masthead_informer::upstream::HttpVersion;
use masthead_informer::{Factory, FactorySettings, Informer, SyncReport, Timeouts};
use masthead_reflector::{Phase, Strategy};
use masthead_store::{MemoryStore, Store};
use tokio::time::{Instant, sleep, timeout};

use crate::proxy::Proxy;
use crate::server::{pod, put, raw_get, serve, upstream};

const PODS: usize = 950;
/// A request that takes longer is given up. The whole list takes twice as long.
const REQUEST: Duration = Duration::from_secs(3);
/// How long the bytes of the list take, on a machine that has time for nothing else.
const WHOLE: Duration = Duration::from_secs(6);
/// What it may take, of that.
const FACTOR: f64 = 1.3;

struct Slow {
    server: masthead_server::Server,
    store: Arc<MemoryStore>,
    done: Arc<AtomicBool>,
    churn: tokio::task::JoinHandle<()>,
}

impl Slow {
    /// A server whose pods change all the time.
    async fn start() -> Self {
        let (server, store) = serve(PODS).await;
        let (done, churning) = (Arc::new(AtomicBool::new(false)), store.clone());
        let stop = done.clone();
        let churn = tokio::spawn(async move {
            for n in 1.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                put(&churning, std::iter::once(pod(n % PODS, n as u64))).await;
                sleep(Duration::from_millis(100)).await;
            }
        });
        Self { server, store, done, churn }
    }

    /// Bytes of the whole list as they go over the wire.
    async fn list_bytes(&self, gzip: bool) -> f64 {
        let accept = if gzip { "gzip" } else { "identity" };
        let raw = raw_list(self.server.address(), accept, Duration::from_secs(60)).await.unwrap();
        #[expect(clippy::cast_precision_loss, reason = "some megabytes")]
        let bytes = raw as f64;
        bytes
    }

    async fn stop(self) {
        self.done.store(true, Ordering::Relaxed);
        self.churn.await.unwrap();
        self.server.shutdown().await;
    }
}

/// Lists everything in one request; the bytes that came, or none if it took too long.
async fn raw_list(address: std::net::SocketAddr, encoding: &str, limit: Duration) -> Option<usize> {
    timeout(limit, raw_get(address, "/api/v1/pods", encoding)).await.ok().map(|it| it.len())
}

/// How long the bytes of the list take over a link of this rate: on a machine that is busy, longer
/// than the rate says.
async fn time_needed(server: std::net::SocketAddr, rate: f64, encoding: &str) -> Duration {
    let proxy = Proxy::start(server, rate, None).await;
    let began = Instant::now();
    raw_list(proxy.address, encoding, Duration::from_secs(60)).await.unwrap();
    began.elapsed()
}

fn factory(connector: masthead_informer::upstream::Upstream, strategy: Strategy) -> Factory {
    let timeouts = Timeouts {
        connect: Duration::from_secs(1),
        progress: Duration::from_secs(2),
        request: REQUEST,
        ..Timeouts::default()
    };
    let settings = FactorySettings { timeouts, strategy, ..FactorySettings::default() };
    Factory::with_settings(connector, settings).unwrap()
}

/// Syncs, and watches the report while it does.
async fn sync(factory: &Factory) -> (Informer<Pod>, Duration, Vec<SyncReport>) {
    let informer = factory.informer::<Pod>().build().unwrap();
    let began = Instant::now();
    factory.start();
    let mut seen = Vec::new();
    let synced = informer.wait_for_sync();
    tokio::pin!(synced);
    loop {
        match timeout(Duration::from_millis(50), &mut synced).await {
            Ok(synced) => {
                synced.unwrap();
                return (informer.clone(), began.elapsed(), seen);
            }
            Err(_) => seen.push(factory.report()),
        }
    }
}

/// The cache has all objects, and goes on to have what is written.
async fn check_cache(slow: &Slow, informer: &Informer<Pod>) {
    assert_eq!(informer.lister().len(), PODS);
    let revision = slow.store.current().await.unwrap();
    informer.wait_for(revision, Duration::from_secs(60)).await.unwrap();
}

async fn syncs_in_time(slow: &Slow, strategy: Strategy, gzip: bool, cut: Option<Duration>) {
    let what = format!("{strategy:?}, gzip {gzip}, cut {cut:?}");
    // This server compresses lists, and no watches.
    let packed = gzip && strategy == Strategy::Pages;
    let rate = slow.list_bytes(packed).await / WHOLE.as_secs_f64();
    let proxy = Proxy::start(slow.server.address(), rate, cut).await;
    let upstream = upstream(proxy.address, HttpVersion::Http1, gzip).await;
    let factory = factory(upstream, strategy);
    let needed = time_needed(slow.server.address(), rate, if packed { "gzip" } else { "identity" });
    let ((informer, took, reports), needed) = tokio::join!(sync(&factory), needed);
    let most = needed.mul_f64(FACTOR) + cut.unwrap_or_default();
    let report = factory.report();
    assert!(took <= most, "{what}: {took:?}, {most:?} were due\n{report}");
    let moving = reports.iter().map(|it| it.resources[0].report.bytes);
    let moving: Vec<_> = moving.collect();
    assert!(moving.windows(2).filter(|it| it[1] > it[0]).count() > 20, "{what}: {moving:?}");
    let counted = |it: &SyncReport| match it.resources[0].report.phase {
        Phase::Listing { objects, .. } | Phase::Streaming { objects } => objects > 0,
        _ => false,
    };
    assert!(reports.iter().any(counted), "{what}: nothing to see while it ran");
    if cut.is_some() {
        assert!(proxy.cuts() > 0 && report.resources[0].report.errors.total() > 0, "{what}");
    }
    check_cache(slow, &informer).await;
    factory.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_takes_longer_than_a_request_may_syncs_in_the_time_its_bytes_need() {
    let slow = Slow::start().await;
    let one_request = async {
        let rate = slow.list_bytes(false).await / WHOLE.as_secs_f64();
        let proxy = Proxy::start(slow.server.address(), rate, None).await;
        for _ in 0..3 {
            let listed = raw_list(proxy.address, "identity", REQUEST).await;
            assert_eq!(listed, None, "a client that lists in one request never syncs");
        }
    };
    tokio::join!(
        one_request,
        syncs_in_time(&slow, Strategy::Streaming, false, None),
        syncs_in_time(&slow, Strategy::Streaming, true, None),
        syncs_in_time(&slow, Strategy::Pages, false, None),
        syncs_in_time(&slow, Strategy::Pages, true, None),
    );
    slow.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_cut_again_and_again_costs_what_was_under_way() {
    let slow = Slow::start().await;
    let cut = Some(REQUEST);
    tokio::join!(
        syncs_in_time(&slow, Strategy::Streaming, false, cut),
        syncs_in_time(&slow, Strategy::Streaming, true, cut),
        syncs_in_time(&slow, Strategy::Pages, false, cut),
        syncs_in_time(&slow, Strategy::Pages, true, cut),
    );
    slow.stop().await;
}
