//! `masthead bench`: scenarios that print ratios.

use clap::{Args, Subcommand, ValueEnum};

mod cache;
mod child;
mod controller;
mod fanout;
mod herd;
mod list;
mod machine;
mod peers;
mod place;
mod pods;
mod process;
mod queue;
mod replicas;
mod report;
mod scale;
mod serve;
mod store;
mod sync;
mod wire;

/// What to measure.
#[derive(Subcommand)]
pub(crate) enum Scenario {
    /// The cache alone: memory, updates, reads, cursors, against client-go's indexer and informer
    #[command(after_help = "Examples:
  masthead bench cache                     100,000 pods, peers built with the Go on PATH
  masthead bench cache --pods 10000        a quick look
  masthead bench cache --peers skip        without client-go
  masthead bench cache -o json | jq .ratio")]
    Cache(CacheArguments),
    /// The embedded store alone: durable creations and reading back, against bare files
    #[command(after_help = "Examples:
  masthead bench store                     100,000 objects in the system's directory for temporary files
  masthead bench store --dir /var/lib      on the disk that counts
  masthead bench store -o json | jq .ratio")]
    Store(store::StoreArguments),
    /// One update to many watches: processor time, delay and memory, against bare sockets
    #[command(after_help = "Examples:
  masthead bench fanout                    everything: two minutes
  masthead bench fanout --part memory      only what a waiting watch costs
  masthead bench fanout --part cost --watches 100
  masthead bench fanout -o json | jq .ratio")]
    Fanout(fanout::FanoutArguments),
    /// A list of 10,000 pods: the server's processor time, against bare writes of the same bytes
    #[command(after_help = "Examples:
  masthead bench list                      10,000 pods over HTTP/1.1 and HTTP/2
  masthead bench list --pods 100000 --lists 2
  masthead bench list -o json | jq .ratio")]
    List(list::ListArguments),
    /// `masthead serve` with its store on disk: start, memory, creations over HTTPS
    #[command(after_help = "Examples:
  masthead bench serve                     starts with nothing, 10,000 and 100,000 pods
  masthead bench serve --pods 10000 --seconds 3
  masthead bench serve -o json | jq .ratio")]
    Serve(serve::ServeArguments),
    /// Several servers on one etcd: deliveries, processor time and memory
    #[command(after_help = "Examples:
  masthead bench replicas                  with the etcd on PATH
  masthead bench replicas --etcd target/tools/etcd --servers 1,10
  masthead bench replicas -o json | jq .ours")]
    Replicas(replicas::ReplicasArguments),
    /// As many watches as a large cluster has, each of one node's pods
    #[command(after_help = "Examples:
  masthead bench scale                     20,000 watches over HTTP/1.1, 100,000 over HTTP/2: minutes
  masthead bench scale --watches 2000 --streams 0 --seconds 10
  masthead bench scale -o json | jq .ratio")]
    Scale(scale::ScaleArguments),
    /// The first sync of an informer: processor time and memory, against kube-rs and client-go
    #[command(after_help = "Examples:
  masthead bench sync                      10,000 pods, peers built with the cargo and Go on PATH
  masthead bench sync --pods 50000
  masthead bench sync --peers skip -o json | jq .ours")]
    Sync(sync::SyncArguments),
    /// The work queue and the way to a reconcile, against client-go's queue
    #[command(after_help = "Examples:
  masthead bench queue                     the peer built with the Go on PATH
  masthead bench queue --peers skip
  masthead bench queue -o json | jq .ratio")]
    Queue(queue::QueueArguments),
    /// The same small controller three times: lines, time to converge, processor time and memory
    #[command(after_help = "Examples:
  masthead bench controller                10,000 objects, peers built with the cargo and Go on PATH
  masthead bench controller --objects 500
  masthead bench controller -o json | jq .ratio")]
    Controller(controller::ControllerArguments),
    /// The other side of a measurement
    #[command(hide = true)]
    ServeChild(child::ChildArguments),
    /// One client of a measurement
    #[command(hide = true)]
    SyncChild(sync::SyncChildArguments),
    /// One controller of a measurement
    #[command(hide = true)]
    ControllerChild,
}

/// How to show the figures.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// A table
    Table,
    /// One JSON object: scenario, params, ours, floor, peers, ratio
    Json,
}

/// Whether to measure the peers.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peers {
    /// Build and run them; say so if that fails
    Build,
    /// Leave them out
    Skip,
}

#[derive(Args)]
pub(crate) struct CacheArguments {
    /// Pods in the cache
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(10_000..=1_000_000))]
    pub(crate) pods: u32,
    /// Rounds of each measurement; the best counts, for us and for the peers
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) rounds: u32,
    /// client-go's figures in the same run
    #[arg(long, value_enum, default_value_t = Peers::Build)]
    pub(crate) peers: Peers,
    /// How to show the figures
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

impl Scenario {
    /// Is it one side of a measurement, in a process of its own?
    pub(crate) fn is_child(&self) -> bool {
        matches!(self, Self::ServeChild(_) | Self::SyncChild(_) | Self::ControllerChild)
    }
}

/// Runs a scenario. A target that was missed is shown as such and is no failure of the command.
pub(crate) fn run(scenario: Scenario) -> anyhow::Result<()> {
    match scenario {
        Scenario::Cache(arguments) => cache::run(&arguments),
        Scenario::Store(arguments) => store::run(&arguments),
        Scenario::Fanout(arguments) => fanout::run(&arguments),
        Scenario::List(arguments) => list::run(&arguments),
        Scenario::Serve(arguments) => serve::run(&arguments),
        Scenario::Replicas(arguments) => replicas::run(&arguments),
        Scenario::Scale(arguments) => scale::run(&arguments),
        Scenario::Sync(arguments) => sync::run(&arguments),
        Scenario::Queue(arguments) => queue::run(&arguments),
        Scenario::Controller(arguments) => controller::run(&arguments),
        Scenario::ControllerChild => controller::child(),
        Scenario::ServeChild(arguments) => child::run(&arguments),
        Scenario::SyncChild(arguments) => sync::child(&arguments),
    }
}
