//! Lists, watches and writes at the same time, as a busy cluster has them.

use std::time::Instant;

use clap::Args;
use tokio::runtime::Runtime;
use tokio::time::{Duration, interval};

use super::herd::{Delivery, Herd, Sees};
use super::process::{Served, Side};
use super::report::{Figure, Findings, median, number};
use super::wire::{Dialer, http};
use super::{Common, fanout, machine};

const PODS: u32 = 5_000;
const PATH: &str = "/api/v1/pods?resourceVersion=0";

#[derive(Args)]
pub(crate) struct MixedArguments {
    /// Watches of everything
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=5_000))]
    watches: u32,
    /// Updates a second
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rate: u32,
    /// How long
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    #[command(flatten)]
    common: Common,
}

struct Mixed {
    delivery: Delivery,
    /// Milliseconds of each list of 5,000 pods, one a second.
    lists: Vec<f64>,
}

pub(super) fn run(arguments: &MixedArguments) -> anyhow::Result<()> {
    machine::raise_file_limit();
    let runtime = Runtime::new()?;
    let ours = runtime.block_on(measure(arguments, Side::Tls))?;
    let theirs = arguments.common.peer(|| runtime.block_on(measure(arguments, Side::Apiserver)))?;
    let params = [
        ("pods", PODS.into()),
        ("watches", arguments.watches.into()),
        ("rate", arguments.rate.into()),
        ("seconds", arguments.seconds.into()),
    ];
    let mut found = Findings::new("mixed", &params);
    let against = |name, unit, of: fn(&Mixed) -> f64, at_most| {
        let theirs = ("kube-apiserver", theirs.as_ref().map(of));
        Figure::new(name, of(&ours), unit, theirs, at_most)
    };
    found.figures = vec![
        against("processors kept busy", "", |it| it.delivery.busy, 0.5),
        against("delay of 99 in 100 events", "ms", |it| it.delivery.p99, 0.5),
        against("a list of 5,000 pods, median", "ms", |it| median(it.lists.clone()), 0.5),
        fanout::lost("watches lost", &ours.delivery),
    ];
    for (name, it) in [("ours", Some(ours)), ("kube-apiserver", theirs)] {
        found.notes.extend(it.map(|it| {
            let lists = number(it.lists.len() as u64);
            format!("{}; {lists} lists", fanout::note(name, &it.delivery))
        }));
    }
    found.show(arguments.common.output);
    Ok(())
}

async fn measure(arguments: &MixedArguments, side: Side) -> anyhow::Result<Mixed> {
    let mut served = Served::start(side, PODS, 0)?;
    let mut herd = Herd::new(&served, false, Sees::Everything)?;
    herd.open(arguments.watches as usize).await?;
    let listing = tokio::spawn(list(Dialer::new(&served.hello, true)?, arguments.seconds));
    let updates = arguments.rate * arguments.seconds;
    let delivery = herd.deliver(&mut served, arguments.rate, updates).await?;
    Ok(Mixed { delivery, lists: listing.await?? })
}

/// Lists everything once a second.
async fn list(dialer: Dialer, seconds: u32) -> anyhow::Result<Vec<f64>> {
    let mut sender = http::connect(&dialer, 0).await?;
    let (mut lists, mut second) = (Vec::new(), interval(Duration::from_secs(1)));
    for _ in 0..seconds {
        second.tick().await;
        let start = Instant::now();
        http::drain(http::ask(&dialer, &mut sender, PATH, None).await?).await?;
        lists.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(lists)
}
