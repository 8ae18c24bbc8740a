//! A5: a user who takes all that it can get of every budget costs another no answer, and in a long run, which
//! has the machine for itself, no time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::http::Client;
use crate::server::Server;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const GREEDY_TOKEN: &str = "greedy-token-0123456789";
/// Together 1.2 MB: more than a kernel takes for a client that does not read.
const OBJECTS: usize = 60;
const OBJECT_BYTES: usize = 20_000;
/// Requests of one measurement. `MASTHEAD_ROUNDS` times as many in long runs, which judge times, too: a machine
/// that is busy with other tests has none to compare.
const REQUESTS: usize = 300;
/// A machine that is busy with something else gets other chances.
const CHANCES: usize = 4;

/// A server with room for eight lists, eight reads, eight writes and few bytes of bodies.
fn small_budgets(directory: &std::path::Path) -> Server {
    let tokens = directory.join("tokens.csv");
    std::fs::write(&tokens, format!("{GREEDY_TOKEN},greedy,1,system:masters\n")).unwrap();
    let tokens = tokens.to_str().unwrap();
    let arguments = [
        ["--store", "memory"],
        ["--token-file", tokens],
        ["--stall-timeout", "10m"],
        ["--max-response-bytes-in-flight", "10MiB"],
        ["--max-reads-in-flight", "8"],
        ["--max-writes-in-flight", "8"],
        ["--max-request-bytes-in-flight", "1MiB"],
    ];
    Server::start(directory, &[&["--insecure-http"][..], &arguments.concat()].concat())
}

/// Sends the head of a request of the greedy user, and what there is of its body.
fn open(client: &Client, request: &str, body: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(client.address).unwrap();
    let head = format!("{request}\r\nhost: x\r\nauthorization: Bearer {GREEDY_TOKEN}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    stream
}

/// Begins lists and reads none of them, until one is refused.
fn hold_lists(client: &Client) -> Vec<TcpStream> {
    let mut held = Vec::new();
    loop {
        let mut stream = open(client, &format!("GET {MAPS} HTTP/1.1"), &[]);
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        if &start == b"HTTP/1.1 429" {
            return held;
        }
        held.push(stream);
    }
}

/// The p99 of the quiet user's requests. Each must be answered.
fn p99(requests: usize, ask: impl Fn(usize) -> u16) -> Duration {
    let mut times: Vec<Duration> = (0..requests)
        .map(|number| {
            let begin = Instant::now();
            let code = ask(number);
            assert!(matches!(code, 200 | 201), "request {number}: {code}");
            begin.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[requests - 1 - requests / 100]
}

#[test]
fn a5_a_greedy_user_costs_a_quiet_one_no_answer_and_no_time() {
    let _alone = crate::alone();
    let rounds: Option<usize> = std::env::var("MASTHEAD_ROUNDS").ok().map(|it| it.parse().unwrap());
    let requests = REQUESTS * rounds.unwrap_or(1);
    let directory = tempfile::tempdir().unwrap();
    let server = small_budgets(directory.path());
    let client = Client { address: server.address, token: server.token.clone() };
    let value = "x".repeat(OBJECT_BYTES);
    for number in 0..OBJECTS {
        let body = format!(r#"{{"metadata":{{"name":"m{number}"}},"data":{{"v":"{value}"}}}}"#);
        assert_eq!(client.ask("POST", MAPS, &body).unwrap().0, 201);
    }
    let get = |_| client.ask("GET", &format!("{MAPS}/m1"), "").unwrap().0;
    let page = |_| client.ask("GET", &format!("{MAPS}?limit=10"), "").unwrap().0;
    let write = |number: usize| {
        let body = format!(r#"{{"metadata":{{"name":"w{number}"}}}}"#);
        client.ask("POST", &format!("{MAPS}?dryRun=All"), &body).unwrap().0
    };
    let asks: [(&str, &dyn Fn(usize) -> u16); 3] =
        [("gets", &get), ("pages", &page), ("writes", &write)];
    let best = |ask: &dyn Fn(usize) -> u16| (0..CHANCES).map(|_| p99(requests, ask)).min().unwrap();
    let alone = asks.map(|(_, ask)| best(ask));

    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let lists = hold_lists(&client);
        let bodies: Vec<_> = (0..100)
            .map(|_| {
                let request = format!("POST {MAPS} HTTP/1.1\r\ncontent-length: 1000000");
                open(&client, &request, &vec![b' '; 20_000])
            })
            .collect();
        for _ in 0..6 {
            scope.spawn(|| {
                // All the places that one user gets. Each waits for a revision that does not come.
                let path =
                    format!("GET {MAPS}/m1?resourceVersion=99999999 HTTP/1.1\r\nconnection: close");
                while !done.load(Ordering::Relaxed) {
                    let _ = open(&client, &path, &[]).read_to_end(&mut Vec::new());
                }
            });
        }
        let mut slow = Vec::new();
        for ((what, ask), alone) in asks.into_iter().zip(alone) {
            let beside: Vec<_> = (0..CHANCES).map(|_| p99(requests, ask)).collect();
            println!("{what}: p99 {alone:?} alone, {beside:?} beside a greedy user");
            let is_near = beside.iter().any(|beside| *beside <= alone * 2);
            if !is_near {
                slow.push(what);
            }
        }
        // The others end before anything is judged.
        done.store(true, Ordering::Relaxed);
        let is_judged = rounds.is_some();
        assert!(
            slow.is_empty() || !is_judged,
            "{slow:?} take more than twice the time they take alone"
        );
        assert!(lists.len() >= 4, "lists are held: {}", lists.len());
        drop((lists, bodies));
    });
}
