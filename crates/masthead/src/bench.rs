//! `masthead bench`: scenarios that print ratios.

use clap::{Args, Subcommand, ValueEnum};

mod cache;
mod child;
mod controller;
mod fanout;
mod fed;
mod growth;
mod herd;
mod link;
mod list;
mod machine;
mod mixed;
mod peers;
mod place;
mod pods;
mod process;
mod proxy;
mod queue;
mod relist;
mod replicas;
mod report;
mod resync;
mod scale;
mod selective;
mod serve;
mod store;
mod storm;
mod sync;
mod wire;

/// What to measure.
#[derive(Subcommand)]
pub(crate) enum Scenario {
    /// The cache alone: memory, updates, reads, cursors, against client-go's indexer and informer
    #[command(after_help = "Examples:
  masthead bench cache                     100,000 pods
  masthead bench cache --pods 10000        a quick look
  masthead bench cache --peers             beside client-go
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
  masthead bench fanout                    everything: some minutes
  masthead bench fanout --peers --part cost
                                           beside kube-apiserver
  masthead bench fanout --part memory      only what a waiting watch costs
  masthead bench fanout --part cost --watches 100
  masthead bench fanout -o json | jq .ratio")]
    Fanout(fanout::FanoutArguments),
    /// A list of 10,000 pods: the server's processor time, against bare writes of the same bytes
    #[command(after_help = "Examples:
  masthead bench list                      10,000 pods over HTTP/1.1 and HTTP/2
  masthead bench list --peers              beside kube-apiserver
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
    /// Many watches, each of one node's pods: processor time and delay, against kube-apiserver
    #[command(after_help = "Examples:
  masthead bench selective --peers         5,000 watches, 500 updates a second
  masthead bench selective --watches 1000 --rate 100 --seconds 5
  masthead bench selective -o json | jq .ours")]
    Selective(selective::SelectiveArguments),
    /// The first sync of an informer: processor time and memory, against kube-rs and client-go
    #[command(after_help = "Examples:
  masthead bench sync --peers              10,000 pods, beside kube-rs and client-go
  masthead bench sync --pods 50000
  masthead bench sync -o json | jq .ours")]
    Sync(sync::SyncArguments),
    /// A list that has to be read again: processor time of the client, against client-go
    #[command(after_help = "Examples:
  masthead bench relist --peers            10,000 pods, 100 of them changed
  masthead bench relist -o json | jq .ratio")]
    Relist(relist::RelistArguments),
    /// A sync over a slow link where requests are cut after a time, against client-go
    #[command(after_help = "Examples:
  masthead bench link --peers              200 pods at 200 KB/s, cut after 6 s
  masthead bench link --pods 1000 --bytes 100000
  masthead bench link -o json | jq .ratio")]
    Link(link::LinkArguments),
    /// Handlers: a resync to one, a change on its way to four, against client-go
    #[command(after_help = "Examples:
  masthead bench resync --peers            beside client-go
  masthead bench resync -o json | jq .ratio")]
    Resync(resync::ResyncArguments),
    /// Watches that come at once and catch up, against bare writes and kube-apiserver
    #[command(after_help = "Examples:
  masthead bench storm --peers             1,000 watches, 100 events each
  masthead bench storm --watches 5000
  masthead bench storm -o json | jq .ratio")]
    Storm(storm::StormArguments),
    /// Lists, watches and writes at the same time, against kube-apiserver
    #[command(after_help = "Examples:
  masthead bench mixed --peers
  masthead bench mixed --watches 1000 --rate 100 --seconds 60
  masthead bench mixed -o json | jq .ratio")]
    Mixed(mixed::MixedArguments),
    /// How costs grow with objects, watches, the size of events and the rate of updates
    #[command(after_help = "Examples:
  masthead bench growth                    up to 100,000 objects, 50,000 watches, 64 KB, 1,000/s
  masthead bench growth --quick
  masthead bench growth -o json | jq .growth")]
    Growth(growth::GrowthArguments),
    /// The work queue and the way to a reconcile, against client-go's queue
    #[command(after_help = "Examples:
  masthead bench queue --peers             beside client-go
  masthead bench queue -o json | jq .ratio")]
    Queue(queue::QueueArguments),
    /// The same small controller three times: lines, time to converge, processor time and memory
    #[command(after_help = "Examples:
  masthead bench controller --peers        10,000 objects, beside kube-rs and controller-runtime
  masthead bench controller --objects 500
  masthead bench controller -o json | jq .ratio")]
    Controller(controller::ControllerArguments),
    /// The other side of a measurement
    #[command(hide = true)]
    ServeChild(child::ChildArguments),
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

/// What every scenario takes.
#[derive(Clone, Copy, Args)]
pub(crate) struct Common {
    /// Also the peers, in the same run: built on demand from a checkout with the cargo and Go on PATH
    /// (kube-apiserver takes some ten minutes, once)
    #[arg(long)]
    peers: bool,
    /// How to show the figures
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

impl Common {
    /// Measures a peer if peers are wanted.
    fn peer<T>(self, measure: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<Option<T>> {
        if self.peers { measure().map(Some) } else { Ok(None) }
    }
}

#[derive(Args)]
pub(crate) struct CacheArguments {
    /// Pods in the cache
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(10_000..=1_000_000))]
    pub(crate) pods: u32,
    /// Rounds of each measurement; the best counts, for us and for the peers
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) rounds: u32,
    #[command(flatten)]
    pub(crate) common: Common,
}

impl Scenario {
    /// Returns `true` for one side of a measurement, which runs in a process of its own.
    pub(crate) fn is_child(&self) -> bool {
        matches!(self, Self::ServeChild(_) | Self::ControllerChild)
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
        Scenario::Selective(arguments) => selective::run(&arguments),
        Scenario::Sync(arguments) => sync::run(&arguments),
        Scenario::Relist(arguments) => relist::run(&arguments),
        Scenario::Link(arguments) => link::run(&arguments),
        Scenario::Resync(arguments) => resync::run(&arguments),
        Scenario::Storm(arguments) => storm::run(&arguments),
        Scenario::Mixed(arguments) => mixed::run(&arguments),
        Scenario::Growth(arguments) => growth::run(&arguments),
        Scenario::Queue(arguments) => queue::run(&arguments),
        Scenario::Controller(arguments) => controller::run(&arguments),
        Scenario::ControllerChild => controller::child(),
        Scenario::ServeChild(arguments) => child::run(&arguments),
    }
}
