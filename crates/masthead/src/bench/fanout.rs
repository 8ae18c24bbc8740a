//! One update to many watches: processor time, delay, and the memory of a watch that waits.

use clap::{Args, ValueEnum};
use tokio::runtime::Runtime;

use super::herd::{Delivery, Herd, Sees};
use super::process::{Served, Side};
use super::report::{Figure, Findings, number};
use super::{Common, machine};

/// Pods that the updates go round among.
const PODS: u32 = 1_000;
/// Streams of an HTTP/2 connection.
const STREAMS: usize = 100;
/// Watches that are open before those whose memory is measured: what the first ones cost once.
const WARM: usize = 500;
/// A server keeps up if 99 of 100 events are there so soon, in milliseconds.
const KEEPS_UP_MS: f64 = 1000.0;
/// Most updates a second that are tried.
const RATE_MAX: u32 = 10_000;

#[derive(Args)]
pub(crate) struct FanoutArguments {
    /// What to measure
    #[arg(long, value_enum, value_delimiter = ',',
        default_values_t = [Part::Cost, Part::Most, Part::Load, Part::Memory])]
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
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Processor time and delay of a delivery
    Cost,
    /// The most that is delivered before watches end or lag
    Most,
    /// 100,000 deliveries a second over TLS
    Load,
    /// A watch that waits
    Memory,
}

pub(super) fn run(arguments: &FanoutArguments) -> anyhow::Result<()> {
    machine::raise_file_limit();
    let runtime = Runtime::new()?;
    let params = [
        ("watches", arguments.watches.into()),
        ("idle", arguments.idle.into()),
        ("seconds", arguments.seconds.into()),
        ("pods", PODS.into()),
    ];
    let mut found = Findings::new("fanout", &params);
    for part in &arguments.part {
        runtime.block_on(async {
            match part {
                Part::Cost => cost(arguments, &mut found).await,
                Part::Most => most(arguments, &mut found).await,
                Part::Load => load(arguments, &mut found).await,
                Part::Memory => memory(arguments, &mut found).await,
            }
        })?;
    }
    found.show(arguments.common.output);
    Ok(())
}

/// Delivers to so many watches of a server of its own.
async fn deliver(side: Side, watches: u32, rate: u32, seconds: u32) -> anyhow::Result<Delivery> {
    let mut served = Served::start(side, PODS, 0)?;
    let mut herd = Herd::new(&served, false, Sees::Everything)?;
    herd.open(watches as usize).await?;
    herd.deliver(&mut served, rate, rate * seconds).await
}

pub(super) fn note(name: &str, it: &Delivery) -> String {
    format!(
        "{name}: {} deliveries, {:.1} µs of processor each ({:.2} processors), p50 {:.1} ms, \
         p99 {:.1} ms, p99.9 {:.1} ms, longest {:.1} ms, {} watches lost",
        it.events, it.processor_each, it.busy, it.p50, it.p99, it.p999, it.longest, it.lost
    )
}

async fn cost(arguments: &FanoutArguments, found: &mut Findings) -> anyhow::Result<()> {
    let deliver = async |side, rate, decoded| {
        if side == Side::Apiserver && !arguments.common.peers {
            return Ok(None);
        }
        let watches = arguments.watches as usize;
        let mut served = Served::start(side, PODS, 0)?;
        let mut herd = if decoded {
            Herd::decoding(&served)?
        } else {
            Herd::new(&served, false, Sees::Everything)?
        };
        herd.open(watches).await?;
        herd.deliver(&mut served, rate, rate * arguments.seconds).await.map(Some)
    };
    let sides = [
        ("bare loop, 30/s", Side::Bare, 30, false),
        ("plain, 30/s", Side::Plain, 30, false),
        ("bare loop, TLS, 30/s", Side::BareTls, 30, false),
        ("TLS, 30/s", Side::Tls, 30, false),
        ("kube-apiserver, 30/s", Side::Apiserver, 30, false),
        ("bare loop, TLS, 10/s", Side::BareTls, 10, false),
        ("TLS, 10/s", Side::Tls, 10, false),
        ("kube-apiserver, 10/s", Side::Apiserver, 10, false),
        ("bare loop on all cores, TLS, 30/s", Side::BareTlsWide, 30, false),
        ("bare loop on all cores, TLS, 10/s", Side::BareTlsWide, 10, false),
        ("bare loop on all cores, TLS, 30/s, decoded", Side::BareTlsWide, 30, true),
        ("TLS, 30/s, decoded", Side::Tls, 30, true),
        ("kube-apiserver, 30/s, decoded", Side::Apiserver, 30, true),
        ("TLS, 10/s, decoded", Side::Tls, 10, true),
        ("kube-apiserver, 10/s, decoded", Side::Apiserver, 10, true),
    ];
    let mut all = Vec::new();
    for (name, side, rate, decoded) in sides {
        let delivery = deliver(side, rate, decoded).await?;
        if let Some(it) = &delivery {
            found.figures.extend((it.lost > 0 && side != Side::Apiserver).then(|| lost(name, it)));
            found.notes.push(note(name, it));
        }
        all.push(delivery);
    }
    let of = |at: usize, of: fn(&Delivery) -> f64| all[at].as_ref().map(of);
    let processor: fn(&Delivery) -> f64 = |it| it.processor_each;
    let p99: fn(&Delivery) -> f64 = |it| it.p99;
    let figure = |name, unit, ours, measure, against, theirs, at_most| {
        let ours = of(ours, measure).unwrap_or(f64::NAN);
        Figure::new(name, ours, unit, (against, of(theirs, measure)), at_most)
    };
    let cpu = |name, ours, against, theirs, at_most| {
        figure(name, "µs", ours, processor, against, theirs, at_most)
    };
    let delay = |name, ours, against, theirs, at_most| {
        figure(name, "ms", ours, p99, against, theirs, at_most)
    };
    let free = f64::INFINITY;
    found.figures.extend([
        cpu("processor a delivery, 30/s, plain", 1, "bare loop", 0, 1.4),
        cpu("processor a delivery, 30/s, TLS", 3, "bare loop, TLS", 2, 1.25),
        cpu("processor a delivery, 30/s, TLS", 3, "kube-apiserver", 4, 1.0 / 2.0),
        cpu("processor a delivery, 10/s, TLS", 6, "bare loop, TLS", 5, 1.25),
        cpu("processor a delivery, 10/s, TLS", 6, "kube-apiserver", 7, 1.0 / 4.0),
        cpu("the same of the bare loop, TLS", 5, "kube-apiserver", 7, free),
        delay("delay of 99 in 100, 30/s, TLS", 3, "bare loop, all cores", 8, 1.25),
        delay("delay of 99 in 100, 30/s, TLS", 3, "kube-apiserver", 4, 1.0 / 10.0),
        delay("the same of the bare loop, all cores", 8, "kube-apiserver", 4, free),
        delay("delay of 99 in 100, 10/s, TLS", 6, "bare loop, all cores", 9, 1.25),
        delay("delay of 99 in 100, 10/s, TLS", 6, "kube-apiserver", 7, 1.0 / 10.0),
        delay("the same of the bare loop, all cores, 10/s", 9, "kube-apiserver", 7, free),
        cpu("processor a delivery, 30/s, TLS, decoded", 11, "kube-apiserver", 12, 1.0 / 2.0),
        cpu("processor a delivery, 10/s, TLS, decoded", 13, "kube-apiserver", 14, 1.0 / 4.0),
        delay("delay of 99 in 100, 30/s, TLS, decoded", 11, "bare loop, all cores", 10, 1.25),
        delay("delay of 99 in 100, 30/s, TLS, decoded", 11, "kube-apiserver", 12, 1.0 / 10.0),
        delay("delay of 99 in 100, 10/s, TLS, decoded", 13, "kube-apiserver", 14, 1.0 / 10.0),
    ]);
    Ok(())
}

/// None may be lost.
pub(super) fn lost(name: &'static str, it: &Delivery) -> Figure {
    Figure::new(name, number(it.lost as u64), "lost", ("limit", Some(1.0)), 0.0)
}

/// The most updates a second that a server keeps up with: doubled until it does not, then by smaller
/// steps. A server that fails is measured again with less, not with more.
async fn keeps_up(side: Side, watches: u32, first: u32, seconds: u32) -> anyhow::Result<Delivery> {
    let (mut best, mut rate, mut step) = (None, f64::from(first), 2.0_f64);
    while step > 1.1 && rate <= f64::from(RATE_MAX) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "≤ RATE_MAX")]
        let tried = rate.max(1.0) as u32;
        let it = deliver(side, watches, tried, seconds).await?;
        if it.lost == 0 && it.p99 <= KEEPS_UP_MS {
            best = Some(it);
        } else {
            rate /= step;
            step = step.sqrt();
        }
        rate *= step;
    }
    best.ok_or_else(|| anyhow::anyhow!("it does not keep up with {first} updates a second"))
}

async fn most(arguments: &FanoutArguments, found: &mut Findings) -> anyhow::Result<()> {
    let seconds = arguments.seconds.div_ceil(2);
    let parts = [
        ("time a delivery at the most, 100 watches, TLS", 100, 400, 100),
        ("time a delivery at the most, 1,000 watches, TLS", 1_000, 40, 10),
    ];
    let each = |it: &Delivery| it.seconds * 1e6 / number(it.events);
    for (name, watches, ours, theirs) in parts {
        let ours = keeps_up(Side::Tls, watches, ours, seconds).await?;
        let theirs = if arguments.common.peers {
            Some(keeps_up(Side::Apiserver, watches, theirs, seconds).await?)
        } else {
            None
        };
        let against = ("kube-apiserver", theirs.as_ref().map(each));
        found.figures.push(Figure::new(name, each(&ours), "µs", against, 1.0 / 3.0));
        for (who, it) in [("ours", Some(ours)), ("kube-apiserver", theirs)] {
            let it = it.map(|it| note(&format!("{who}, the most to {watches} watches"), &it));
            found.notes.extend(it);
        }
    }
    Ok(())
}

async fn load(arguments: &FanoutArguments, found: &mut Findings) -> anyhow::Result<()> {
    let seconds = arguments.seconds * 3;
    let few = deliver(Side::Tls, 100, 1_000, seconds).await?;
    let many = deliver(Side::Tls, 1_000, 100, seconds).await?;
    found.figures.push(lost("watches lost, 100 at 1,000/s, TLS", &few));
    found.figures.push(lost("watches lost, 1,000 at 100/s, TLS", &many));
    found.notes.push(note("TLS, 100 watches at 1,000/s", &few));
    found.notes.push(note("TLS, 1,000 watches at 100/s", &many));
    Ok(())
}

async fn memory(arguments: &FanoutArguments, found: &mut Findings) -> anyhow::Result<()> {
    let count = arguments.idle as usize;
    let kilobytes = |name, ours: f64, limit: f64| {
        Figure::new(name, ours, "B", ("limit", Some(limit * 1024.0)), 1.0)
    };
    let plain = idle(Side::Plain, count, false).await?;
    let tls = idle(Side::Tls, count, false).await?;
    let streams = idle(Side::Tls, count, true).await?;
    let names = [
        "memory of a waiting watch, HTTP/1.1, plain",
        "memory of a waiting watch, HTTP/1.1, TLS",
        "memory of a waiting watch, HTTP/2, TLS, 100 on a connection",
    ];
    found.figures.extend([
        kilobytes(names[0], plain, 12.0),
        kilobytes(names[1], tls, 18.0),
        kilobytes(names[2], streams, 6.0),
    ]);
    if arguments.common.peers {
        let one = idle(Side::Apiserver, count, false).await?;
        let two = idle(Side::Apiserver, count, true).await?;
        let peer = |name, ours, theirs, at_most| {
            Figure::new(name, ours, "B", ("kube-apiserver", Some(theirs)), at_most)
        };
        found.figures.push(peer(names[1], tls, one, 1.0 / 5.0));
        found.figures.push(peer(names[2], streams, two, 1.0 / 7.0));
    }
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
