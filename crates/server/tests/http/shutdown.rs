//! How a server ends: soon, whatever its clients do or leave undone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use masthead_server::{Config, Credentials, Limits, Security, Server};
use masthead_store::MemoryStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::limits::{connect as http2, fill, request};
use crate::world::{MAPS, PATIENCE, TOKEN, Watch, World, config, run};

/// A stop takes at most this long when no request is under way and nobody reads. It is half of what
/// requests under way have, and leaves room for a busy machine.
const SOON: Duration = Duration::from_secs(5);

/// The preface of HTTP/2 and empty settings, from a client that answers nothing.
const SILENT_HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

async fn connect(server: &Server, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

async fn shut_down_soon(server: Server) {
    let began = Instant::now();
    server.shutdown().await;
    let took = began.elapsed();
    assert!(took < SOON, "{took:?}");
}

#[test]
fn a_stopping_server_does_not_wait_for_clients_without_a_request() {
    run(async {
        let (_world, server) = World::limited(Limits::default(), false).await;
        let mut open = Vec::new();
        for bytes in [&b""[..], b"PRI * HT", b"GET /api/v1 HTTP/1.1\r\nhost: x\r\n", SILENT_HTTP2] {
            open.push(connect(&server, bytes).await);
        }
        let mut kept = connect(&server, b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let mut answer = [0; 12];
        kept.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        shut_down_soon(server).await;
    });
}

#[test]
fn a_stopping_server_does_not_wait_for_a_handshake() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let credentials = Credentials::load_or_create(directory.path(), &[]).unwrap();
        let security = Security::Tls(credentials.tls(None).unwrap());
        let config = Config { security, ..config(Limits::default()) };
        let server = Server::start(config, Arc::new(MemoryStore::new())).await.unwrap();
        server.ready().await;
        let _silent = connect(&server, b"").await;
        let _half = connect(&server, &[22, 3, 1]).await;
        shut_down_soon(server).await;
    });
}

#[test]
fn a_stopping_server_does_not_wait_for_watches_that_are_read_slowly_or_not_at_all() {
    run(async {
        let (world, server) = World::limited(Limits::default(), false).await;
        fill(&world, 100).await;
        let watch = format!("GET {MAPS}?watch=true HTTP/1.1");
        let _unread = world.open_raw(&watch).await;
        let mut slow = world.open_raw(&watch).await;
        world.until("/statz", |answer| answer.json()["watches"] == 2).await;
        let reading = tokio::spawn(async move {
            let mut part = [0; 64];
            while slow.read_exact(&mut part).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        shut_down_soon(server).await;
        reading.abort();
    });
}

#[test]
fn a_request_under_way_is_answered_by_a_stopping_server() {
    run(async {
        let (world, server) = World::limited(Limits::default(), false).await;
        let body = r#"{"metadata":{"name":"late"}}"#;
        let head = format!(
            "POST {MAPS} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
            body.len()
        );
        let mut stream = connect(&server, head.as_bytes()).await;
        // The server asks for the body once the request is under way.
        let mut go_on = [0; 25];
        timeout(PATIENCE, stream.read_exact(&mut go_on)).await.unwrap().unwrap();
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        let stopping = tokio::spawn(server.shutdown());
        // New connections are refused once the server stops.
        let refused = async {
            while TcpStream::connect(world.address).await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, refused).await.unwrap();
        stream.write_all(body.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
        timeout(PATIENCE, stopping).await.unwrap().unwrap();
    });
}

/// The first request has to come within the time of a head, each further one within the idle time. A
/// watch is a request for as long as it lasts.
#[test]
fn an_http2_connection_without_requests_is_closed_although_it_answers_pings() {
    run(async {
        let short = Duration::from_millis(300);
        let limits = Limits { header_timeout: short, idle_timeout: short, ..Limits::default() };
        let (world, server) = World::limited(limits, true).await;
        let mut watching = http2(&world).await;
        let path = format!("{MAPS}?watch=true");
        let watch = watching.send_request(request(&world, &path)).await.unwrap();
        let mut watch = Watch::new(watch);
        let silent = http2(&world).await;
        let mut once = http2(&world).await;
        let answer = once.send_request(request(&world, "/livez")).await.unwrap();
        assert_eq!(answer.status(), 200);
        for idle in [silent, once] {
            let closed = async {
                while !idle.is_closed() {
                    tokio::task::yield_now().await;
                }
            };
            timeout(PATIENCE, closed).await.expect("it is closed");
        }
        world.set("after", "1").await;
        assert!(watch.short().await.starts_with("ADDED after@"));
        drop(watching);
        server.shutdown().await;
    });
}
