//! Many watches, each of one node's pods, as kubelets have them, or of one pod by its label: against
//! kube-apiserver.

use clap::Args;
use tokio::runtime::Runtime;

use super::fanout::{lost, note};
use super::herd::{Delivery, Herd, Sees};
use super::process::{Served, Side};
use super::report::{Figure, Findings};
use super::{Common, machine};

/// Updates a second where watches select by label: kube-apiserver asks each of them about each update.
const LABEL_RATE: u32 = 50;

#[derive(Args)]
pub(crate) struct SelectiveArguments {
    /// Watches, each of its own node or label, and pods, one of each
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(10..=15_000))]
    watches: u32,
    /// Updates a second; at most 50 where watches select by label
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    rate: u32,
    /// How long pods are updated
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    #[command(flatten)]
    common: Common,
}

/// The names of the figures of one kind of watches.
struct Names {
    processor: &'static str,
    delay: &'static str,
    lost: &'static str,
}

pub(super) fn run(arguments: &SelectiveArguments) -> anyhow::Result<()> {
    machine::raise_file_limit();
    let params = [
        ("watches", arguments.watches.into()),
        ("rate", arguments.rate.into()),
        ("seconds", arguments.seconds.into()),
    ];
    let mut found = Findings::new("selective", &params);
    let pods = arguments.watches as usize;
    let node = Names {
        processor: "processor an update",
        delay: "delay of 99 in 100",
        lost: "watches lost",
    };
    let label = Names {
        processor: "processor an update, by label",
        delay: "delay of 99 in 100, by label",
        lost: "watches lost, by label",
    };
    compare(arguments, &node, Sees::Node { pods, step: 1 }, arguments.rate, &mut found)?;
    let rate = arguments.rate.min(LABEL_RATE);
    compare(arguments, &label, Sees::Label { pods }, rate, &mut found)?;
    found.show(arguments.common.output);
    Ok(())
}

fn compare(
    arguments: &SelectiveArguments,
    names: &Names,
    sees: Sees,
    rate: u32,
    found: &mut Findings,
) -> anyhow::Result<()> {
    let runtime = Runtime::new()?;
    let measure = |side| runtime.block_on(measure(arguments, side, sees, rate));
    let ours = measure(Side::Tls)?;
    let theirs = arguments.common.peer(|| measure(Side::Apiserver))?;
    let against = |name, unit, of: fn(&Delivery) -> f64, at_most| {
        let theirs = ("kube-apiserver", theirs.as_ref().map(of));
        Figure::new(name, of(&ours), unit, theirs, at_most)
    };
    found.figures.extend([
        against(names.processor, "µs", |it| it.processor_each, 1.0 / 8.0),
        against(names.delay, "ms", |it| it.p99, 1.0 / 3.0),
        lost(names.lost, &ours),
    ]);
    let by = if matches!(sees, Sees::Label { .. }) { ", by label" } else { "" };
    found.notes.push(note(&format!("ours{by}"), &ours));
    found.notes.extend(theirs.map(|it| note(&format!("kube-apiserver{by}"), &it)));
    Ok(())
}

async fn measure(
    arguments: &SelectiveArguments,
    side: Side,
    sees: Sees,
    rate: u32,
) -> anyhow::Result<Delivery> {
    let watches = arguments.watches;
    let mut served = Served::start(side, watches, watches)?;
    let mut herd = Herd::new(&served, false, sees)?;
    herd.open(watches as usize).await?;
    herd.deliver(&mut served, rate, rate * arguments.seconds).await
}
