//! Every limit, at N and N + 1, with the answer that says which limit it is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Method, Request};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use masthead_server::{Config, Limits};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::held::HeldStore;
use crate::world::{Answer, MAPS, PATIENCE, Place, TOKEN, Watch, World, config, run};

const WATCH: &str = "/api/v1/namespaces/shop/configmaps?watch=true";

#[track_caller]
fn says(answer: Answer, flag: &str) {
    assert!(!answer.header("retry-after").is_empty(), "{:?}", answer.headers);
    let status = answer.fails(429, "TooManyRequests");
    let message = status["message"].as_str().unwrap();
    assert!(message.contains(flag), "{message}");
}

#[test]
fn watches_are_bounded_in_total_and_a_closed_one_makes_room() {
    run(async {
        let limits = Limits { watches: 3, ..Limits::default() };
        let (world, server) = World::limited(limits, false).await;
        let mut open = Vec::new();
        for _ in 0..3 {
            open.push(world.watch(WATCH).await);
        }
        says(world.get(WATCH).await, "(max-watches)");
        open.pop();
        world.until("/statz", |answer| answer.json()["watches"] == 2).await;
        open.push(world.watch(WATCH).await);
        assert_eq!(server.watches(), 3);
        server.shutdown().await;
    });
}

#[test]
fn watches_are_bounded_for_each_user() {
    run(async {
        let limits = Limits { watches_per_user: 2, ..Limits::default() };
        let (world, server) = World::limited(limits, false).await;
        let _open = (world.watch(WATCH).await, world.watch(WATCH).await);
        says(world.get(WATCH).await, "(max-watches-per-user)");
        let _other = world.watch_as(WATCH, &[("authorization", "Bearer reader-token")]).await;
        server.shutdown().await;
    });
}

/// One HTTP/2 connection for many requests.
pub(crate) async fn connect(world: &World) -> http2::SendRequest<Full<Bytes>> {
    let io = TokioIo::new(TcpStream::connect(world.address).await.unwrap());
    let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub(crate) fn request(world: &World, path: &str) -> Request<Full<Bytes>> {
    Request::builder()
        .uri(format!("http://{}{path}", world.address))
        .header("authorization", format!("Bearer {TOKEN}"))
        .body(Full::default())
        .unwrap()
}

#[test]
fn watches_are_bounded_on_each_connection() {
    run(async {
        let limits = Limits { watches_per_connection: 2, ..Limits::default() };
        let (world, server) = World::limited(limits, true).await;
        let mut sender = connect(&world).await;
        let mut open = Vec::new();
        for expected in [200, 200, 429] {
            let response = sender.send_request(request(&world, WATCH)).await.unwrap();
            assert_eq!(response.status(), expected);
            open.push(Watch::new(response));
        }
        let _elsewhere = world.watch(WATCH).await;
        server.shutdown().await;
    });
}

#[test]
fn streams_of_a_connection_are_bounded() {
    run(async {
        let limits = Limits { streams_per_connection: 2, ..Limits::default() };
        let (world, server) = World::limited(limits, true).await;
        let mut sender = connect(&world).await;
        let first = sender.send_request(request(&world, WATCH)).await.unwrap();
        let second = sender.send_request(request(&world, WATCH)).await.unwrap();
        let mut third = Box::pin(sender.send_request(request(&world, MAPS)));
        let waiting = timeout(Duration::from_millis(300), third.as_mut()).await;
        assert!(waiting.is_err(), "the client keeps to what the server announced");
        drop(first);
        let response = timeout(PATIENCE, third).await.expect("there is room now").unwrap();
        assert_eq!(response.status(), 200);
        drop(second);
        server.shutdown().await;
    });
}

#[test]
fn connections_are_bounded_and_those_above_are_told() {
    run(async {
        let limits = Limits { connections: 2, ..Limits::default() };
        let (world, server) = World::limited(limits, false).await;
        let mut open = Vec::new();
        while open.len() < 2 {
            // Connections of earlier requests may still be closing.
            let answer = world.send(Method::GET, WATCH, &[], "").await;
            if answer.status() == 200 {
                open.push(answer);
            }
        }
        says(world.get("/version").await, "(max-connections)");
        open.pop();
        world.until("/version", |answer| answer.code == 200).await;
        server.shutdown().await;
    });
}

#[test]
fn reads_in_flight_are_bounded_and_watches_do_not_count() {
    run(async {
        // The last place is never that of a user who has others.
        let limits = Limits { reads_in_flight: 3, ..Limits::default() };
        let (world, server) = World::limited(limits, false).await;
        let _watch = world.watch(WATCH).await;
        // Waits for a revision that does not come, over and over: the place is held.
        let held = || async {
            loop {
                let answer = world.get(&format!("{MAPS}?resourceVersion=99999999")).await;
                assert!(matches!(answer.code, 504 | 429), "{}", answer.text());
            }
        };
        let beside_one = async {
            let one = "apiserver_current_inflight_requests{request_kind=\"readOnly\"} 1";
            world.until("/metrics", |answer| answer.text().contains(one)).await;
            world.get(MAPS).await
        };
        let second = tokio::select! {
            () = held() => unreachable!("it has no end"),
            answer = beside_one => answer,
        };
        assert_eq!(second.code, 200, "{}", second.text());
        let third = tokio::select! {
            () = held() => unreachable!("it has no end"),
            () = held() => unreachable!("it has no end"),
            answer = world.until(MAPS, |answer| answer.code == 429) => answer,
        };
        says(third, "(max-reads-in-flight)");
        world.until(MAPS, |answer| answer.code == 200).await;
        server.shutdown().await;
    });
}

#[test]
fn writes_in_flight_are_bounded_and_reads_go_on() {
    run(async {
        let store = Arc::new(HeldStore::default());
        let limits = Limits { writes_in_flight: 3, ..Limits::default() };
        let (world, server) = World::on(store.clone(), limits).await;
        world.namespace("shop").await;
        store.hold();
        let named = |name: &str| json!({"metadata": {"name": name}});
        let bodies = [named("a"), named("b")];
        let held = async {
            let (first, second) =
                tokio::join!(world.post(MAPS, &bodies[0]), world.post(MAPS, &bodies[1]));
            (first.code, second.code)
        };
        let beside = async {
            let two = "apiserver_current_inflight_requests{request_kind=\"mutating\"} 2";
            world.until("/metrics", |answer| answer.text().contains(two)).await;
            says(world.post(MAPS, &named("c")).await, "(max-writes-in-flight)");
            assert_eq!(world.get(MAPS).await.code, 200);
            store.release();
        };
        assert_eq!(tokio::join!(held, beside).0, (201, 201));
        assert_eq!(world.post(MAPS, &named("c")).await.code, 201, "there is room again");
        server.shutdown().await;
    });
}

/// Fills `shop` with config maps of about 100 KB; the bytes of their list.
pub(crate) async fn fill(world: &World, count: usize) -> usize {
    for number in 0..count {
        world.set(&format!("big-{number:03}"), &"x".repeat(100_000)).await;
    }
    world.get(MAPS).await.body.len()
}

#[test]
fn bytes_of_lists_and_initial_events_in_flight_are_bounded() {
    run(async {
        let (world, server) = World::limited(Limits::default(), false).await;
        let list = fill(&world, 200).await;
        let is_maps = |it: &&serde_json::Value| it["resource"] == "configmaps";
        let statistics = world.get("/statz").await.ok();
        let maps = statistics["resources"].as_array().unwrap().iter().find(is_maps).unwrap();
        let bodies = usize::try_from(maps["bodyBytes"].as_u64().unwrap()).unwrap();
        server.shutdown().await;
        let wide = "/api/v1/configmaps?watch=true";
        // However they are held, what counts is what is sent.
        for (path, more, compress_bodies) in [
            (MAPS, list, None),
            (wide, bodies, None),
            (MAPS, list, Some(0)),
            (wide, bodies, Some(0)),
        ] {
            // A user who has something leaves a third of what it has to others.
            let enough = list + more + (list + more).div_ceil(3);
            for (budget, expected) in [(enough, 200), (enough - 1, 429)] {
                let limits = Limits { response_bytes_in_flight: budget, ..Limits::default() };
                let config = Config { compress_bodies, ..config(limits) };
                let (world, server) = World::of("limited", config, Place::Memory, false).await;
                world.namespace("shop").await;
                assert_eq!(fill(&world, 200).await, list);
                let mut stalled = world.open_raw(&format!("GET {MAPS} HTTP/1.1")).await;
                stalled.read_exact(&mut [0]).await.unwrap();
                let answer = world.send(Method::GET, path, &[], "").await;
                assert_eq!(answer.status(), expected, "{path} with {budget}");
                if expected == 429 {
                    says(world.get(path).await, "(max-response-bytes-in-flight)");
                }
                drop((stalled, answer));
                world.until("/statz", |it| it.json()["responseBytesInFlight"] == 0).await;
                server.shutdown().await;
            }
        }
    });
}

#[test]
fn bodies_uris_and_heads_are_bounded() {
    run(async {
        let limits = Limits {
            body_bytes: 1000,
            uri_bytes: 500,
            header_bytes: 16 * 1024,
            ..Limits::default()
        };
        for http2 in [false, true] {
            let (world, server) = World::limited(limits.clone(), http2).await;
            let body = |bytes: usize| {
                let frame = r#"{"metadata":{"name":"a"},"data":{"k":""}}"#.len();
                format!(
                    r#"{{"metadata":{{"name":"a"}},"data":{{"k":"{}"}}}}"#,
                    "x".repeat(bytes - frame)
                )
            };
            let path = format!("{MAPS}?dryRun=All");
            let post = async |bytes| world.ask(Method::POST, &path, &[], body(bytes)).await.code;
            assert_eq!((post(1000).await, post(1001).await), (201, 413));
            let uri = |bytes: usize| {
                let path = format!("{MAPS}?labelSelector=");
                format!("{path}{}", "a".repeat(bytes - path.len()))
            };
            let get = async |bytes| world.get(&uri(bytes)).await.code;
            assert_ne!(get(500).await, 414);
            assert_eq!(get(501).await, 414);
            let large = "x".repeat(15 * 1024);
            assert_eq!(world.ask(Method::GET, MAPS, &[("x-a", &large)], "").await.code, 200);
            let larger = "x".repeat(17 * 1024);
            let answer = world.ask(Method::GET, MAPS, &[("x-a", &larger)], "").await;
            assert_eq!(answer.code, 431);
            server.shutdown().await;
        }
    });
}

#[test]
fn a_head_or_a_body_that_does_not_come_is_given_up() {
    run(async {
        let short = Duration::from_millis(300);
        let limits = Limits { header_timeout: short, request_timeout: short, ..Limits::default() };
        let (world, server) = World::limited(limits, false).await;
        let answer = world.raw(b"GET /version HTTP/1.1\r\nhost").await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
        let head = format!("POST {MAPS} HTTP/1.1\r\ncontent-length: 100");
        let mut stream = world.open_raw(&head).await;
        let mut line = [0; 12];
        timeout(PATIENCE, stream.read_exact(&mut line)).await.unwrap().unwrap();
        // The client's own affair, which is no error in the server's log.
        assert_eq!(&line, b"HTTP/1.1 408");
        server.shutdown().await;
    });
}

/// Waits until so many answers have been given up since nobody read them.
async fn stalled_responses(world: &World, count: usize) {
    let line = format!("masthead_stalled_responses {count}\n");
    world.until("/metrics", |answer| answer.text().contains(&line)).await;
}

#[test]
fn an_answer_that_nobody_reads_is_reset_and_others_go_on() {
    run(async {
        let limits = Limits { stall_timeout: Duration::from_millis(500), ..Limits::default() };
        let (world, server) = World::limited(limits, false).await;
        fill(&world, 200).await;
        let mut watch = world.watch(&format!("{MAPS}/small?watch=true")).await;
        let list = world.open_raw(&format!("GET {MAPS} HTTP/1.1")).await;
        let stalled = world.open_raw(&format!("GET {MAPS}?watch=true HTTP/1.1")).await;
        stalled_responses(&world, 2).await;
        let statistics =
            world.until("/statz", |answer| answer.json()["responseBytesInFlight"] == 0).await;
        assert_eq!(statistics.json()["watches"], 1, "only the one that is read");
        world.set("small", "1").await;
        assert!(watch.short().await.starts_with("ADDED small@"));
        drop((list, stalled));
        server.shutdown().await;
    });
}

#[test]
fn a_stalled_stream_of_http2_is_reset_and_its_neighbours_go_on() {
    run(async {
        let limits = Limits { stall_timeout: Duration::from_millis(500), ..Limits::default() };
        let (world, server) = World::limited(limits, true).await;
        fill(&world, 200).await;
        let mut sender = connect(&world).await;
        let small = format!("{MAPS}/small?watch=true");
        let mut watch = Watch::new(sender.send_request(request(&world, &small)).await.unwrap());
        let unread = sender.send_request(request(&world, MAPS)).await.unwrap();
        stalled_responses(&world, 1).await;
        world.until("/statz", |answer| answer.json()["responseBytesInFlight"] == 0).await;
        world.set("small", "1").await;
        assert!(watch.short().await.starts_with("ADDED small@"), "on the same connection");
        drop(unread);
        server.shutdown().await;
    });
}

#[test]
fn a_slow_reader_that_does_read_is_not_reset() {
    run(async {
        let limits = Limits { stall_timeout: Duration::from_secs(1), ..Limits::default() };
        let (world, server) = World::limited(limits, false).await;
        let bytes = fill(&world, 100).await;
        let mut slow = TcpStream::connect(world.address).await.unwrap();
        let head = format!(
            "GET {MAPS} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n\r\n"
        );
        slow.write_all(head.as_bytes()).await.unwrap();
        let (mut read, mut part) = (0, vec![0; 64 * 1024]);
        let began = Instant::now();
        loop {
            let count = timeout(PATIENCE, slow.read(&mut part)).await.unwrap().unwrap();
            if count == 0 {
                break;
            }
            read += count;
            if began.elapsed() < Duration::from_secs(3) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        assert!(read > bytes, "all of it came, with its head");
        let _ = slow.shutdown().await;
        server.shutdown().await;
    });
}

#[test]
fn bytes_of_long_selectors_of_watches_are_bounded() {
    run(async {
        let limits = Limits { selector_bytes: 10_000, ..Limits::default() };
        let (world, server) = World::limited(limits, false).await;
        let path = |values: usize| {
            let values: Vec<_> = (0..values).map(|value| format!("v{value:04}")).collect();
            format!("{MAPS}?watch=true&labelSelector=app+in+({})", values.join(","))
        };
        // A short one counts only as a watch.
        let _short: Vec<_> =
            futures_util::future::join_all((0..30).map(|_| async { world.watch(&path(50)).await }))
                .await;
        let first = world.watch(&path(400)).await;
        let _second = world.watch(&path(400)).await;
        let _third = world.watch(&path(400)).await;
        let refused = world.get(&path(400)).await.fails(429, "TooManyRequests");
        assert!(refused["message"].as_str().unwrap().contains("max-selector-bytes"), "{refused}");
        drop(first);
        let brief = format!("{}&timeoutSeconds=1", path(400));
        world.until(&brief, |answer| answer.code == 200).await;
        server.shutdown().await;
    });
}
