//! A list of many pods: the server's processor time, against bare vectored writes of the same bytes
//! and against kube-apiserver.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use tokio::runtime::Runtime;

use super::Common;
use super::child::Hello;
use super::process::{Served, Side};
use super::report::{Figure, Findings, number};
use super::wire::{Dialer, frames, http};

/// What the client reads at a time.
const READ_BYTES: usize = 1 << 20;
const PATH: &str = "/api/v1/pods?resourceVersion=0";
/// Lists of the peer in each round: one takes it a second.
const PEER_LISTS: u32 = 2;
/// Pods of a hundred that change between two compressed lists.
const CHANGED_PERCENT: u32 = 1;
/// Between two looks at whether a server is done with what was changed.
const SETTLE: Duration = Duration::from_millis(200);

#[derive(Args)]
pub(crate) struct ListArguments {
    /// Pods in the list
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1_000..=200_000))]
    pods: u32,
    /// Lists in each round
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    lists: u32,
    /// Rounds; the best of each side counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=50))]
    rounds: u32,
    #[command(flatten)]
    common: Common,
}

/// Milliseconds for one list: processor time of the server, and time on the client's clock.
#[derive(Clone, Copy)]
struct Cost {
    processor: f64,
    wall: f64,
}

impl Cost {
    const WORST: Self = Self { processor: f64::INFINITY, wall: f64::INFINITY };

    fn better(self, other: Self) -> Self {
        if self.processor <= other.processor { self } else { other }
    }
}

/// The best of each way to list from a server that talks TLS.
struct Secure {
    one: Cost,
    two: Cost,
    zipped: Cost,
    zipped_bytes: u64,
}

impl Secure {
    const WORST: Self =
        Self { one: Cost::WORST, two: Cost::WORST, zipped: Cost::WORST, zipped_bytes: 0 };

    fn measure(
        &mut self,
        runtime: &Runtime,
        served: &mut Served,
        lists: u32,
    ) -> anyhow::Result<()> {
        self.one = self.one.better(tls(runtime, served, lists, false)?);
        self.two = self.two.better(tls(runtime, served, lists, true)?);
        let (zipped, bytes) = zipped(runtime, served, lists)?;
        (self.zipped, self.zipped_bytes) = (self.zipped.better(zipped), bytes);
        Ok(())
    }
}

pub(super) fn run(arguments: &ListArguments) -> anyhow::Result<()> {
    let runtime = Runtime::new()?;
    let (pods, lists) = (arguments.pods, arguments.lists);
    let peer = arguments.common.peer(|| Served::start(Side::Apiserver, pods, 0))?;
    let ours = Served::start(Side::Plain, pods, 0)?;
    let mut tls = Served::start(Side::Tls, pods, 0)?;
    let compress = ["--compress-bodies".to_owned()];
    let mut held = Served::start_with(Side::Tls, pods, 0, &compress)?;
    let bare = Served::start(Side::Bare, pods, 0)?;
    let (mut one, mut two, mut floor) = (Cost::WORST, Cost::WORST, Cost::WORST);
    let (mut secure, mut theirs) = (Secure::WORST, peer.map(|it| (it, Secure::WORST)));
    let mut compressed = Secure::WORST;
    let mut bytes = 0;
    for _ in 0..arguments.rounds {
        // Side by side: what the machine does meanwhile hits all.
        floor = floor.better(http1(&bare, lists, &mut bytes)?);
        one = one.better(http1(&ours, lists, &mut bytes)?);
        two = two.better(http2(&ours, lists)?);
        secure.measure(&runtime, &mut tls, lists)?;
        compressed.measure(&runtime, &mut held, lists)?;
        if let Some((peer, theirs)) = &mut theirs {
            theirs.measure(&runtime, peer, PEER_LISTS)?;
        }
    }
    let theirs = theirs.map(|(_, costs)| costs);
    let against_floor = |name, ours: Cost, at_most| {
        let floor = ("bare writes", Some(floor.processor));
        Figure::new(name, ours.processor, "ms", floor, at_most)
    };
    let against = |name, ours: &Secure, of: fn(&Secure) -> Cost, at_most| {
        let theirs = ("kube-apiserver", theirs.as_ref().map(|it| of(it).processor));
        Figure::new(name, of(ours).processor, "ms", theirs, at_most)
    };
    let against_peer = |name, of, at_most| against(name, &secure, of, at_most);
    let against_held = |name, of| against(name, &compressed, of, 0.5);
    let params =
        [("pods", pods.into()), ("lists", lists.into()), ("rounds", arguments.rounds.into())];
    let mut found = Findings::new("list", &params);
    found.figures = vec![
        against_floor("processor a list, HTTP/1.1, plain", one, 1.3),
        against_floor("processor a list, HTTP/2, plain", two, 1.3),
        against_peer("processor a list, HTTP/1.1, TLS", |it| it.one, 0.1),
        against_peer("processor a list, HTTP/2, TLS", |it| it.two, 0.1),
        against_peer("processor a list, gzip, 1 % changed, HTTP/2, TLS", |it| it.zipped, 0.1),
        against_held("processor a list, bodies held compressed, HTTP/1.1, TLS", |it| it.one),
        against_held("processor a list, bodies held compressed, HTTP/2, TLS", |it| it.two),
        against_held("processor a list, bodies held compressed, gzip, HTTP/2, TLS", |it| it.zipped),
    ];
    let megabytes = |bytes: u64| number(bytes) / 1e6;
    found.notes = vec![format!(
        "{:.1} MB, gzip {:.1} MB; on the client's clock bare {:.0} ms, HTTP/1.1 {:.0} ms, HTTP/2 {:.0} \
         ms, with TLS {:.0} and {:.0} ms, gzip {:.0} ms",
        megabytes(bytes),
        megabytes(secure.zipped_bytes),
        floor.wall,
        one.wall,
        two.wall,
        secure.one.wall,
        secure.two.wall,
        secure.zipped.wall
    )];
    found.notes.extend(theirs.map(|it| {
        format!(
            "kube-apiserver: {:.0} and {:.0} ms, gzip {:.0} ms and {:.1} MB",
            it.one.wall,
            it.two.wall,
            it.zipped.wall,
            megabytes(it.zipped_bytes)
        )
    }));
    found.show(arguments.common.output);
    Ok(())
}

fn cost(
    served: &Served,
    lists: u32,
    mut list: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Cost> {
    // The first one finds the buffers of the connection small.
    list()?;
    let (before, start) = (served.usage(), Instant::now());
    for _ in 0..lists {
        list()?;
    }
    let wall = start.elapsed().as_secs_f64() * 1e3 / f64::from(lists);
    let processor = served.usage().processor - before.processor;
    Ok(Cost { processor: processor * 1e3 / f64::from(lists), wall })
}

/// Lists over one HTTP/1.1 connection.
fn http1(served: &Served, lists: u32, bytes: &mut u64) -> anyhow::Result<Cost> {
    let mut stream = TcpStream::connect(served.hello.address)?;
    let mut buffer = vec![0; READ_BYTES];
    cost(served, lists, || {
        *bytes = list(&mut stream, &served.hello, &mut buffer)?;
        Ok(())
    })
}

/// Reads one list; gives its bytes.
fn list(stream: &mut TcpStream, hello: &Hello, buffer: &mut [u8]) -> anyhow::Result<u64> {
    let Hello { address, token, .. } = hello;
    let request =
        format!("GET {PATH} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\r\n");
    // In one write: the floor takes what it reads for a whole request.
    stream.write_all(request.as_bytes())?;
    let mut read = stream.read(buffer)?;
    let end =
        memchr::memmem::find(&buffer[..read], b"\r\n\r\n").context("the head came in parts")?;
    let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
    ensure!(head.starts_with("http/1.1 200"), "the server answers {head:?}");
    let length = head.split("content-length: ").nth(1).and_then(|it| it.lines().next());
    let length: usize = length.context("no length")?.trim().parse()?;
    let mut left = length - (read - end - 4);
    while left > 0 {
        read = stream.read(buffer)?;
        ensure!(read > 0, "the list broke off");
        left -= read;
    }
    Ok(length as u64)
}

/// Lists over one HTTP/2 connection, read as bluntly as the floor's.
fn http2(served: &Served, lists: u32) -> anyhow::Result<Cost> {
    let mut client = frames::Client::connect(&served.hello)?;
    cost(served, lists, || client.get(PATH).map(|_| ()))
}

/// Lists over one connection with TLS.
fn tls(runtime: &Runtime, served: &Served, lists: u32, http2: bool) -> anyhow::Result<Cost> {
    let dialer = Dialer::new(&served.hello, http2)?;
    let mut sender = runtime.block_on(http::connect(&dialer, 0))?;
    cost(served, lists, || {
        let read = async { http::drain(http::ask(&dialer, &mut sender, PATH, None).await?).await };
        runtime.block_on(read).map(|_| ())
    })
}

/// Compressed lists over one HTTP/2 connection with TLS, some pods changed before each. What taking in
/// the changes costs is not counted.
fn zipped(runtime: &Runtime, served: &mut Served, lists: u32) -> anyhow::Result<(Cost, u64)> {
    let dialer = Dialer::new(&served.hello, true)?;
    let mut sender = runtime.block_on(http::connect(&dialer, 0))?;
    let (mut processor, mut wall, mut bytes) = (0.0, Duration::ZERO, 0);
    for at in 0..=lists {
        served.touch(CHANGED_PERCENT)?;
        settle(served);
        let (before, start) = (served.usage(), Instant::now());
        bytes = runtime.block_on(async {
            http::drain(http::ask(&dialer, &mut sender, PATH, Some("gzip")).await?).await
        })?;
        // The first one finds nothing compressed yet.
        if at > 0 {
            processor += served.usage().processor - before.processor;
            wall += start.elapsed();
        }
    }
    let each = |seconds: f64| seconds * 1e3 / f64::from(lists);
    Ok((Cost { processor: each(processor), wall: each(wall.as_secs_f64()) }, bytes))
}

/// Waits until a server has nothing to do.
fn settle(served: &Served) {
    let mut last = f64::NEG_INFINITY;
    loop {
        sleep(SETTLE);
        let used = served.usage().processor;
        if used <= last {
            return;
        }
        last = used;
    }
}
