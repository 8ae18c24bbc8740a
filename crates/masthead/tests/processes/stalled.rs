//! Readers that do not read: they cost little memory, and the others nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::http::Client;
use crate::server::Server;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// 400 of 2 KB: lists of 900 KB, more than a kernel takes for a client that does not read.
const OBJECTS: usize = 400;
const STALLED: usize = 1000;
/// For 2,000 connections, and for what is changed while 1,000 lists are held.
const GROWTH_BYTES_MAX: usize = 128 * 1024 * 1024;

fn body(name: &str, value: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"value":"{value:x>2000}"}}}}"#)
}

fn put(client: &Client, at: usize, value: &str) {
    let (name, path) = (format!("m{at}"), format!("{MAPS}/m{at}"));
    let (code, answer) = client.ask("PUT", &path, &body(&name, value)).unwrap();
    assert_eq!(code, 200, "{answer}");
}

/// A request whose answer begins and is then left alone.
fn stall(client: &Client, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(client.address).unwrap();
    let token = &client.token;
    let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200", "{path}");
    stream
}

/// From a write to its event at a watch that is read, the slowest but one percent of 300.
fn p99(client: &Client) -> Duration {
    let mut watch =
        client.watch(&format!("{MAPS}?watch=true&fieldSelector=metadata.name=m0")).unwrap();
    watch.next().unwrap();
    let mut times: Vec<Duration> = (0..300)
        .map(|turn| {
            let begin = Instant::now();
            put(client, 0, &turn.to_string());
            watch.next().unwrap().unwrap();
            begin.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() - 1 - times.len() / 100]
}

/// The best of some rounds: what else the machine does should not count.
fn best_p99(client: &Client) -> Duration {
    (0..4).map(|_| p99(client)).min().unwrap()
}

#[test]
fn a_thousand_stalled_lists_and_a_thousand_stalled_watches_harm_nobody() {
    let directory = tempfile::tempdir().unwrap();
    // They are to stay for as long as this takes, and 900 MB is to be no reason to refuse one.
    let arguments = [
        "--insecure-http",
        "--store",
        "memory",
        "--stall-timeout",
        "10m",
        "--max-response-bytes-in-flight",
        "2GiB",
    ];
    let server = Server::start(directory.path(), &arguments);
    let client = Client { address: server.address, token: server.token.clone() };
    for at in 0..OBJECTS {
        let (code, _) = client.ask("POST", MAPS, &body(&format!("m{at}"), "")).unwrap();
        assert_eq!(code, 201);
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                put(&client, 1 + turn % (OBJECTS - 1), &turn.to_string());
            }
        });
        let (alone, before) = (best_p99(&client), server.resident_bytes());
        let lists: Vec<_> = (0..STALLED).map(|_| stall(&client, MAPS)).collect();
        let watches: Vec<_> =
            (0..STALLED).map(|_| stall(&client, &format!("{MAPS}?watch=true"))).collect();
        let after = server.resident_bytes();
        // A machine that is busy with something else gets another chance, a slow server has none.
        let beside = (0..4).map(|_| best_p99(&client)).find(|beside| *beside <= alone * 2);
        let mut statistics = client.ask("GET", "/statz", "").unwrap().1;
        let deadline = Instant::now() + Duration::from_secs(60);
        // The watches of the measurement may still be closing.
        while statistics["watches"].as_u64() > Some(STALLED as u64) && Instant::now() < deadline {
            statistics = client.ask("GET", "/statz", "").unwrap().1;
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!(statistics["watches"], STALLED, "none of them was ended");
        assert_ne!(statistics["responseBytesInFlight"], 0, "lists are held");
        let grown = after.saturating_sub(before);
        assert!(grown < GROWTH_BYTES_MAX, "from {before} to {after} bytes");
        assert!(beside.is_some(), "the p99 of others is above twice the {alone:?} they have alone");
        drop((lists, watches));
    });
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let (_, it) = client.ask("GET", "/statz", "").unwrap();
        if it["watches"] == 0 && it["responseBytesInFlight"] == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "they are let go when their clients leave");
        thread::yield_now();
    }
}
