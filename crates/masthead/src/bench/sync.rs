//! The first sync of all pods: processor time and memory of the client, against kube-rs and client-go.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use clap::Args;
use serde::Deserialize;

use super::place::Place;
use super::process::{Served, Side};
use super::report::{Figure, Findings, median, number};
use super::{Common, peers};

#[derive(Args)]
pub(crate) struct SyncArguments {
    /// Pods at the server
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1_000..=200_000))]
    pods: u32,
    /// Rounds; the median of each side counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    #[command(flatten)]
    common: Common,
}

/// What one sync took: seconds and bytes.
#[derive(Clone, Copy, Deserialize)]
pub(super) struct Cost {
    pub(super) objects: u64,
    pub(super) wall: f64,
    processor: f64,
    resident: f64,
    peak: f64,
}

/// Everybody who syncs from our server, in the clear. Ours and client-go stream unless told otherwise.
const CLIENTS: [(&str, Client); 8] = [
    ("raw", Client::Ours("raw", true)),
    ("raw, in pages", Client::Ours("raw", false)),
    ("compact", Client::Ours("compact", true)),
    ("typed", Client::Ours("typed", true)),
    ("kube-rs", Client::KubeRs("list")),
    ("kube-rs, streamed", Client::KubeRs("stream")),
    ("client-go", Client::Go(JSON, true)),
    ("client-go, listed", Client::Go(JSON, false)),
];

/// Those who sync from kube-apiserver, over TLS: only there is protobuf to be had.
const AT_PEER: [(&str, Client); 5] = [
    (FROM_PEER, Client::Ours("raw", true)),
    ("client-go, from kube-apiserver", Client::Go(JSON, true)),
    ("client-go, listed, from kube-apiserver", Client::Go(JSON, false)),
    ("client-go, protobuf", Client::Go(PROTOBUF, true)),
    ("client-go, protobuf, listed", Client::Go(PROTOBUF, false)),
];

const FROM_PEER: &str = "raw, from kube-apiserver";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[derive(Clone, Copy)]
enum Client {
    Ours(&'static str, bool),
    KubeRs(&'static str),
    /// In this encoding, streamed or listed.
    Go(&'static str, bool),
}

impl Client {
    fn is_peer(self) -> bool {
        !matches!(self, Self::Ours(..))
    }

    fn command(self, address: &str, token: &str, ca: Option<&Path>) -> anyhow::Result<Command> {
        Ok(match self {
            Self::Ours(representation, stream) => {
                let listed = if stream { "stream" } else { "pages" };
                let mut command = peers::ours(address, token, representation, listed)?;
                if let Some(ca) = ca {
                    command.arg("--ca").arg(ca);
                }
                command
            }
            Self::KubeRs(how) => {
                let mut command = Command::new(peers::kube_rs()?);
                command.args([address, token, how]);
                command
            }
            Self::Go(encoding, stream) => {
                let mut command = Command::new(peers::client_go_program()?);
                command.env("KUBE_FEATURE_WatchListClient", stream.to_string());
                command.args(["-sync", address, "-token", token, "-encoding", encoding]);
                if let Some(ca) = ca {
                    command.arg("-ca").arg(ca);
                }
                command
            }
        })
    }

    fn run(self, served: &Served, place: &Place) -> anyhow::Result<Cost> {
        let (address, token) = (served.hello.address.to_string(), &served.hello.token);
        let file = place.path("ca.crt");
        let ca = match &served.hello.ca {
            Some(text) => {
                std::fs::write(&file, text)?;
                Some(file.as_path())
            }
            None => None,
        };
        finish(self.command(&address, token, ca)?)
    }
}

/// Runs a client to its end; gives what it says it took.
pub(super) fn finish(mut command: Command) -> anyhow::Result<Cost> {
    let output = command.stderr(std::process::Stdio::inherit()).output()?;
    anyhow::ensure!(output.status.success(), "a client ended with {}", output.status);
    serde_json::from_slice(&output.stdout).context("a client says something else than figures")
}

pub(super) fn run(arguments: &SyncArguments) -> anyhow::Result<()> {
    let place = Place::new(&std::env::temp_dir())?;
    let served = Served::start(Side::Plain, arguments.pods, 0)?;
    let peer = arguments.common.peer(|| Served::start(Side::Apiserver, arguments.pods, 0))?;
    let at_peer = peer.iter().flat_map(|peer| AT_PEER.map(|(name, client)| (name, client, peer)));
    let clients: Vec<_> = CLIENTS
        .iter()
        .filter(|(_, client)| arguments.common.peers || !client.is_peer())
        .map(|&(name, client)| (name, client, &served))
        .chain(at_peer)
        .collect();
    let mut costs: BTreeMap<&str, Vec<Cost>> = BTreeMap::new();
    for _ in 0..arguments.rounds {
        // One after the other: what the machine does meanwhile hits all.
        for &(name, client, served) in &clients {
            let cost = client.run(served, &place)?;
            anyhow::ensure!(
                cost.objects == u64::from(arguments.pods),
                "{name} has {}",
                cost.objects
            );
            costs.entry(name).or_default().push(cost);
        }
    }
    let costs = costs.into_iter().map(|(name, costs)| (name, middle(&costs))).collect();
    let params = [("pods", arguments.pods.into()), ("rounds", arguments.rounds.into())];
    let mut found = Findings::new("sync", &params);
    let note = |(name, it): (&&str, &Cost)| {
        format!(
            "{name}: {:.2} s, {:.2} s of processor, {:.0} MB after, {:.0} MB at the most",
            it.wall,
            it.processor,
            it.resident / 1e6,
            it.peak / 1e6
        )
    };
    (found.figures, found.notes) = (figures(&costs), costs.iter().map(note).collect());
    found.show(arguments.common.output);
    Ok(())
}

/// The median of each figure.
fn middle(costs: &[Cost]) -> Cost {
    let of = |figure: fn(&Cost) -> f64| median(costs.iter().map(figure).collect());
    Cost {
        objects: costs[0].objects,
        wall: of(|it| it.wall),
        processor: of(|it| it.processor),
        resident: of(|it| it.resident),
        peak: of(|it| it.peak),
    }
}

fn figures(costs: &BTreeMap<&str, Cost>) -> Vec<Figure> {
    let of = |name: &str, figure: fn(&Cost) -> f64| costs.get(name).map(figure);
    let processor: fn(&Cost) -> f64 = |it| it.processor * 1e3;
    let resident: fn(&Cost) -> f64 = |it| it.resident / 1e6;
    let against = |label, name, figure: fn(&Cost) -> f64, unit, peer, at_most: f64| {
        let ours = of(name, figure).unwrap_or(number(0));
        Figure::new(label, ours, unit, (peer, of(peer, figure)), at_most)
    };
    let mut figures = vec![
        against("processor, raw", "raw", processor, "ms", "kube-rs", 1.0 / 5.0),
        against("processor, raw", "raw", processor, "ms", "client-go", 1.0 / 8.0),
        against("processor, raw", "raw", processor, "ms", "client-go, listed", 1.0 / 8.0),
        against("memory after, raw", "raw", resident, "MB", "kube-rs", 1.0 / 5.0),
        against("memory after, raw", "raw", resident, "MB", "client-go", 0.6),
        against("memory after, compact", "compact", resident, "MB", "kube-rs", 1.0 / 20.0),
        against("memory after, compact", "compact", resident, "MB", "client-go", 1.0 / 8.0),
        against("processor, typed", "typed", processor, "ms", "kube-rs", 1.0),
        against("memory after, typed", "typed", resident, "MB", "kube-rs", 1.0),
    ];
    let (protobuf, listed) = ("client-go, protobuf", "client-go, protobuf, listed");
    let compact = "memory after, compact";
    figures.push(against(compact, "compact", resident, "MB", protobuf, 1.0 / 8.0));
    for (theirs, peer, at_most) in [
        (protobuf, protobuf, 1.0 / 2.0),
        (listed, listed, 1.0 / 2.0),
        ("client-go, from kube-apiserver", "client-go", 1.0 / 8.0),
        ("client-go, listed, from kube-apiserver", "client-go, listed", 1.0 / 8.0),
    ] {
        let (Some(ours), theirs) = (of(FROM_PEER, processor), of(theirs, processor)) else {
            continue;
        };
        let name = "processor, raw, from kube-apiserver";
        figures.push(Figure::new(name, ours, "ms", (peer, theirs), at_most));
    }
    for (label, name) in [
        ("peak memory, raw", "raw"),
        ("peak memory, raw, in pages", "raw, in pages"),
        ("peak memory, compact", "compact"),
    ] {
        let peak = of(name, |it| it.peak / 1e6).unwrap_or(number(0));
        figures.push(Figure::new(label, peak, "MB", ("memory after", of(name, resident)), 1.3));
    }
    figures
}
