//! Many watches, each of one node's pods, as kubelets have them: against kube-apiserver.

use clap::Args;
use tokio::runtime::Runtime;

use super::fanout::{lost, note};
use super::herd::{Delivery, Herd, Sees};
use super::process::{Served, Side};
use super::report::{Figure, Findings};
use super::{Common, machine};

#[derive(Args)]
pub(crate) struct SelectiveArguments {
    /// Watches, each of its own node, and pods, one on each node
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(10..=15_000))]
    watches: u32,
    /// Updates a second
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    rate: u32,
    /// How long pods are updated
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(arguments: &SelectiveArguments) -> anyhow::Result<()> {
    machine::raise_file_limit();
    let runtime = Runtime::new()?;
    let ours = runtime.block_on(measure(arguments, Side::Tls))?;
    let theirs = arguments.common.peer(|| runtime.block_on(measure(arguments, Side::Apiserver)))?;
    let params = [
        ("watches", arguments.watches.into()),
        ("rate", arguments.rate.into()),
        ("seconds", arguments.seconds.into()),
    ];
    let mut found = Findings::new("selective", &params);
    let against = |name, unit, of: fn(&Delivery) -> f64, at_most| {
        let theirs = ("kube-apiserver", theirs.as_ref().map(of));
        Figure::new(name, of(&ours), unit, theirs, at_most)
    };
    found.figures = vec![
        against("processor an update", "µs", |it| it.processor_each, 1.0 / 8.0),
        against("delay of 99 in 100", "ms", |it| it.p99, 1.0 / 3.0),
        lost("watches lost", &ours),
    ];
    found.notes.push(note("ours", &ours));
    found.notes.extend(theirs.map(|it| note("kube-apiserver", &it)));
    found.show(arguments.common.output);
    Ok(())
}

async fn measure(arguments: &SelectiveArguments, side: Side) -> anyhow::Result<Delivery> {
    let watches = arguments.watches;
    let mut served = Served::start(side, watches, watches)?;
    let sees = Sees::Node { pods: watches as usize, step: 1 };
    let mut herd = Herd::new(&served, false, sees)?;
    herd.open(watches as usize).await?;
    herd.deliver(&mut served, arguments.rate, arguments.rate * arguments.seconds).await
}
