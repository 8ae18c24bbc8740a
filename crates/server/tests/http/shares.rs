//! A5: what one user takes of a budget never keeps another user out of it. In each test one user takes
//! whatever it can get, and the other, who asks for little, is answered every time.

use std::sync::Arc;

use http::Method;
use masthead_server::Limits;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::held::HeldStore;
use crate::world::{Answer, MAPS, World, run};

/// How often the quiet user asks while the other one holds all that it can get.
const REQUESTS: usize = 20;

const QUIET: (&str, &str) = ("authorization", "Bearer quiet-token");

const STREAMING: &str = "/api/v1/configmaps?watch=true&sendInitialEvents=true\
    &resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

async fn quiet(world: &World, method: Method, path: &str, body: String) -> Answer {
    let headers = [QUIET, ("content-type", "application/json")];
    world.ask(method, path, &headers, body).await
}

fn config_map(name: &str) -> String {
    json!({"metadata": {"name": name}, "data": {"k": "x".repeat(1000)}}).to_string()
}

/// Whether the answer whose head comes on a raw connection is a refusal for lack of room.
async fn is_refused(stream: &mut TcpStream) -> bool {
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    &head == b"HTTP/1.1 429"
}

/// Begins requests on connections of their own and reads none of the answers, until one is refused.
async fn take_all(world: &World, path: &str) -> Vec<TcpStream> {
    let mut held = Vec::new();
    loop {
        let mut stream = world.open_raw(&format!("GET {path} HTTP/1.1")).await;
        if is_refused(&mut stream).await {
            return held;
        }
        held.push(stream);
    }
}

/// A server with room for four lists of its config maps, of some 12 MB each: what the sockets keep
/// of an answer that is not read is less.
async fn with_room_for_four_lists() -> (World, masthead_server::Server) {
    let fill = async |world: &World| {
        for number in 0..120 {
            world.set(&format!("big-{number:03}"), &"x".repeat(100_000)).await;
        }
        world.get(MAPS).await.body.len()
    };
    let (world, server) = World::limited(Limits::default(), false).await;
    let list = fill(&world).await;
    server.shutdown().await;
    let limits = Limits { response_bytes_in_flight: 4 * list + list / 2, ..Limits::default() };
    let (world, server) = World::limited(limits, false).await;
    assert_eq!(fill(&world).await, list);
    (world, server)
}

async fn bytes_in_flight(world: &World) -> u64 {
    world.get("/statz").await.json()["responseBytesInFlight"].as_u64().unwrap()
}

/// Waits until the server has given back what an answer held. A client has the whole answer a little
/// earlier, and its next request must not count as a second one beside it.
async fn wait_for_bytes_in_flight(world: &World, bytes: u64) {
    world.until("/statz", |answer| answer.json()["responseBytesInFlight"] == bytes).await;
}

#[test]
fn a5_lists_of_one_user_that_nobody_reads_leave_room_for_the_lists_of_another() {
    run(async {
        let (world, server) = with_room_for_four_lists().await;
        let held = take_all(&world, MAPS).await;
        assert_eq!(held.len(), 3, "a user alone gets three quarters");
        let held_bytes = bytes_in_flight(&world).await;
        for _ in 0..REQUESTS {
            assert_eq!(quiet(&world, Method::GET, MAPS, String::new()).await.code, 200);
            wait_for_bytes_in_flight(&world, held_bytes).await;
        }
        server.shutdown().await;
    });
}

#[test]
fn a5_initial_events_of_one_user_leave_room_for_those_of_another() {
    run(async {
        let (world, server) = with_room_for_four_lists().await;
        let held = take_all(&world, STREAMING).await;
        assert_eq!(held.len(), 3, "a user alone gets three quarters");
        let held_bytes = bytes_in_flight(&world).await;
        for _ in 0..REQUESTS {
            let mut watch = world.watch_as(STREAMING, &[QUIET]).await;
            for number in 0..120 {
                let event = watch.short().await;
                assert!(event.starts_with(&format!("ADDED big-{number:03}")), "{event}");
            }
            drop(watch);
            wait_for_bytes_in_flight(&world, held_bytes).await;
        }
        server.shutdown().await;
    });
}

#[test]
fn a5_reads_of_one_user_that_wait_leave_room_for_those_of_another() {
    run(async {
        let limits = Limits { reads_in_flight: 8, ..Limits::default() };
        let (world, server) = World::limited(limits, false).await;
        // Waits for a revision that does not come, and asks again: places are held all the time.
        let greedy = || async {
            loop {
                let answer = world.get(&format!("{MAPS}?resourceVersion=99999999")).await;
                assert!(matches!(answer.code, 504 | 429), "{}", answer.text());
            }
        };
        let other = async {
            let full = "apiserver_current_inflight_requests{request_kind=\"readOnly\"} 6";
            world.until("/metrics", |answer| answer.text().contains(full)).await;
            for _ in 0..REQUESTS {
                assert_eq!(quiet(&world, Method::GET, MAPS, String::new()).await.code, 200);
            }
        };
        let all = async {
            tokio::join!(greedy(), greedy(), greedy(), greedy(), greedy(), greedy(), greedy())
        };
        tokio::select! {
            _ = all => unreachable!("it has no end"),
            () = other => {}
        }
        server.shutdown().await;
    });
}

#[test]
fn a5_writes_of_one_user_that_wait_leave_room_for_those_of_another() {
    run(async {
        let store = Arc::new(HeldStore::default());
        let limits = Limits { writes_in_flight: 8, ..Limits::default() };
        let (world, server) = World::on(store.clone(), limits).await;
        world.namespace("shop").await;
        store.hold();
        let greedy = async {
            let mut all = tokio::task::JoinSet::new();
            for number in 0..6 {
                let head = format!("POST {MAPS} HTTP/1.1\r\ncontent-type: application/json");
                let body = config_map(&format!("greedy-{number}"));
                let request =
                    format!("{head}\r\ncontent-length: {}\r\nconnection: close", body.len());
                let mut stream = world.open_raw(&request).await;
                tokio::io::AsyncWriteExt::write_all(&mut stream, body.as_bytes()).await.unwrap();
                all.spawn(async move {
                    let mut head = [0; 12];
                    stream.read_exact(&mut head).await.unwrap();
                    String::from_utf8_lossy(&head).into_owned()
                });
            }
            all.join_all().await
        };
        let other = async {
            let full = "apiserver_current_inflight_requests{request_kind=\"mutating\"} 6";
            world.until("/metrics", |answer| answer.text().contains(full)).await;
            world
                .post(MAPS, &json!({"metadata": {"name": "more"}}))
                .await
                .fails(429, "TooManyRequests");
            for number in 0..REQUESTS {
                let path = format!("{MAPS}?dryRun=All");
                let body = config_map(&format!("quiet-{number}"));
                assert_eq!(quiet(&world, Method::POST, &path, body).await.code, 201);
            }
            store.release();
            let body = config_map("quiet");
            assert_eq!(quiet(&world, Method::POST, MAPS, body).await.code, 201);
        };
        let (greedy, ()) = tokio::join!(greedy, other);
        assert!(greedy.iter().all(|line| line == "HTTP/1.1 201"), "{greedy:?}");
        server.shutdown().await;
    });
}

#[test]
fn a5_writes_whose_bodies_do_not_come_take_nothing_from_anybody() {
    run(async {
        let limits = Limits { writes_in_flight: 4, ..Limits::default() };
        let (world, server) = World::limited(limits, false).await;
        let mut held = Vec::new();
        for _ in 0..100 {
            let request = format!("POST {MAPS} HTTP/1.1\r\ncontent-length: 1000");
            held.push(world.open_raw(&request).await);
        }
        for number in 0..REQUESTS {
            let body = config_map(&format!("quiet-{number}"));
            assert_eq!(quiet(&world, Method::POST, MAPS, body).await.code, 201);
            world.set(&format!("own-{number}"), "of the same user").await;
        }
        server.shutdown().await;
    });
}

#[test]
fn a5_bytes_of_bodies_that_come_slowly_leave_room_for_those_of_another() {
    run(async {
        let limits = Limits { request_bytes_in_flight: 100_000, ..Limits::default() };
        let (world, server) = World::limited(limits, false).await;
        let mut held = Vec::new();
        for _ in 0..40 {
            let request = format!("POST {MAPS} HTTP/1.1\r\ncontent-length: 1000000");
            let mut stream = world.open_raw(&request).await;
            tokio::io::AsyncWriteExt::write_all(&mut stream, &[b' '; 5000]).await.unwrap();
            held.push(stream);
        }
        // The greedy user has all that it can get when one of its own is refused.
        let body = config_map("more");
        loop {
            let headers = [("content-type", "application/json")];
            if world.ask(Method::POST, MAPS, &headers, body.clone()).await.code == 429 {
                break;
            }
            world.delete(&format!("{MAPS}/more")).await;
        }
        for number in 0..REQUESTS {
            let body = config_map(&format!("quiet-{number}"));
            assert_eq!(quiet(&world, Method::POST, MAPS, body).await.code, 201);
        }
        server.shutdown().await;
    });
}

#[test]
fn a5_values_of_a_body_count_like_its_bytes() {
    run(async {
        let limits = Limits { request_bytes_in_flight: 1_000_000, ..Limits::default() };
        let (world, server) = World::limited(limits, false).await;
        // Some 20 bytes of text each, and 500 bytes in memory.
        let map = |keys: usize| {
            let data: serde_json::Map<_, _> =
                (0..keys).map(|key| (format!("key-{key}"), json!("v"))).collect();
            json!({"metadata": {"name": format!("map-{keys}")}, "data": data})
        };
        world.post(MAPS, &map(1000)).await.ok();
        let refused = world.post(MAPS, &map(3000)).await.fails(429, "TooManyRequests");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("max-request-bytes-in-flight"), "{message}");
        server.shutdown().await;
    });
}
