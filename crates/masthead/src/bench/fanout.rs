//! One update to many watches: processor time, delay, and the memory of a watch that waits.

use clap::{Args, ValueEnum};
use tokio::runtime::Runtime;

use super::herd::{Delivery, Herd, Sees};
use super::process::{Served, Side};
use super::report::{Figure, number};
use super::{Output, machine, report};

/// Pods that the updates go round among.
const PODS: u32 = 1_000;
/// Streams of an HTTP/2 connection.
const STREAMS: usize = 100;
/// Watches that are open before those whose memory is measured: what the first ones cost once.
const WARM: usize = 500;
/// kube-apiserver on a machine of this kind with 1,000 watches over TLS: processor seconds per
/// million deliveries, and milliseconds for 99 of 100, at 10 and at 30 updates a second.
const APISERVER_10: (f64, f64) = (60.0, 68.0);
const APISERVER_30: (f64, f64) = (36.0, 381.0);

#[derive(Args)]
pub(crate) struct FanoutArguments {
    /// What to measure
    #[arg(long, value_enum, default_values_t = [Part::Cost, Part::Load, Part::Memory])]
    part: Vec<Part>,
    /// Watches at 10 and at 30 updates a second
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    watches: u32,
    /// Watches whose memory is measured
    #[arg(long, default_value_t = 4_000, value_parser = clap::value_parser!(u32).range(500..=15_000))]
    idle: u32,
    /// Length of each measurement; three times that under load
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// How to show the figures
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Processor time and delay of a delivery
    Cost,
    /// 100,000 deliveries a second over TLS
    Load,
    /// A watch that waits
    Memory,
}

pub(super) fn run(arguments: &FanoutArguments) -> anyhow::Result<()> {
    machine::raise_file_limit();
    let runtime = Runtime::new()?;
    let (mut figures, mut notes) = (Vec::new(), Vec::new());
    for part in &arguments.part {
        runtime.block_on(async {
            match part {
                Part::Cost => cost(arguments, &mut figures, &mut notes).await,
                Part::Load => load(arguments, &mut figures, &mut notes).await,
                Part::Memory => memory(arguments, &mut figures).await,
            }
        })?;
    }
    let machine = machine::description();
    match arguments.output {
        Output::Table => report::table(&machine, &notes, &figures),
        Output::Json => {
            let params = [
                ("watches", arguments.watches.into()),
                ("idle", arguments.idle.into()),
                ("seconds", arguments.seconds.into()),
                ("pods", PODS.into()),
            ];
            report::json("fanout", &machine, &params, &figures);
        }
    }
    Ok(())
}

/// Delivers to so many watches of a server of its own.
async fn deliver(side: Side, watches: u32, rate: u32, seconds: u32) -> anyhow::Result<Delivery> {
    let mut served = Served::start(side, PODS, 0)?;
    let mut herd = Herd::new(&served, false, Sees::Everything)?;
    herd.open(watches as usize).await?;
    herd.deliver(&mut served, rate, rate * seconds).await
}

fn note(name: &str, it: &Delivery) -> String {
    format!(
        "{name}: {} deliveries, {:.1} µs of processor each ({:.2} processors), \
         p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms, {} watches lost",
        it.events, it.processor_each, it.busy, it.p50, it.p99, it.longest, it.lost
    )
}

async fn cost(
    arguments: &FanoutArguments,
    figures: &mut Vec<Figure>,
    notes: &mut Vec<String>,
) -> anyhow::Result<()> {
    let (watches, seconds) = (arguments.watches, arguments.seconds);
    let bare = deliver(Side::Bare, watches, 30, seconds).await?;
    let plain = deliver(Side::Plain, watches, 30, seconds).await?;
    let tls = deliver(Side::Tls, watches, 30, seconds).await?;
    let slow = deliver(Side::Tls, watches, 10, seconds).await?;
    let us = |name, ours, against, theirs, at_most| {
        Figure::new(name, ours, "µs", (against, Some(theirs)), at_most)
    };
    let ms = |name, ours, theirs| {
        Figure::new(name, ours, "ms", ("kube-apiserver", Some(theirs)), 1.0 / 5.0)
    };
    let cpu = plain.processor_each;
    figures.extend([
        us("processor a delivery, 30/s, plain", cpu, "bare loop", bare.processor_each, 1.4),
        us("… 30/s, TLS", tls.processor_each, "kube-apiserver", APISERVER_30.0, 1.0 / 2.0),
        us("… 10/s, TLS", slow.processor_each, "kube-apiserver", APISERVER_10.0, 1.0 / 3.0),
        ms("delay of 99 in 100, 30/s, TLS", tls.p99, APISERVER_30.1),
        ms("delay of 99 in 100, 10/s, TLS", slow.p99, APISERVER_10.1),
    ]);
    for (name, it) in
        [("bare loop", &bare), ("plain", &plain), ("TLS, 30/s", &tls), ("TLS, 10/s", &slow)]
    {
        figures.extend((it.lost > 0).then(|| lost("watches lost", it)));
        notes.push(note(name, it));
    }
    notes.push("kube-apiserver's figures are of a machine of this kind, not of this run".into());
    Ok(())
}

/// None may be lost.
pub(super) fn lost(name: &'static str, it: &Delivery) -> Figure {
    Figure::new(name, number(it.lost as u64), "", ("limit", Some(1.0)), 0.0)
}

async fn load(
    arguments: &FanoutArguments,
    figures: &mut Vec<Figure>,
    notes: &mut Vec<String>,
) -> anyhow::Result<()> {
    let seconds = arguments.seconds * 3;
    let few = deliver(Side::Tls, 100, 1_000, seconds).await?;
    let many = deliver(Side::Tls, 1_000, 100, seconds).await?;
    figures.push(lost("watches lost, 100 at 1,000/s, TLS", &few));
    figures.push(lost("watches lost, 1,000 at 100/s, TLS", &many));
    notes.push(note("TLS, 100 watches at 1,000/s", &few));
    notes.push(note("TLS, 1,000 watches at 100/s", &many));
    Ok(())
}

async fn memory(arguments: &FanoutArguments, figures: &mut Vec<Figure>) -> anyhow::Result<()> {
    let count = arguments.idle as usize;
    let kilobytes = |name, ours: f64, limit: f64| {
        Figure::new(name, ours, "B", ("limit", Some(limit * 1024.0)), 1.0)
    };
    let plain = idle(Side::Plain, count, false).await?;
    let tls = idle(Side::Tls, count, false).await?;
    let streams = idle(Side::Tls, count, true).await?;
    figures.extend([
        kilobytes("memory of a waiting watch, HTTP/1.1, plain", plain, 12.0),
        kilobytes("… HTTP/1.1, TLS", tls, 18.0),
        kilobytes("… HTTP/2 with TLS, 100 on each connection", streams, 6.0),
    ]);
    Ok(())
}

/// Resident bytes that a waiting watch adds.
async fn idle(side: Side, count: usize, http2: bool) -> anyhow::Result<f64> {
    let mut served = Served::start(side, PODS, 0)?;
    let mut herd = Herd::new(&served, http2, Sees::Everything)?;
    let mut resident = [0; 2];
    for (at, until) in [WARM, WARM + count].into_iter().enumerate() {
        if http2 {
            herd.open_streams(until, STREAMS).await?;
        } else {
            herd.open(until).await?;
        }
        anyhow::ensure!(served.watches()? >= until, "watches ended");
        resident[at] = served.usage().resident;
    }
    Ok(number(resident[1].saturating_sub(resident[0])) / number(count as u64))
}
