//! Several servers on one etcd: what a delivery costs, and what each server costs.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use clap::Args;
use tokio::runtime::Runtime;

use super::herd::{Delivery, Herd, Sees};
use super::machine::usage;
use super::place::Place;
use super::process::{Process, Served, Side};
use super::report::{Figure, Findings, number};
use super::{Common, fanout, machine};

/// Pods that the updates go round among.
const PODS: u32 = 1_000;

#[derive(Args)]
pub(crate) struct ReplicasArguments {
    /// The etcd to run; one built by the tests is in target/tools
    #[arg(long, default_value = "etcd", value_name = "PROGRAM")]
    etcd: PathBuf,
    /// How many servers: each number is measured, the first is what the last is compared to
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 3], value_name = "N,…",
        value_parser = clap::value_parser!(u32).range(1..=20))]
    servers: Vec<u32>,
    /// Watches, over all servers
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    watches: u32,
    /// Updates a second
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rate: u32,
    /// Length of each measurement
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    #[command(flatten)]
    common: Common,
}

/// What one number of servers did.
struct Outcome {
    deliveries: Vec<Delivery>,
    /// Resident bytes of each server, with its watches.
    resident: Vec<u64>,
    /// Processor seconds of etcd.
    etcd: f64,
}

impl Outcome {
    fn events(&self) -> u64 {
        self.deliveries.iter().map(|it| it.events).sum()
    }

    fn lost(&self) -> usize {
        self.deliveries.iter().map(|it| it.lost).sum()
    }

    /// Processor seconds of all servers.
    fn processor(&self) -> f64 {
        self.deliveries.iter().map(|it| it.processor_each * number(it.events) / 1e6).sum()
    }

    fn each(&self) -> f64 {
        self.processor() * 1e6 / number(self.events().max(1))
    }

    fn longest(&self, of: fn(&Delivery) -> f64) -> f64 {
        self.deliveries.iter().map(of).fold(0.0, f64::max)
    }

    fn note(&self, rate: u32) -> String {
        let servers = self.deliveries.len();
        let resident = self.resident.iter().map(|it| (it >> 20).to_string());
        format!(
            "{servers} servers: {} deliveries, {:.0} a second, {:.1} µs of processor each, p99 {:.1} ms, \
             {} watches lost; resident {} MiB; etcd {:.0} µs of processor an update at {rate} a second",
            self.events(),
            number(self.events()) / self.longest(|it| it.seconds),
            self.each(),
            self.longest(|it| it.p99),
            self.lost(),
            resident.collect::<Vec<_>>().join(", "),
            self.etcd * 1e6 / (f64::from(rate) * self.longest(|it| it.seconds)),
        )
    }
}

pub(super) fn run(arguments: &ReplicasArguments) -> anyhow::Result<()> {
    machine::raise_file_limit();
    let runtime = Runtime::new()?;
    let measured = arguments.servers.iter().map(|it| runtime.block_on(measure(arguments, *it)));
    let outcomes = measured.collect::<anyhow::Result<Vec<_>>>()?;
    let (Some(fewest), Some(most)) = (outcomes.first(), outcomes.last()) else {
        anyhow::bail!("no number of servers is named");
    };
    let lost = number(outcomes.iter().map(|it| it.lost() as u64).sum());
    let params = [
        ("watches", arguments.watches.into()),
        ("rate", arguments.rate.into()),
        ("seconds", arguments.seconds.into()),
        ("pods", PODS.into()),
    ];
    let mut found = Findings::new("replicas", &params);
    let peer = arguments.common.peer(|| runtime.block_on(peer(arguments)))?;
    found.figures = vec![
        Figure::new(
            "processor a delivery, fewest servers, TLS",
            fewest.each(),
            "µs",
            ("kube-apiserver", peer.as_ref().map(|it| it.processor_each)),
            0.5,
        ),
        Figure::new(
            "processor a delivery, most servers, TLS",
            most.each(),
            "µs",
            ("fewest servers", Some(fewest.each())),
            f64::INFINITY,
        ),
        Figure::new("watches lost", lost, "lost", ("limit", Some(1.0)), 0.0),
    ];
    found.notes = outcomes.iter().map(|it| it.note(arguments.rate)).collect();
    found.notes.extend(peer.map(|it| fanout::note("kube-apiserver", &it)));
    found.show(arguments.common.output);
    Ok(())
}

/// The peer with as many watches.
async fn peer(arguments: &ReplicasArguments) -> anyhow::Result<Delivery> {
    let mut served = Served::start(Side::Apiserver, PODS, 0)?;
    let mut herd = Herd::new(&served, false, Sees::Everything)?;
    herd.open(arguments.watches as usize).await?;
    herd.deliver(&mut served, arguments.rate, arguments.rate * arguments.seconds).await
}

async fn measure(arguments: &ReplicasArguments, count: u32) -> anyhow::Result<Outcome> {
    let place = Place::new(&std::env::temp_dir())?;
    let (etcd, url) = start_etcd(arguments, &place)?;
    let (mut servers, mut herds) = (Vec::new(), Vec::new());
    for number in 0..count {
        let mut more = vec![format!("--etcd={url}")];
        more.extend((number > 0).then(|| "--join".to_owned()));
        servers.push(Served::start_with(Side::Tls, PODS, 0, &more)?);
    }
    for (at, served) in servers.iter().enumerate() {
        let mut herd = Herd::new(served, false, Sees::Everything)?;
        let rest = arguments.watches as usize % count as usize;
        herd.open((arguments.watches / count) as usize + usize::from(at < rest)).await?;
        herds.push(herd);
    }
    let before = usage(etcd.0.id()).processor;
    let updates = arguments.rate * arguments.seconds;
    let deliveries = Herd::deliver_all(&herds, &mut servers, arguments.rate, updates).await?;
    let resident = servers.iter().map(|it| it.usage().resident).collect();
    let etcd = usage(etcd.0.id()).processor - before;
    Ok(Outcome { deliveries, resident, etcd })
}

/// A member on free ports, and where it is. The servers wait until it answers.
fn start_etcd(arguments: &ReplicasArguments, place: &Place) -> anyhow::Result<(Process, String)> {
    let port = || anyhow::Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port());
    let (client, peer) = (port()?, port()?);
    let (url, peers) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let child = Command::new(&arguments.etcd)
        .arg("--data-dir")
        .arg(place.path("etcd"))
        .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
        .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
        .args(["--initial-cluster", &format!("default={peers}"), "--log-level", "error"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let program = arguments.etcd.display();
    let child = child.with_context(|| format!("cannot run {program}: name an etcd with --etcd"))?;
    Ok((Process(child), url))
}
