//! Ten thousand clients whose server is killed: all are back on the others, and nobody lists.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::world::{Options, World};
use crate::http::Client;

const WATCHES: usize = 10_000;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// How long they may take to come back.
const BACK_WITHIN: Duration = Duration::from_secs(10);
/// Requests a second that etcd may get while they do.
const ETCD_RATE_MAX: f64 = 100.0;

/// What all clients share.
struct Herd {
    addresses: Vec<SocketAddr>,
    token: String,
    /// Watches that are open.
    open: AtomicUsize,
    /// Watches that were lost.
    lost: AtomicUsize,
    /// The last revision that everybody has to see.
    last: watch::Sender<u64>,
}

/// Watches until it has seen the last revision; goes to the next server when one is gone. All that it
/// was told.
async fn follow(herd: Arc<Herd>, from: u64, number: usize) -> Vec<u64> {
    let (mut told, mut server) = (Vec::new(), 0);
    loop {
        let last = told.last().copied().unwrap_or(from);
        let address = herd.addresses[server % herd.addresses.len()];
        if let Ok(stream) = open(&herd, address, last).await {
            herd.open.fetch_add(1, Ordering::AcqRel);
            let over = read(&herd, stream, &mut told).await;
            herd.open.fetch_sub(1, Ordering::AcqRel);
            if over {
                return told;
            }
            herd.lost.fetch_add(1, Ordering::AcqRel);
        }
        // The first is gone; half go to each of the others.
        server = if server == 0 { 1 + number % 2 } else { server + 1 };
    }
}

async fn open(herd: &Herd, address: SocketAddr, from: u64) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let token = &herd.token;
    let request = format!(
        "GET {MAPS}?watch=true&resourceVersion={from} HTTP/1.1\r\nhost: x\r\n\
         authorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await?);
    }
    if !answer.starts_with(b"HTTP/1.1 200") {
        return Err(std::io::Error::other(String::from_utf8_lossy(&answer).into_owned()));
    }
    Ok(stream)
}

/// Reads revisions until the stream breaks (false) or the last one has come (true).
async fn read(herd: &Herd, mut stream: TcpStream, told: &mut Vec<u64>) -> bool {
    let mut last = herd.last.subscribe();
    let (mut buffer, mut line) = (vec![0; 16 * 1024], Vec::new());
    loop {
        let end = *last.borrow_and_update();
        if end > 0 && told.last() == Some(&end) {
            return true;
        }
        let count = tokio::select! {
            read = stream.read(&mut buffer) => read.unwrap_or(0),
            _ = last.changed() => continue,
        };
        if count == 0 {
            return false;
        }
        for byte in &buffer[..count] {
            line.push(*byte);
            if *byte == b'\n' {
                told.extend(revision(&line));
                line.clear();
            }
        }
    }
}

/// The revision of an event; none of a line that only frames a chunk.
fn revision(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line).unwrap();
    let event = text.strip_prefix(r#"{"type":""#)?;
    assert!(!event.starts_with("ERROR"), "{event}");
    let digits = event.split(r#""resourceVersion":""#).nth(1).expect("an object");
    digits.split('"').next()?.parse().ok()
}

fn update(client: &Client, number: usize) -> u64 {
    let body = json!({"metadata": {"name": "signal"}, "data": {"number": number.to_string()}});
    let (code, object) = client.ask("PUT", &format!("{MAPS}/signal"), &body.to_string()).unwrap();
    assert_eq!(code, 200, "{object}");
    crate::load::version(&object)
}

fn requests(world: &World) -> f64 {
    world.etcd.members.iter().map(|it| it.metric("grpc_server_started_total")).sum()
}

#[test]
fn ten_thousand_watches_are_back_on_other_servers_without_a_list_or_a_lost_event() {
    let _alone = crate::alone();
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let mut world = World::start(&Options::default());
    let client = Client { address: world.address(1), ..world.client() };
    let body = json!({"metadata": {"name": "signal"}});
    let (code, made) = client.ask("POST", MAPS, &body.to_string()).unwrap();
    assert_eq!(code, 201, "{made}");
    let from = crate::load::version(&made);
    let herd = Arc::new(Herd {
        addresses: (0..3).map(|number| world.address(number)).collect(),
        token: client.token.clone(),
        open: AtomicUsize::new(0),
        lost: AtomicUsize::new(0),
        last: watch::Sender::new(0),
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let clients: Vec<_> =
        (0..WATCHES).map(|number| runtime.spawn(follow(herd.clone(), from, number))).collect();
    let all_open = || herd.open.load(Ordering::Acquire) == WATCHES;
    while !all_open() {
        std::thread::yield_now();
    }
    let mut expected: Vec<_> = (0..3).map(|number| update(&client, number)).collect();
    let (before, began) = (requests(&world), Instant::now());
    world.kill_replica(0);
    while herd.lost.load(Ordering::Acquire) < WATCHES / 2 {
        std::thread::yield_now();
    }
    expected.extend((3..6).map(|number| update(&client, number)));
    while herd.lost.load(Ordering::Acquire) < WATCHES || !all_open() {
        std::thread::yield_now();
    }
    let took = began.elapsed();
    expected.extend((6..9).map(|number| update(&client, number)));
    let seconds = began.elapsed().as_secs_f64().max(1.0);
    let rate = (requests(&world) - before) / seconds;
    herd.last.send_replace(*expected.last().unwrap());
    for client in clients {
        assert_eq!(runtime.block_on(client).unwrap(), expected, "each event once, in order");
    }
    println!("{WATCHES} watches back after {took:?}, {rate:.0} requests a second to etcd");
    assert!(took < BACK_WITHIN, "{took:?}");
    assert!(rate < ETCD_RATE_MAX, "{rate} requests a second");
}
