//! How costs grow: with the objects, the watches, the size of an event and the rate of updates.

use clap::Args;
use tokio::runtime::Runtime;

use super::herd::{Delivery, Herd, Sees};
use super::process::{Served, Side};
use super::report::{Figure, Findings, Growth};
use super::wire::{Dialer, http};
use super::{Common, machine};

const PATH: &str = "/api/v1/pods?resourceVersion=0";
/// Watches on a connection of HTTP/2.
const STREAMS: usize = 100;
/// A power that still counts as linear: what one run differs from another by.
const LINEAR: f64 = 1.1;

#[derive(Args)]
pub(crate) struct GrowthArguments {
    /// Fewer and smaller steps
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(arguments: &GrowthArguments) -> anyhow::Result<()> {
    machine::raise_file_limit();
    let runtime = Runtime::new()?;
    let full = |all: &[u32]| all[..all.len() - usize::from(arguments.quick)].to_vec();
    let mut found = Findings::new("growth", &[("quick", arguments.quick.into())]);
    let (lists, memory) = objects(&runtime, &full(&[1_000, 10_000, 100_000]))?;
    found.growth = vec![lists, memory];
    let deliver = |fan: Fan| runtime.block_on(fan.deliver());
    let usual = Fan { watches: 100, rate: 20, bytes: 9_400, http2: false };
    let watches: Vec<_> = full(&[100, 1_000, 10_000, 50_000])
        .into_iter()
        .map(|watches| Fan { watches, rate: (20_000 / watches).clamp(1, 20), http2: true, ..usual })
        .collect();
    let bytes = full(&[1_000, 4_000, 16_000, 64_000]);
    let bytes: Vec<_> = bytes.into_iter().map(|bytes| Fan { bytes, ..usual }).collect();
    let rates = full(&[1, 10, 100, 1_000]);
    let rates: Vec<_> = rates.into_iter().map(|rate| Fan { rate, ..usual }).collect();
    let update: fn(&Fan, &Delivery) -> f64 =
        |fan, it| it.processor_each * f64::from(fan.watches) / 1e3;
    found.growth.extend([
        grown("processor an update", "ms", "watches", &watches, |it| it.watches, update, deliver)?,
        grown("processor an update", "ms", "bytes", &bytes, |it| it.bytes, update, deliver)?,
        grown(
            "processor a second",
            "ms",
            "updates/s",
            &rates,
            |it| it.rate,
            |_, it| it.busy * 1e3,
            deliver,
        )?,
    ]);
    let name = ["list by objects", "memory by objects", "update by watches", "update by bytes"];
    for (name, it) in name.into_iter().chain(["second by rate"]).zip(&found.growth) {
        let power = it.exponent();
        found.figures.push(Figure::new(name, power, "power", ("linear", Some(1.0)), LINEAR));
    }
    found.show(arguments.common.output);
    Ok(())
}

/// One update after the other to some watches over TLS.
#[derive(Clone, Copy)]
struct Fan {
    watches: u32,
    rate: u32,
    bytes: u32,
    http2: bool,
}

impl Fan {
    async fn deliver(self) -> anyhow::Result<Delivery> {
        let more = [format!("--bytes={}", self.bytes)];
        let mut served = Served::start_with(Side::Tls, 100, 0, &more)?;
        let mut herd = Herd::new(&served, self.http2, Sees::Everything)?;
        if self.http2 {
            herd.open_streams(self.watches as usize, STREAMS).await?;
        } else {
            herd.open(self.watches as usize).await?;
        }
        let updates = (self.rate * 5).max(20);
        let it = herd.deliver(&mut served, self.rate, updates).await?;
        anyhow::ensure!(it.lost == 0, "{} of {} watches were lost", it.lost, self.watches);
        Ok(it)
    }
}

fn grown(
    name: &'static str,
    unit: &'static str,
    with: &'static str,
    steps: &[Fan],
    count: fn(&Fan) -> u32,
    cost: fn(&Fan, &Delivery) -> f64,
    deliver: impl Fn(Fan) -> anyhow::Result<Delivery>,
) -> anyhow::Result<Growth> {
    let mut points = Vec::new();
    for fan in steps {
        points.push((f64::from(count(fan)), cost(fan, &deliver(*fan)?)));
    }
    Ok(Growth { name, unit, with, points })
}

/// A list of everything over TLS, and the memory of a server with so many objects.
fn objects(runtime: &Runtime, steps: &[u32]) -> anyhow::Result<(Growth, Growth)> {
    let (mut lists, mut memory) = (Vec::new(), Vec::new());
    for &count in steps {
        let served = Served::start(Side::Tls, count, 0)?;
        memory.push((f64::from(count), super::report::number(served.usage().resident) / 1e6));
        let dialer = Dialer::new(&served.hello, true)?;
        let times = (200_000 / count).clamp(3, 50);
        let used = runtime.block_on(async {
            let mut sender = http::connect(&dialer, 0).await?;
            http::drain(http::ask(&dialer, &mut sender, PATH, None).await?).await?;
            let before = served.usage().processor;
            for _ in 0..times {
                http::drain(http::ask(&dialer, &mut sender, PATH, None).await?).await?;
            }
            anyhow::Ok(served.usage().processor - before)
        })?;
        lists.push((f64::from(count), used * 1e3 / f64::from(times)));
    }
    let lists = Growth { name: "processor a list", unit: "ms", with: "objects", points: lists };
    let memory = Growth { name: "memory of a server", unit: "MB", with: "objects", points: memory };
    Ok((lists, memory))
}
