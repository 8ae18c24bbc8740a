//! `masthead bench`: scenarios that print ratios.

use clap::{Args, Subcommand, ValueEnum};

mod cache;
mod machine;
mod peers;
mod pods;
mod report;
mod store;

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

/// Runs a scenario. A target that was missed is shown as such and is no failure of the command.
pub(crate) fn run(scenario: Scenario) -> anyhow::Result<()> {
    match scenario {
        Scenario::Cache(arguments) => cache::run(&arguments),
        Scenario::Store(arguments) => store::run(&arguments),
    }
}
