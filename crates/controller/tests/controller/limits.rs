//! The bounds of controllers, recorders and endpoints, at N and at N + 1.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use masthead_controller::limits::{
    ENDPOINT_CONNECTIONS_MAX, EVENT_INTERVAL, EVENT_NOTE_BYTES_MAX, EVENT_SERIES_IDLE,
    EVENT_SERIES_MAX, EVENTS_BURST, RECONCILE_TIMEOUT, STOP_GRACE, WORKERS, WORKERS_MAX,
};
use masthead_controller::{Action, Controller, EventKind, Manager, Recorder};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::world::World;

/// How many of so many objects are reconciled at a time.
async fn at_a_time(
    objects: usize,
    set: impl FnOnce(Controller<ConfigMap>) -> Controller<ConfigMap>,
) -> usize {
    let world = World::new();
    for number in 0..objects {
        world.put("configmaps", &format!("default/m{number}"), json!({}));
    }
    let factory = world.factory();
    let (now, stop) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
    let counted = now.clone();
    let controller = set(Controller::<ConfigMap>::new(&factory, "maps").unwrap());
    let runner = controller.reconcile(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        // Nobody ends, so that all who may begin have begun.
        std::future::pending()
    });
    factory.start();
    tokio::spawn(runner.run(stop.clone()));
    sleep(Duration::from_secs(10)).await;
    stop.cancel();
    now.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn as_many_reconciles_as_there_are_workers_run_at_a_time() {
    assert_eq!(at_a_time(WORKERS, |it| it).await, WORKERS);
    assert_eq!(at_a_time(WORKERS + 1, |it| it).await, WORKERS);
    assert_eq!(at_a_time(2, |it| it.workers(0)).await, 1, "there is always one");
    let most = WORKERS_MAX + 1;
    assert_eq!(at_a_time(most, |it| it.workers(WORKERS_MAX)).await, WORKERS_MAX);
    assert_eq!(at_a_time(most, |it| it.workers(most)).await, WORKERS_MAX);
}

/// How often a reconcile that takes so long began, and how often it came to its end, until a stop after
/// `stop` and a while for what is under way.
async fn lived(takes: Duration, stop_after: Duration) -> (usize, usize) {
    let world = World::new();
    world.put("configmaps", "default/a", json!({}));
    let factory = world.factory();
    let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0), Notify::new()));
    let (counted, stop) = (counts.clone(), CancellationToken::new());
    let controller = Controller::<ConfigMap>::new(&factory, "maps").unwrap();
    let runner = controller.reconcile(move |_| {
        let counted = counted.clone();
        async move {
            counted.0.fetch_add(1, Ordering::Relaxed);
            counted.2.notify_one();
            sleep(takes).await;
            counted.1.fetch_add(1, Ordering::Relaxed);
            Ok(Action::Done)
        }
    });
    factory.start();
    let running = tokio::spawn(runner.run(stop.clone()));
    // From the moment on at which it began.
    counts.2.notified().await;
    sleep(stop_after).await;
    stop.cancel();
    running.await.unwrap().unwrap();
    (counts.0.load(Ordering::Relaxed), counts.1.load(Ordering::Relaxed))
}

const MOMENT: Duration = Duration::from_millis(1);

fn just_under(bound: Duration) -> Duration {
    bound.saturating_sub(MOMENT)
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_may_take_as_long_as_its_timeout_and_not_longer() {
    let end = RECONCILE_TIMEOUT + Duration::from_secs(1);
    assert_eq!(lived(just_under(RECONCILE_TIMEOUT), end).await, (1, 1));
    let (begun, ended) = lived(RECONCILE_TIMEOUT + MOMENT, end).await;
    assert_eq!((begun, ended), (2, 0), "it was cancelled and tried again");
}

#[tokio::test(start_paused = true)]
async fn after_a_stop_a_reconcile_has_its_grace_and_no_more() {
    let begun = Duration::from_secs(5);
    assert_eq!(lived(just_under(begun + STOP_GRACE), begun).await, (1, 1));
    assert_eq!(lived(begun + STOP_GRACE + MOMENT, begun).await, (1, 0));
}

fn recorder(world: &World) -> Recorder {
    let client = world.client(Box::new(|| (Duration::ZERO, Duration::ZERO)));
    Recorder::new(client, "example.com/webs", "one")
}

async fn record(recorder: &Recorder, name: &str, reason: &str, note: &str) {
    let regarding = ObjectReference {
        name: Some(name.to_owned()),
        namespace: Some("default".to_owned()),
        ..ObjectReference::default()
    };
    recorder.record(&regarding, EventKind::Normal, reason, "Testing", note).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_object_has_its_burst_of_events_and_then_one_an_interval() {
    let world = World::new();
    let recorder = recorder(&world);
    for _ in 0..EVENTS_BURST {
        record(&recorder, "a", "Often", "").await;
    }
    assert_eq!(recorder.dropped(), 0);
    record(&recorder, "a", "Often", "").await;
    assert_eq!(recorder.dropped(), 1);
    sleep(just_under(EVENT_INTERVAL)).await;
    record(&recorder, "a", "Often", "").await;
    assert_eq!(recorder.dropped(), 2);
    sleep(MOMENT).await;
    record(&recorder, "a", "Often", "").await;
    assert_eq!(recorder.dropped(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_series_is_over_when_it_was_silent_for_long_enough() {
    let world = World::new();
    let recorder = recorder(&world);
    record(&recorder, "a", "Now", "").await;
    sleep(just_under(EVENT_SERIES_IDLE)).await;
    record(&recorder, "a", "Now", "").await;
    assert_eq!(world.all("events").len(), 1);
    sleep(EVENT_SERIES_IDLE).await;
    record(&recorder, "a", "Now", "").await;
    assert_eq!(world.all("events").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_note_has_as_many_bytes_as_the_api_takes() {
    let world = World::new();
    let recorder = recorder(&world);
    for (name, bytes) in [("a", EVENT_NOTE_BYTES_MAX), ("b", EVENT_NOTE_BYTES_MAX + 1)] {
        record(&recorder, name, "Long", &"n".repeat(bytes)).await;
    }
    let notes = world.all("events");
    assert_eq!(notes.len(), 2);
    assert!(notes.iter().all(|it| it["note"].as_str().unwrap().len() == EVENT_NOTE_BYTES_MAX));
}

#[tokio::test(start_paused = true)]
async fn a_recorder_knows_as_many_objects_as_it_may_and_not_one_more() {
    let world = World::new();
    let recorder = recorder(&world);
    for number in 0..EVENT_SERIES_MAX {
        record(&recorder, &format!("o{number}"), "Now", "").await;
    }
    assert_eq!((recorder.dropped(), world.all("events").len()), (0, EVENT_SERIES_MAX));
    record(&recorder, "one-more", "Now", "").await;
    assert_eq!(recorder.dropped(), 1);
    // And as many series: one more is written each time instead of being counted.
    record(&recorder, "o0", "Now", "").await;
    assert_eq!(world.all("events").len(), EVENT_SERIES_MAX);
    record(&recorder, "o0", "Other", "").await;
    record(&recorder, "o0", "Other", "").await;
    assert_eq!(world.all("events").len(), EVENT_SERIES_MAX + 2);
}

/// Asks for health on a connection that stays open.
async fn ask(stream: &mut TcpStream) -> std::io::Result<String> {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
    let mut answer = vec![0; 4096];
    let count = stream.read(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer[..count]).into_owned())
}

/// On the real clock: sockets do not wait for a virtual one.
#[tokio::test]
async fn the_endpoints_have_as_many_connections_as_they_may_and_the_next_waits() {
    let world = World::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let stop = CancellationToken::new();
    let factory = world.factory();
    let maps = Controller::<ConfigMap>::new(&factory, "maps").unwrap();
    let maps = maps.reconcile(|_| std::future::ready(Ok(Action::Done)));
    let manager = Manager::new(&factory).with(maps).listen(address);
    let running = tokio::spawn(manager.run(stop.clone()));
    let connect = async || loop {
        match TcpStream::connect(address).await {
            Ok(stream) => return stream,
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    };
    let mut open = Vec::new();
    for _ in 0..ENDPOINT_CONNECTIONS_MAX {
        let mut stream = connect().await;
        assert!(ask(&mut stream).await.unwrap().starts_with("HTTP/1.1 200"));
        open.push(stream);
    }
    let mut waits = connect().await;
    let asked = ask(&mut waits);
    tokio::pin!(asked);
    assert!(timeout(Duration::from_millis(200), &mut asked).await.is_err(), "there is no room");
    open.pop();
    let answer = timeout(Duration::from_secs(60), asked).await.expect("now there is").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"));
    stop.cancel();
    running.await.unwrap().unwrap();
}
