//! As many watches as a large cluster has, each of one node's pods.

use clap::Args;
use tokio::runtime::Runtime;

use super::fanout::lost;
use super::herd::{Delivery, Herd, Sees};
use super::process::{Served, Side};
use super::report::{Figure, Findings, number};
use super::{Common, machine};

/// Pods; where there are fewer nodes, as many as those.
const PODS: u32 = 10_000;
/// Watches on each HTTP/2 connection.
const STREAMS: u32 = 100;
/// Files that a server has open besides its connections, and some to spare.
const OTHER_FILES: u64 = 100;
/// The longest that 99 of 100 events may take: what Kubernetes promises for its simplest requests.
const DELAY_MS: f64 = 1000.0;

#[derive(Args)]
pub(crate) struct ScaleArguments {
    /// Watches over HTTP/1.1, a connection each; 0 leaves them out
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    watches: u32,
    /// Watches over HTTP/2, 100 on each connection; 0 leaves them out
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(0..=150_000))]
    streams: u32,
    /// How long pods are updated
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
    /// Updates a second
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    rate: u32,
    /// Talk TLS
    #[arg(long)]
    tls: bool,
    #[command(flatten)]
    common: Common,
}

struct Scaled {
    watches: u32,
    delivery: Delivery,
    /// Bytes: before the watches, and with them after the last event.
    resident: (u64, u64),
}

pub(super) fn run(arguments: &ScaleArguments) -> anyhow::Result<()> {
    machine::raise_file_limit();
    let runtime = Runtime::new()?;
    let files = rlimit::getrlimit(rlimit::Resource::NOFILE)?.0.saturating_sub(OTHER_FILES);
    let watches = arguments.watches.min(u32::try_from(files).unwrap_or(u32::MAX));
    let params = [
        ("watches", watches.into()),
        ("streams", arguments.streams.into()),
        ("seconds", arguments.seconds.into()),
        ("rate", arguments.rate.into()),
    ];
    let mut found = Findings::new("scale", &params);
    if watches < arguments.watches {
        found
            .notes
            .push(format!("{watches} watches over HTTP/1.1: the system allows no more files"));
    }
    if watches > 0 {
        let it = runtime.block_on(measure(arguments, watches, false))?;
        found.figures.push(lost("watches lost, HTTP/1.1", &it.delivery));
        found.figures.push(delay("delay of 99 in 100, HTTP/1.1", &it.delivery));
        found.notes.push(it.note("HTTP/1.1"));
    }
    if arguments.streams > 0 {
        let it = runtime.block_on(measure(arguments, arguments.streams, true))?;
        found.figures.push(lost("watches lost, HTTP/2", &it.delivery));
        found.figures.push(delay("delay of 99 in 100, HTTP/2", &it.delivery));
        found.notes.push(it.note("HTTP/2"));
    }
    found.show(arguments.common.output);
    Ok(())
}

fn delay(name: &'static str, it: &Delivery) -> Figure {
    Figure::new(name, it.p99, "ms", ("limit", Some(DELAY_MS)), 1.0)
}

async fn measure(arguments: &ScaleArguments, watches: u32, http2: bool) -> anyhow::Result<Scaled> {
    let pods = PODS.min(watches);
    let side = if arguments.tls { Side::Tls } else { Side::Plain };
    let mut served = Served::start(side, pods, watches)?;
    let before = served.usage().resident;
    let sees = Sees::Node { pods: pods as usize, step: (watches / pods) as usize };
    let mut herd = Herd::new(&served, http2, sees)?;
    if http2 {
        herd.open_streams(watches as usize, STREAMS as usize).await?;
    } else {
        herd.open(watches as usize).await?;
    }
    let updates = arguments.rate * arguments.seconds;
    let delivery = herd.deliver(&mut served, arguments.rate, updates).await?;
    let resident = (before, served.usage().resident);
    Ok(Scaled { watches, delivery, resident })
}

impl Scaled {
    fn note(&self, name: &str) -> String {
        let ((before, after), it) = (self.resident, &self.delivery);
        let each = number(after.saturating_sub(before)) / f64::from(self.watches);
        format!(
            "{name}: {} watches, {} events, {:.0} µs of processor each ({:.2} processors), p50 \
             {:.1} ms, p99 {:.1} ms, longest {:.1} ms, {} lost; resident {:.0} MB, {each:.0} B a \
             watch with the history of the updates",
            self.watches,
            it.events,
            it.processor_each,
            it.busy,
            it.p50,
            it.p99,
            it.longest,
            it.lost,
            number(after) / 1e6,
        )
    }
}
