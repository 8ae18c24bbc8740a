//! Tasks that end although nothing told them to.

use futures_util::StreamExt as _;
use masthead_cache::HistoryLimits;
use masthead_controller::{LeaderElection, Manager, Runner};
use masthead_informer::limits::HANDLERS_MAX;
use masthead_informer::{HandlerOptions, Representation, SyncError};
use serde::{Deserialize, Deserializer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// How a controller ended: its name, the task and the reason.
fn ended(result: Result<(), RunError>) -> (String, String, String) {
    let Err(RunError::Controller { controller, ended, .. }) = result else {
        panic!("{result:?}");
    };
    (controller, ended.task.to_string(), ended.reason.to_string())
}

/// The keys before a panic are reconciled; then the controller ends, and says so everywhere.
async fn trigger_panics(panics: Panics) {
    let life = Life::new();
    life.map("own", json!({}));
    let fuse = panics.fuse();
    let burning = fuse.clone();
    let keys = keys(&["a", "b", "c", "d"]).inspect(move |_| burning.call());
    let running = life.run(life.controller().triggered_by(keys));
    let handle = running.handle;
    let result = timeout(MINUTE, running.task).await.expect("it ends").unwrap();
    let (controller, task, reason) = ended(result);
    assert_eq!((controller.as_str(), task.as_str()), ("maps", "feed of a stream of keys"));
    let at = if panics == Panics::Third { 2 } else { 0 };
    assert_eq!(reason, format!("it panicked: fuse {at}"));
    let snapshot = handle.snapshot();
    assert_eq!(snapshot.panics.triggers, 1);
    let text = snapshot.ended.unwrap().to_string();
    assert_eq!(text, format!("{task} ended unexpectedly: {reason}"));
    life.assert_logged(&["controller=maps", "function=trigger", "panic=fuse"], 1);
    life.assert_logged(&["controller=maps", "feed of a stream of keys", &reason], 1);
    assert!(!life.stop.is_cancelled());
}

#[test]
fn a_stream_of_keys_that_panics_ends_the_controller_with_an_error() {
    for panics in Panics::ALL {
        on_paused_clock(trigger_panics(panics));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_keys_may_come_to_its_end() {
    let life = Life::new();
    life.map("own", json!({}));
    let running = life.run(life.controller().triggered_by(keys(&["a", "b"])));
    let mut seen: Vec<_> = life.news().await.split_inclusive("own").map(str::to_owned).collect();
    seen.sort_unstable();
    assert_eq!(seen.concat().len(), "abown".len(), "{seen:?}");
    life.map("c", json!({}));
    assert_eq!(life.news().await, "c");
    life.assert_well(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_was_shut_down_is_no_error() {
    let life = Life::new();
    let running = life.run(life.controller());
    assert_eq!(life.news().await, "");
    running.handle.queue().shutdown_and_drain().await;
    sleep(MINUTE).await;
    life.assert_well(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_for_which_an_informer_has_no_room_ends_with_an_error() {
    let life = Life::new();
    life.map("a", json!({}));
    let secrets = life.secrets();
    let streams: Vec<_> =
        (0..HANDLERS_MAX).map(|_| secrets.events(&HandlerOptions::default()).unwrap()).collect();
    let running = life.run(life.controller().owns(&secrets));
    let handle = running.handle;
    let result = timeout(MINUTE, running.task).await.expect("it ends").unwrap();
    let (controller, task, reason) = ended(result);
    assert_eq!((controller.as_str(), task.as_str()), ("maps", "feed of owned secrets"));
    assert!(reason.contains("at most 1024 handlers"), "{reason}");
    assert_eq!(*life.seen.lock(), Vec::<String>::new(), "it did not begin");
    assert!(handle.snapshot().ended.is_some());
    life.assert_logged(&["controller=maps", "feed of owned secrets", "at most 1024"], 1);
    drop(streams);
    let running = life.run(life.controller().owns(&secrets));
    assert_eq!(life.news().await, "a");
    life.stop.cancel();
    running.task.await.unwrap().unwrap();
}

fn error_text(error: &RunError) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    format!("{error}: {source}")
}

/// A runner of maps that does nothing.
fn idle(life: &Life, name: &str) -> Runner {
    let controller = Controller::<ConfigMap>::new(&life.factory, name).unwrap();
    controller.reconcile(|_| ready(Ok(Action::Done)))
}

#[tokio::test(start_paused = true)]
async fn a_manager_ends_with_the_controller_that_ended_and_the_others_come_to_their_end() {
    let life = Life::new();
    life.map("a", json!({}));
    let broken = Controller::<ConfigMap>::new(&life.factory, "broken").unwrap();
    let broken = broken.triggered_by(Box::pin(stream::once(async {
        sleep(Duration::from_secs(5)).await;
        panic!("trigger")
    })));
    let broken = broken.reconcile(|_| ready(Ok(Action::Done)));
    let finished = Arc::new(AtomicU64::new(0));
    let counts = finished.clone();
    let slow = Controller::<ConfigMap>::new(&life.factory, "slow").unwrap();
    let slow = slow.reconcile(move |_| {
        let counts = counts.clone();
        async move {
            sleep(Duration::from_secs(10)).await;
            counts.fetch_add(1, Ordering::Relaxed);
            Ok(Action::Done)
        }
    });
    let stop = CancellationToken::new();
    let manager = Manager::new(&life.factory).with(broken).with(slow);
    let handles = manager.handles();
    let error = timeout(MINUTE, manager.run(stop.clone())).await.expect("it ends").unwrap_err();
    let text = error_text(&error);
    assert!(text.starts_with("the controller broken ended unexpectedly: feed of a"), "{text}");
    assert!(text.ends_with("it panicked: trigger"), "{text}");
    assert_eq!(finished.load(Ordering::Relaxed), 1, "what was under way came to its end");
    assert!(handles[0].snapshot().ended.is_some() && handles[1].snapshot().ended.is_none());
    assert!(!stop.is_cancelled(), "nobody else who has the token is stopped");
    life.assert_logged(&["the manager ends", "broken", "trigger"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_manager_ends_if_its_election_panics() {
    let life = Life::new();
    let calls = Arc::new(AtomicU64::new(0));
    let link = move || {
        assert!(calls.fetch_add(1, Ordering::Relaxed) < 6, "the link broke");
        (Duration::ZERO, Duration::ZERO)
    };
    let client = life.world.client(Box::new(link));
    let election = LeaderElection::new(client, "default", "lock", "it");
    let manager = Manager::new(&life.factory).with(idle(&life, "maps")).elected(election);
    let run = timeout(MINUTE, manager.run(CancellationToken::new()));
    let error = run.await.expect("it ends").unwrap_err();
    assert!(matches!(error, RunError::Task(_)), "{error:?}");
    let text = error_text(&error);
    assert!(text.contains("leader election ended unexpectedly: it panicked: the link"), "{text}");
    life.assert_logged(&["the manager ends", "the link broke"], 1);
}

std::thread_local! {
    /// Whether the destructor of a [`Fragile`] panics.
    static BREAKS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// A map whose destructor panics where a test says so: a bug that ends what fills the cache.
#[derive(Debug)]
struct Fragile;

impl<'de> Deserialize<'de> for Fragile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|_| Self)
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        assert!(!BREAKS.get() || std::thread::panicking(), "fragile");
    }
}

impl masthead_informer::Kind for Fragile {
    fn resource() -> masthead_core::Resource {
        crate::world::core(MAPS, "ConfigMap")
    }
}

fn fragile(life: &Life) -> Informer<Fragile> {
    let history = HistoryLimits { changes: 0, ..HistoryLimits::default() };
    let builder = life.factory.informer::<Fragile>().representation(Representation::Typed);
    builder.history(history).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_manager_ends_if_nothing_fills_a_cache_any_more() {
    let life = Life::new();
    life.map("a", json!({}));
    let maps = fragile(&life);
    let runner = Controller::of("maps", maps).reconcile(|_| ready(Ok(Action::Done)));
    let manager = Manager::new(&life.factory).with(runner);
    let mut running = tokio::spawn(manager.run(CancellationToken::new()));
    sleep(MINUTE).await;
    BREAKS.set(true);
    let mut result = None;
    for n in 0..100 {
        life.map("a", labelled(n));
        if let Ok(joined) = timeout(Duration::from_secs(1), &mut running).await {
            result = Some(joined.unwrap());
            break;
        }
    }
    BREAKS.set(false);
    let error = result.expect("old states are dropped some time").unwrap_err();
    let text = error_text(&error);
    assert!(text.contains("reflector of configmaps ended unexpectedly"), "{text}");
    assert!(text.ends_with("it panicked: fragile"), "{text}");
    // The next manager on it does not begin.
    let again = Manager::new(&life.factory).with(idle(&life, "again"));
    let error = again.run(CancellationToken::new()).await.unwrap_err();
    let is_seen = matches!(&error, RunError::Sync(SyncError::Ended { .. }) | RunError::Task(_));
    assert!(is_seen, "{error:?}");
}

/// Without a manager, and with a cache of another factory.
#[tokio::test(start_paused = true)]
async fn a_controller_ends_if_nothing_fills_a_cache_that_it_reads() {
    let (life, other) = (Life::new(), Life::new());
    other.map("a", json!({}));
    let maps = fragile(&other);
    other.factory.start();
    let controller = life.controller().watches(&maps, |_: &Entry<Fragile>| Vec::new());
    let mut running = life.run(controller);
    sleep(MINUTE).await;
    BREAKS.set(true);
    let mut result = None;
    for n in 0..100 {
        other.map("a", labelled(n));
        if let Ok(joined) = timeout(Duration::from_secs(1), &mut running.task).await {
            result = Some(joined.unwrap());
            break;
        }
    }
    BREAKS.set(false);
    let (controller, task, reason) = ended(result.expect("old states are dropped some time"));
    assert_eq!((controller.as_str(), task.as_str()), ("maps", "reflector of configmaps"));
    assert_eq!(reason, "it panicked: fragile");
}

#[tokio::test(start_paused = true)]
async fn a_controller_ends_if_the_campaign_that_it_takes_part_in_is_dropped() {
    let life = Life::new();
    life.map("a", json!({}));
    let direct = || (Duration::ZERO, Duration::ZERO);
    let client = life.world.client(Box::new(direct));
    let election = LeaderElection::new(client, "default", "lock", "it");
    let (leadership, campaign) = election.campaign(CancellationToken::new());
    let campaign = tokio::spawn(campaign);
    life.factory.start();
    let runner = idle(&life, "maps");
    let running = tokio::spawn(runner.run_while(leadership, life.stop.clone()));
    sleep(MINUTE).await;
    assert!(!running.is_finished());
    campaign.abort();
    let result = timeout(MINUTE, running).await.expect("it ends").unwrap();
    let (controller, task, _) = ended(result);
    assert_eq!((controller.as_str(), task.as_str()), ("maps", "leader election"));
}

/// An answer of the endpoints.
async fn ask(address: std::net::SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

/// Asks until the answer has these words in it: the endpoints come up beside the test.
async fn ask_until(address: std::net::SocketAddr, path: &str, words: &[&str]) -> String {
    let asking = async {
        loop {
            match ask(address, path).await {
                Some(answer) if words.iter().all(|word| answer.contains(word)) => return answer,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    timeout(MINUTE, asking).await.unwrap_or_else(|_| panic!("{path} never has {words:?}"))
}

fn free_address() -> std::net::SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// On the real clock: sockets do not wait for a virtual one.
#[tokio::test]
async fn the_endpoints_tell_of_panics_and_of_what_ended() {
    let life = Life::new();
    life.map("a", json!({}));
    let (begun, done, breaks) =
        (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(Notify::new()));
    let waits = breaks.clone();
    let keys = Box::pin(stream::once(async move {
        waits.notified().await;
        panic!("trigger \"quoted\"")
    }));
    let controller = life.controller().triggered_by(keys);
    let controller = controller.when(Predicate::new(|_, _| panic!("predicate")));
    let (says, ends) = (begun.clone(), done.clone());
    let calls = AtomicU64::new(0);
    let runner = controller.reconcile(move |_| {
        let (says, ends) = (says.clone(), ends.clone());
        let call = calls.fetch_add(1, Ordering::Relaxed);
        async move {
            if call == 1 {
                says.notify_one();
                ends.notified().await;
            }
            Ok(Action::Done)
        }
    });
    let address = free_address();
    let manager = Manager::new(&life.factory).with(runner).listen(address);
    let running = tokio::spawn(manager.run(CancellationToken::new()));
    ask_until(address, "/readyz", &["200 OK"]).await;
    // The first reconcile is over before the second begins.
    ask_until(address, "/metrics", &[r#"reconcile_total{controller="maps",result="success"} 1"#])
        .await;
    life.map("a", labelled(1));
    timeout(MINUTE, begun.notified()).await.unwrap();
    let predicate =
        r#"controller_runtime_user_panics_total{controller="maps",function="predicate"} 1"#;
    let well = [predicate, r#"controller_runtime_ended{controller="maps"} 0.0"#];
    ask_until(address, "/metrics", &well).await;
    ask_until(address, "/readyz", &["200 OK"]).await;
    breaks.notify_one();
    // What is under way holds up the end, and not that it is seen.
    let reason = ["503", "maps ended unexpectedly", "it panicked: trigger"];
    ask_until(address, "/readyz", &reason).await;
    ask_until(address, "/metrics", &[r#"controller_runtime_ended{controller="maps"} 1.0"#]).await;
    done.notify_one();
    let error = timeout(MINUTE, running).await.expect("it ends").unwrap().unwrap_err();
    assert!(error_text(&error).contains("it panicked: trigger"), "{error:?}");
}

/// What only a planted bug can bring about, and tests of the tests.
#[cfg(planted)]
mod planted {
    use masthead_core::planted;

    use super::*;

    /// Runs a controller of one map until it ends; says with which task and why.
    async fn ends() -> (String, String) {
        let life = Life::new();
        life.map("a", json!({}));
        let running = life.run(life.controller());
        let result = timeout(MINUTE, running.task).await.expect("it ends").unwrap();
        let (controller, task, reason) = ended(result);
        assert_eq!(controller, "maps");
        life.assert_logged(&["controller=maps", &task, &reason], 1);
        assert_eq!(*running.handle.snapshot().ended.unwrap().task, *task);
        (task, reason)
    }

    #[test]
    fn planted_a_feed_that_returns_ends_the_controller_with_an_error() {
        let (task, reason) = planted::with("feed_returns", || on_paused_clock(ends()));
        assert_eq!((task.as_str(), reason.as_str()), {
            ("feed of configmaps", "it returned before it was stopped")
        });
    }

    #[test]
    fn planted_a_worker_that_panics_ends_the_controller_with_an_error() {
        let (task, reason) = planted::with("worker_panics", || on_paused_clock(ends()));
        assert_eq!((task.as_str(), reason.as_str()), ("worker", "it panicked: as planted"));
    }

    #[test]
    fn planted_a_feed_that_is_not_joined_is_caught() {
        planted::with("feeds_are_not_joined", || {
            for panics in Panics::ALL {
                let caught =
                    std::panic::catch_unwind(|| on_paused_clock(trigger_panics(panics))).is_err();
                assert!(planted::reached() && caught, "{panics:?}");
            }
        });
    }

    #[test]
    fn planted_endpoints_that_return_end_the_manager_with_an_error() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        planted::with("endpoints_return", || {
            runtime.block_on(async {
                let life = Life::new();
                let address = free_address();
                let manager = Manager::new(&life.factory).with(idle(&life, "maps")).listen(address);
                let running = tokio::spawn(manager.run(CancellationToken::new()));
                let asks = tokio::spawn(async move {
                    while ask(address, "/healthz").await.is_none() {
                        tokio::task::yield_now().await;
                    }
                });
                let error = timeout(MINUTE, running).await.unwrap().unwrap().unwrap_err();
                asks.abort();
                assert!(error_text(&error).contains("endpoints for health"), "{error:?}");
            });
        });
    }
}
