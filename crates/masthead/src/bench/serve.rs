//! `masthead serve` as it is started: until it is ready, its memory, and creations over HTTPS.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use masthead_store::{EmbeddedStore, Settings};
use tokio::io::AsyncWriteExt as _;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::child::Hello;
use super::place::Place;
use super::process::{Process, Served, Side};
use super::report::{Figure, Findings, number};
use super::wire::{self, Dialer, Stream};
use super::{Common, store};

/// Clients that create at the same time, each on a connection of its own.
const CLIENTS: usize = 64;
/// Bytes of an object that is created.
const OBJECT_BYTES: usize = 4096;
/// What an answer to a creation has at most.
const ANSWER_BYTES: usize = 16 * 1024;
/// Pods that kube-apiserver is started with, too.
const FEW: u32 = 10_000;
const MORE: u32 = 50_000;
/// After a start this long until memory is looked at, so that a collector of garbage has had its turn.
const REST: Duration = Duration::from_secs(5);
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

#[derive(Args)]
pub(crate) struct ServeArguments {
    /// Pods in the larger of two stores that a server starts with
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(10_000..=1_000_000))]
    pods: u32,
    /// How long objects are created
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Where to measure; everything is removed afterwards
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// A server that is ready.
struct Ready {
    process: Process,
    hello: Hello,
    /// Milliseconds from its start.
    took: f64,
}

/// What a start with pods in the store costs.
struct Started {
    took: f64,
    resident: f64,
    /// Bytes of the pods' JSON.
    bytes: f64,
}

struct Created {
    each: Duration,
    processor_each: f64,
    count: u32,
}

/// The peer with pods in its etcd: milliseconds until it is ready, and what it then has resident.
struct Peer {
    took: f64,
    resident: f64,
}

pub(super) fn run(arguments: &ServeArguments) -> anyhow::Result<()> {
    let place = Place::new(&arguments.dir)?;
    let runtime = Runtime::new()?;
    let empty = Ready::start(&place.path("empty"), false)?;
    let created = runtime.block_on(create(&empty, Duration::from_secs(arguments.seconds)))?;
    let start =
        |pods, compressed| runtime.block_on(start_with(&place.path("pods"), pods, compressed));
    let (few, few_compressed) = (start(FEW, false)?, start(FEW, true)?);
    let (more, more_compressed) = (start(MORE, false)?, start(MORE, true)?);
    let many = start(arguments.pods, false)?;
    let params = [
        ("pods", arguments.pods.into()),
        ("seconds", arguments.seconds),
        ("clients", CLIENTS as u64),
        ("object_bytes", OBJECT_BYTES as u64),
    ];
    let mut found = Findings::new("serve", &params);
    let limit =
        |name, ours, unit, limit| Figure::new(name, ours, unit, ("limit", Some(limit)), 1.0);
    let share = f64::from(arguments.pods) / 100_000.0;
    let json = |name, it: &Started| {
        Figure::new(name, it.resident / 1e6, "MB", ("their JSON", Some(it.bytes / 1e6)), 1.5)
    };
    let each = created.each.as_secs_f64();
    found.figures = vec![
        limit("ready, empty store", empty.took, "ms", 300.0),
        limit("ready, many pods", many.took, "ms", 3000.0 * share),
        json("resident, 10,000 pods", &few),
        json("resident, many pods", &many),
        limit("a creation of 4 KB over HTTPS", each * 1e6, "µs", 1e6 / 3000.0),
    ];
    let peers = [arguments.common.peer(|| peer(FEW))?, arguments.common.peer(|| peer(MORE))?];
    let against = |name, unit, ours, at: usize, of: fn(&Peer) -> f64, at_most| {
        let theirs = ("kube-apiserver", peers[at].as_ref().map(of));
        Figure::new(name, ours, unit, theirs, at_most)
    };
    let megabytes: fn(&Peer) -> f64 = |it| it.resident / 1e6;
    found.figures.extend([
        against("ready, 50,000 pods", "ms", more.took, 1, |it| it.took, 0.1),
        against("resident, 10,000 pods", "MB", few.resident / 1e6, 0, megabytes, 0.2),
        against("resident, 50,000 pods", "MB", more.resident / 1e6, 1, megabytes, 0.2),
        against(
            "resident, 10,000 pods, compressed",
            "MB",
            few_compressed.resident / 1e6,
            0,
            megabytes,
            1.0 / 15.0,
        ),
        against(
            "resident, 50,000 pods, compressed",
            "MB",
            more_compressed.resident / 1e6,
            1,
            megabytes,
            1.0 / 15.0,
        ),
    ]);
    found.notes = vec![
        format!("many pods are {}; 10,000 are ready in {:.0} ms", arguments.pods, few.took),
        format!(
            "with --compress-bodies 10,000 are ready in {:.0} ms and 50,000 in {:.0} ms",
            few_compressed.took, more_compressed.took
        ),
        format!(
            "{} creations from {CLIENTS} connections, {:.0} a second, {:.0} µs of the server's \
             processor each",
            created.count,
            1.0 / each,
            created.processor_each
        ),
    ];
    found.show(arguments.common.output);
    Ok(())
}

/// Starts the peer on pods that are there; it is ready when it has them in its cache.
fn peer(pods: u32) -> anyhow::Result<Peer> {
    let mut served = Served::start(Side::Apiserver, pods, 0)?;
    let took = served.restart()?;
    std::thread::sleep(REST);
    Ok(Peer { took, resident: number(served.usage().resident) })
}

impl Ready {
    fn start(directory: &Path, compressed: bool) -> anyhow::Result<Self> {
        let began = Instant::now();
        let directory_text = directory.to_str().context("the directory's name is no text")?;
        let compress = format!("--compress-bodies={compressed}");
        let arguments = ["serve", "--listen=127.0.0.1:0", &compress, "--data-dir", directory_text];
        let mut process = Process::start(&arguments.map(str::to_owned))?;
        let mut output = BufReader::new(process.0.stdout.take().context("its output is ours")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let took = began.elapsed().as_secs_f64() * 1e3;
        // The rest is for people; it must not fill the pipe.
        std::thread::spawn(move || output.lines().for_each(drop));
        let address = line.split_once("https://").and_then(|(_, it)| it.split(',').next());
        let address = address.with_context(|| format!("the server says {line:?}"))?.parse()?;
        let read = |name: &str| fs::read_to_string(directory.join("credentials").join(name));
        let token = read("admin.token")?.trim().to_owned();
        let ca = Some(read("ca.crt")?);
        let hello = Hello { address, revision: 0, token, ca, process: None };
        Ok(Self { process, hello, took })
    }
}

/// Starts a server on a store that has pods already.
async fn start_with(directory: &Path, pods: u32, compressed: bool) -> anyhow::Result<Started> {
    let store = EmbeddedStore::open(directory.join("store"), Settings::default())?;
    let bytes = number(store::fill(&store, pods).await?);
    drop(store);
    let ready = Ready::start(directory, compressed)?;
    std::thread::sleep(REST);
    let resident = number(ready.process.usage().resident);
    drop(ready.process);
    fs::remove_dir_all(directory)?;
    Ok(Started { took: ready.took, resident, bytes })
}

/// Creates objects from many connections for so long.
async fn create(ready: &Ready, time: Duration) -> anyhow::Result<Created> {
    let dialer = Dialer::new(&ready.hello, false)?;
    let mut streams = Vec::new();
    for number in 0..CLIENTS {
        streams.push(dialer.connect(number).await?);
    }
    let (next, before) = (Arc::new(AtomicU32::new(0)), ready.process.usage());
    let (start, mut clients) = (Instant::now(), JoinSet::new());
    for mut stream in streams {
        let (next, dialer) = (next.clone(), dialer.clone());
        clients.spawn(async move {
            while start.elapsed() < time {
                let i = next.fetch_add(1, Ordering::Relaxed);
                create_one(&dialer, &mut stream, i).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = clients.join_next().await {
        done??;
    }
    let count = next.load(Ordering::Relaxed);
    let processor = ready.process.usage().processor - before.processor;
    let processor_each = processor * 1e6 / f64::from(count);
    Ok(Created { each: start.elapsed() / count, processor_each, count })
}

async fn create_one(dialer: &Dialer, stream: &mut Stream, i: u32) -> anyhow::Result<()> {
    let body = object(i);
    let head = format!(
        "POST {LEASES} HTTP/1.1\r\nhost: localhost\r\nauthorization: {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        dialer.authorization(),
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await?;
    stream.flush().await?;
    let mut answer: Vec<u8> = Vec::with_capacity(ANSWER_BYTES);
    loop {
        let before = answer.len();
        wire::read(stream, |bytes| answer.extend_from_slice(bytes)).await?;
        ensure!(answer.len() > before, "the server closed the connection");
        if is_whole(&answer)? {
            return Ok(());
        }
        ensure!(answer.len() < ANSWER_BYTES, "the answer is too long");
    }
}

/// Returns `true` once the answer to a create has arrived whole.
fn is_whole(answer: &[u8]) -> anyhow::Result<bool> {
    let Some(end) = memchr::memmem::find(answer, b"\r\n\r\n") else { return Ok(false) };
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    ensure!(head.starts_with("http/1.1 201"), "{}", String::from_utf8_lossy(answer));
    let length = head.split("content-length: ").nth(1).and_then(|it| it.lines().next());
    let length: usize = length.context("no length")?.trim().parse()?;
    Ok(answer.len() >= end + 4 + length)
}

/// Object `i`, of 4 KB.
fn object(i: u32) -> String {
    let mut text = format!(
        r#"{{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{{"name":"lease-{i:08}"}},"spec":{{"holderIdentity":""#
    );
    let filling = (0_u32..).map(|at| char::from(b'a' + (at.wrapping_mul(i | 1) >> 7 & 15) as u8));
    text.extend(filling.take(OBJECT_BYTES - text.len() - 3));
    text.push_str("\"}}");
    text
}
