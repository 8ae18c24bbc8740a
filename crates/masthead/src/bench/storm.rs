//! Many watches that come at once, each to be told what it has missed, or everything: as after a
//! server's restart.

use clap::Args;
use tokio::runtime::Runtime;

use super::herd::{Delivery, Herd, Sees};
use super::process::{Served, Side};
use super::report::{Figure, Findings};
use super::{Common, fanout, machine};

/// Pods, and changes that each watch has missed.
const PODS: u32 = 100;

#[derive(Args)]
pub(crate) struct StormArguments {
    /// Watches that come at once
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    watches: u32,
    #[command(flatten)]
    common: Common,
}

/// What a watch asks for when it comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// What happened since it left.
    Missed,
    /// Everything there is, as a stream.
    Everything,
}

pub(super) fn run(arguments: &StormArguments) -> anyhow::Result<()> {
    machine::raise_file_limit();
    let runtime = Runtime::new()?;
    let params = [("watches", arguments.watches.into()), ("pods", PODS.into())];
    let mut found = Findings::new("storm", &params);
    for (asks, to_floor, to_peer) in [
        (Asks::Missed, "processor a missed event, plain", "processor a missed event, TLS"),
        (Asks::Everything, "processor an initial event, plain", "processor an initial event, TLS"),
    ] {
        let measure = |side| runtime.block_on(measure(side, arguments.watches as usize, asks));
        let (floor, plain) = (measure(Side::Bare)?, measure(Side::Plain)?);
        let tls = measure(Side::Tls)?;
        let peer = arguments.common.peer(|| measure(Side::Apiserver))?;
        let cost = |it: &Delivery| it.processor_each;
        found.figures.extend([
            Figure::new(to_floor, cost(&plain), "µs", ("bare writes", Some(cost(&floor))), 1.2),
            Figure::new(
                to_peer,
                cost(&tls),
                "µs",
                ("kube-apiserver", peer.as_ref().map(cost)),
                0.5,
            ),
        ]);
        for (name, it) in [("bare", Some(floor)), ("plain", Some(plain)), ("TLS", Some(tls))]
            .into_iter()
            .chain([("kube-apiserver", peer)])
        {
            let name = format!("{}, {name}", if asks == Asks::Missed { "missed" } else { "all" });
            found.notes.extend(it.map(|it| fanout::note(&name, &it)));
        }
    }
    found.show(arguments.common.output);
    Ok(())
}

async fn measure(side: Side, watches: usize, asks: Asks) -> anyhow::Result<Delivery> {
    let mut served = Served::start(side, PODS, 0)?;
    // The floor has nothing to list: it tells what was changed in both cases.
    if asks == Asks::Missed || side == Side::Bare {
        tokio::task::block_in_place(|| served.update(1_000, PODS))?;
    }
    let initial = asks == Asks::Everything && side != Side::Bare;
    let mut herd = Herd::new(&served, false, Sees::Everything)?;
    herd.catch_up(&served, watches, PODS as usize, initial).await
}
