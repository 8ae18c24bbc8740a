//! Watches over HTTP/2 whose readers are slow now and then, kills, and little history: each watch goes on
//! where it was or ends with a reason (S3, S9). None is stuck.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Runtime};
use tokio::time::timeout;

use crate::http::Client;
use crate::load::{Events, Load, Run, Witness, judge, version, watch_with};
use crate::server::Server;

const WRITERS: usize = 3;
/// One reader in two is slow; five watches share a connection.
const WATCHES: usize = 30;
const WATCHES_PER_CONNECTION: usize = 5;
/// Some 120 changes, less than a slow reader is behind.
const KEEP_BYTES: &str = "256KiB";
const PADDING: usize = 2_000;
const KILLS: usize = 4;
/// A stream that is not read holds this much back, and not the window of its connection.
const STREAM_WINDOW_BYTES: u32 = 16 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// A server answers a watch at once; a busy machine may take longer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How often a reader looks whether the run is over while nothing comes.
const LOOK_UP: Duration = Duration::from_millis(200);

/// A source of repeatable random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A connection that some watches share, opened again when it is broken.
struct Connection {
    address: SocketAddr,
    token: String,
    sender: Mutex<Option<SendRequest<Empty<Bytes>>>>,
}

impl Connection {
    async fn sender(&self) -> io::Result<SendRequest<Empty<Bytes>>> {
        let known = self.sender.lock().unwrap().clone();
        if let Some(sender) = known.filter(|sender| !sender.is_closed()) {
            return Ok(sender);
        }
        let io = TokioIo::new(TcpStream::connect(self.address).await?);
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(STREAM_WINDOW_BYTES);
        builder.initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        *self.sender.lock().unwrap() = Some(sender.clone());
        Ok(sender)
    }

    async fn watch(&self, path: &str) -> io::Result<Incoming> {
        let request = Request::builder()
            .uri(format!("http://{}{path}", self.address))
            .header("authorization", format!("Bearer {}", self.token))
            .body(Empty::new())
            .map_err(io::Error::other)?;
        let mut sender = self.sender().await?;
        let response = match timeout(ANSWER_MAX, sender.send_request(request)).await {
            Ok(response) => response.map_err(io::Error::other)?,
            // The client may forget a request whose connection breaks under it.
            Err(_) if sender.is_closed() => return Err(io::ErrorKind::TimedOut.into()),
            Err(late) => panic!("a watch is not answered on an open connection: {late}"),
        };
        if response.status() != 200 {
            return Err(io::Error::other(format!("refused with {}", response.status())));
        }
        Ok(response.into_body())
    }
}

/// The events of one watch, read by a reader that may pause.
struct SlowEvents<'a> {
    run: &'a Run,
    number: usize,
    runtime: Handle,
    body: Incoming,
    rest: Vec<u8>,
    pauses: Option<Random>,
}

impl SlowEvents<'_> {
    /// The fault: a reader that does something else for a while.
    fn pause(&mut self) {
        let Some(random) = &mut self.pauses else { return };
        if random.below(40) == 0 {
            let pause = Duration::from_millis(random.below(1_000));
            self.run.fault_of(self.number, "slow reader", true);
            thread::sleep(pause);
            self.run.fault_of(self.number, "slow reader", false);
        }
    }
}

impl Events for SlowEvents<'_> {
    fn next(&mut self) -> io::Result<Option<Value>> {
        self.pause();
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return serde_json::from_slice(&line).map(Some).map_err(io::Error::other);
            }
            // Timers are made in the runtime's context.
            let context = self.runtime.enter();
            let next = timeout(LOOK_UP, self.body.frame());
            drop(context);
            match self.runtime.block_on(next) {
                Err(_) if self.run.over() => return Ok(None),
                Err(_) => {}
                Ok(None) => return Ok(None),
                Ok(Some(frame)) => {
                    let frame = frame.map_err(io::Error::other)?;
                    self.rest.extend(frame.data_ref().into_iter().flatten());
                }
            }
        }
    }
}

/// One run: how many writes were acknowledged, watches opened, and watches told to list again.
fn session(seed: u64) -> (usize, usize, u64) {
    let mut random = Random(seed);
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["--insecure-http", "--keep-bytes", KEEP_BYTES];
    let mut server = Server::start(directory.path(), &arguments);
    let client = Client { address: server.address, token: server.token.clone() };
    let (_, list) = client.ask("GET", "/api/v1/configmaps", "").unwrap();
    let from = version(&list);
    let runtime = Runtime::new().unwrap();
    let mut load = Load::of_writers(client, WRITERS, PADDING);
    let witness = Witness::start(&load.run, from);
    for first in (0..WATCHES).step_by(WATCHES_PER_CONNECTION) {
        let client = load.run.client();
        let connection = Arc::new(Connection {
            address: client.address,
            token: client.token.clone(),
            sender: Mutex::default(),
        });
        for number in first..first + WATCHES_PER_CONNECTION {
            let (connection, runtime) = (connection.clone(), runtime.handle().clone());
            let mut seeds = Random(random.below(u64::MAX) | 1);
            load.spawn(move |run| {
                watch_with(run, number, from, |url| {
                    let body = runtime.block_on(connection.watch(url))?;
                    let is_slow = number.is_multiple_of(2);
                    let pauses = is_slow.then(|| Random(seeds.below(u64::MAX) | 1));
                    let (runtime, rest) = (runtime.clone(), Vec::new());
                    Ok(SlowEvents { run, number, runtime, body, rest, pauses })
                });
            });
        }
    }
    for _ in 0..KILLS {
        // Not a wait: the moment of the fault.
        thread::sleep(Duration::from_millis(200 + random.below(1_500)));
        let listen = server.address.to_string();
        load.run.fault("kill", true);
        server.kill();
        server = Server::start_on(directory.path(), &listen, &arguments);
        load.run.fault("kill", false);
    }
    load.settle(200);
    let relists = load.run.relists();
    let records = load.finish();
    let log = witness.finish();
    assert!(server.terminate().success());
    let (acknowledged, opened) = judge(log, records);
    (acknowledged, opened, relists)
}

/// `MASTHEAD_ROUNDS` for longer runs: a round takes some seconds.
#[test]
fn s9_a_watch_over_http2_with_a_slow_reader_goes_on_or_ends_with_a_reason() {
    let _alone = crate::alone();
    let rounds: u64 = std::env::var("MASTHEAD_ROUNDS").map_or(1, |text| text.parse().unwrap());
    for round in 0..rounds {
        let seed = (u64::from(std::process::id()) << 20 | round) + 1;
        let (acknowledged, opened, relists) = session(seed);
        println!("round {round}: {acknowledged} acknowledged, {opened} opened, {relists} relists");
        assert!(acknowledged > 100 && opened > WATCHES, "too quiet to show anything");
    }
}
