//! The other side of a measurement: a server in a process of its own, or the floor in its place.
//!
//! It says where it listens in one line of JSON, then does what lines on its standard input say and
//! answers each with one line of JSON. It ends with its standard input.

use std::fs::File;
use std::io::{BufRead as _, BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use clap::Args;
use masthead_cache::HistoryLimits;
use masthead_core::{Object, Resource};
use masthead_server::limits::COMPRESSED_BYTES_MIN;
use masthead_server::{Config, Credentials, Limits, MASTERS, Security, Server, Tokens, User};
use masthead_store::{Condition, EtcdSettings, EtcdStore, MemoryStore, Store, Write};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use super::place::Place;
use super::{machine, pods};

mod bare;

/// Writes of one call while the store is filled.
const FILL: usize = 250;

#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct ChildArguments {
    /// Pods in the store; the updates go round among them
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pods: u32,
    /// Over how many nodes the pods are spread; 0: as they come
    #[arg(long, default_value_t = 0)]
    nodes: u32,
    /// Serve TLS
    #[arg(long)]
    tls: bool,
    /// Keep the pods in this etcd instead of in memory
    #[arg(long, value_name = "URL")]
    etcd: Option<String>,
    /// The pods are there already
    #[arg(long, requires = "etcd")]
    join: bool,
    /// No server: bare sockets that are sent the same bytes
    #[arg(long)]
    bare: bool,
    /// Bare sockets on all cores
    #[arg(long, requires = "bare")]
    wide: bool,
    /// Bytes of a pod; 0: as they come
    #[arg(long, default_value_t = 0)]
    bytes: usize,
    /// Changes that are remembered, if not as many as usual
    #[arg(long)]
    history: Option<usize>,
    /// Hold bodies compressed
    #[arg(long)]
    compress_bodies: bool,
}

/// What the child says first.
#[derive(Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) address: std::net::SocketAddr,
    /// Watches begin here.
    pub(super) revision: u64,
    pub(super) token: String,
    /// The authority of its certificate, if it serves TLS.
    pub(super) ca: Option<String>,
    /// The server, if that is not who says this.
    #[serde(default)]
    pub(super) process: Option<u32>,
}

/// What the child is asked.
#[derive(Serialize, Deserialize)]
pub(super) enum Order {
    /// Asks for the number of open watches.
    Watches,
    /// Update so many pods, so many a second.
    Update { rate: u32, count: u32 },
    /// Rewrite so many of a hundred pods at once.
    Touch { percent: u32 },
    /// Start the server again on what is stored.
    Restart,
}

/// What the child answers.
#[derive(Serialize, Deserialize)]
pub(super) enum Answer {
    Watches(usize),
    /// When each update was made, in microseconds since 1970.
    Updated(Vec<u64>),
    /// How many were rewritten.
    Touched(u32),
    Restarted(Restarted),
    /// It is not built for that.
    Unable,
}

/// A server that was started again.
#[derive(Serialize, Deserialize)]
pub(super) struct Restarted {
    pub(super) process: u32,
    /// Milliseconds from its start.
    pub(super) ready_ms: f64,
}

pub(super) fn run(arguments: &ChildArguments) -> anyhow::Result<()> {
    machine::raise_file_limit();
    if arguments.bare {
        return bare::run(arguments);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let store: Arc<dyn Store> = match &arguments.etcd {
        None => Arc::new(MemoryStore::new()),
        Some(url) => {
            Arc::new(runtime.block_on(EtcdStore::open(EtcdSettings::new([url.as_str()])))?)
        }
    };
    let objects = objects(arguments.pods, arguments.nodes, arguments.bytes);
    let (server, hello) = runtime.block_on(start(arguments, store.clone(), &objects))?;
    say(&hello)?;
    let updates = writes(&objects, Condition::Present);
    obey(|order| match order {
        Order::Watches => Answer::Watches(server.watches()),
        Order::Update { rate, count } => {
            Answer::Updated(update(&runtime, &*store, &updates, rate, count))
        }
        Order::Touch { percent } => Answer::Touched(touch(&runtime, &*store, &updates, percent)),
        Order::Restart => Answer::Unable,
    })
}

/// The pods, on their nodes or of so many bytes each.
fn objects(pods: u32, nodes: u32, bytes: usize) -> Vec<Object> {
    let resource = Resource::pods();
    let parse = |text: String| {
        Object::parse(&resource, text.into()).expect("the generator makes valid pods")
    };
    match bytes {
        0 => texts(pods, nodes).map(parse).collect(),
        _ => (0..pods).map(|i| parse(pods::json_of(i, bytes))).collect(),
    }
}

fn texts(pods: u32, nodes: u32) -> impl Iterator<Item = String> {
    let step = nodes / pods;
    (0..pods).map(move |i| match nodes {
        0 => pods::json(i, 1, 0),
        _ => pods::json_on(i, &pods::numbered_node(i * step)),
    })
}

/// Writes the pods into a file, one a line, for a child that is not ours.
pub(super) fn write_pods(pods: u32, nodes: u32, file: &Path) -> anyhow::Result<()> {
    let mut file = BufWriter::new(File::create(file)?);
    for pod in texts(pods, nodes) {
        writeln!(file, "{pod}")?;
    }
    Ok(file.flush()?)
}

fn writes(objects: &[Object], condition: Condition) -> Vec<Write> {
    let resource = Resource::pods();
    let put = |object: &Object| Write::put((&resource).into(), object.clone(), condition);
    objects.iter().map(put).collect()
}

async fn start(
    arguments: &ChildArguments,
    store: Arc<dyn Store>,
    objects: &[Object],
) -> anyhow::Result<(Server, Hello)> {
    let missing = if arguments.join { &[] } else { objects };
    for group in writes(missing, Condition::Absent).chunks(FILL) {
        for result in store.commit(group.to_vec()).await {
            result?;
        }
    }
    let place = Place::new(&std::env::temp_dir())?;
    let listen: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
    let credentials = Credentials::load_or_create(&place.path("credentials"), &[])?;
    let token = credentials.admin_token.clone();
    let mut tokens = Tokens::default();
    tokens.add(&token, User { name: "bench".to_owned(), groups: vec![MASTERS.to_owned()] });
    let security =
        if arguments.tls { Security::Tls(credentials.tls(None)?) } else { Security::InsecureHttp };
    let (limits, mut history) = (Limits::default(), HistoryLimits::default());
    history.changes = arguments.history.unwrap_or(history.changes);
    let compress_bodies = arguments.compress_bodies.then_some(COMPRESSED_BYTES_MIN);
    let config = Config { listen, security, tokens, limits, history, compress_bodies };
    let server = Server::start(config, store.clone()).await?;
    server.ready().await;
    let revision = store.current().await?.0;
    let ca = arguments.tls.then_some(credentials.ca);
    let hello = Hello { address: server.address(), revision, token, ca, process: None };
    Ok((server, hello))
}

/// Updates pods at an even pace; gives the time of each.
fn update(
    runtime: &Runtime,
    store: &dyn Store,
    updates: &[Write],
    rate: u32,
    count: u32,
) -> Vec<u64> {
    paced(rate, count, |at| {
        let write = updates[at % updates.len()].clone();
        let results = runtime.block_on(async { store.commit(vec![write]).await });
        assert!(results.iter().all(Result::is_ok), "the pod is there");
    })
}

/// Rewrites so many of a hundred pods, spread evenly; gives how many.
fn touch(runtime: &Runtime, store: &dyn Store, updates: &[Write], percent: u32) -> u32 {
    let step = 100 / percent.clamp(1, 100) as usize;
    let some: Vec<_> = updates.iter().step_by(step).cloned().collect();
    let results = runtime.block_on(async { store.commit(some).await });
    u32::try_from(results.iter().filter(|it| it.is_ok()).count()).unwrap_or(u32::MAX)
}

/// Does something `count` times, `rate` times a second; gives the time of each. The clock is this
/// thread's own: what serves is not woken up for it.
fn paced(rate: u32, count: u32, mut act: impl FnMut(usize)) -> Vec<u64> {
    let mut times = Vec::with_capacity(count as usize);
    let (start, step) = (Instant::now(), Duration::from_secs(1) / rate);
    for at in 0..count {
        std::thread::sleep((start + step * at).saturating_duration_since(Instant::now()));
        times.push(microseconds());
        act(at as usize);
    }
    times
}

/// Now, on a clock that two processes share.
pub(super) fn microseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn obey(mut act: impl FnMut(Order) -> Answer) -> anyhow::Result<()> {
    for line in std::io::stdin().lock().lines() {
        let order = serde_json::from_str(&line?).context("no order")?;
        say(&act(order))?;
    }
    Ok(())
}

pub(super) fn say(words: &impl Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, words)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}
