//! A list of many pods: the server's processor time, against bare vectored writes of the same bytes.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use clap::Args;
use http_body_util::BodyExt as _;
use tokio::runtime::Runtime;

use super::child::Hello;
use super::process::{Served, Side};
use super::report::{Figure, number};
use super::wire::{Dialer, frames, h2};
use super::{Output, machine, report};

/// What the client reads at a time.
const READ_BYTES: usize = 1 << 20;
const PATH: &str = "/api/v1/pods?resourceVersion=0";
/// kube-apiserver on a machine of this kind, over TLS as it always is, for 10,000 pods: milliseconds
/// of processor over HTTP/1.1 and HTTP/2.
const APISERVER: (f64, f64) = (1020.0, 1630.0);

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
    /// How to show the figures
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
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

pub(super) fn run(arguments: &ListArguments) -> anyhow::Result<()> {
    let runtime = Runtime::new()?;
    let ours = Served::start(Side::Plain, arguments.pods, 0)?;
    let tls = Served::start(Side::Tls, arguments.pods, 0)?;
    let bare = Served::start(Side::Bare, arguments.pods, 0)?;
    let (mut one, mut two, mut secure, mut floor) =
        (Cost::WORST, Cost::WORST, Cost::WORST, Cost::WORST);
    let mut bytes = 0;
    for _ in 0..arguments.rounds {
        // Side by side: what the machine does meanwhile hits all.
        floor = floor.better(http1(&bare, arguments.lists, &mut bytes)?);
        one = one.better(http1(&ours, arguments.lists, &mut bytes)?);
        two = two.better(http2(&ours, arguments.lists)?);
        secure = secure.better(runtime.block_on(http2_tls(&tls, arguments.lists))?);
    }
    let ms = |name, ours: Cost, against, theirs, at_most| {
        Figure::new(name, ours.processor, "ms", (against, Some(theirs)), at_most)
    };
    let share = f64::from(arguments.pods) / 10_000.0;
    let figures = [
        ms("processor a list, HTTP/1.1, plain", one, "bare writes", floor.processor, 1.3),
        ms("processor a list, HTTP/2, plain", two, "bare writes", floor.processor, 1.6),
        ms("… HTTP/1.1, against a peer", one, "kube-apiserver", APISERVER.0 * share, 0.2),
        ms("… HTTP/2 with TLS, against a peer", secure, "kube-apiserver", APISERVER.1 * share, 0.2),
    ];
    let machine = machine::description();
    match arguments.output {
        Output::Table => {
            let notes = [
                format!(
                    "{:.1} MB; on the client's clock bare {:.0} ms, HTTP/1.1 {:.0} ms, \
                     HTTP/2 {:.0} ms, HTTP/2 with TLS {:.0} ms",
                    number(bytes) / 1e6,
                    floor.wall,
                    one.wall,
                    two.wall,
                    secure.wall
                ),
                "kube-apiserver's figures are of a machine of this kind, not of this run; it always \
                 talks TLS"
                    .to_owned(),
            ];
            report::table(&machine, &notes, &figures);
        }
        Output::Json => {
            let params = [
                ("pods", arguments.pods.into()),
                ("lists", arguments.lists.into()),
                ("rounds", arguments.rounds.into()),
                ("bytes", bytes),
            ];
            report::json("list", &machine, &params, &figures);
        }
    }
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

/// Lists over one HTTP/2 connection with TLS.
async fn http2_tls(served: &Served, lists: u32) -> anyhow::Result<Cost> {
    let dialer = Dialer::new(&served.hello, true)?;
    let mut sender = h2::connect(&dialer, 0).await?;
    let handle = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| {
        cost(served, lists, || {
            handle.block_on(async {
                let mut body = h2::ask(&dialer, &mut sender, PATH).await?;
                while let Some(frame) = body.frame().await {
                    frame?;
                }
                Ok(())
            })
        })
    })
}
