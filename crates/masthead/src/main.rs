//! The `masthead` command.

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

mod bench;
mod client;
mod configuration;
mod memory;
mod serve;
mod sync;
mod watch;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One upstream list-and-watch, any number of readers kept in sync.
#[derive(Parser)]
#[command(name = "masthead", version, arg_required_else_help = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the Kubernetes API: list, watch and CRUD from a watch cache
    Serve(Box<serve::ServeArguments>),
    /// Sync caches as a controller would, and show how it goes and what is in the way
    Sync(Box<sync::SyncArguments>),
    /// Print objects and every change of them, across restarts and lost connections
    Watch(Box<watch::WatchArguments>),
    /// Measure this machine: every figure is a ratio to a peer or a floor from the same run
    #[command(subcommand, arg_required_else_help = true)]
    Bench(bench::Scenario),
}

impl Command {
    /// What others start must not inherit the setting: a benchmark also runs peers.
    fn with_its_memory(self) -> Self {
        let starts_peers = matches!(&self, Self::Bench(scenario) if !scenario.is_child());
        memory::prefer_small_pages(!starts_peers);
        self
    }
}

fn main() -> ExitCode {
    let done = arguments().and_then(|arguments| match arguments.command.with_its_memory() {
        Command::Serve(arguments) => serve::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Sync(arguments) => sync::run(&arguments),
        Command::Watch(arguments) => watch::run(&arguments),
        Command::Bench(scenario) => bench::run(scenario).map(|()| ExitCode::SUCCESS),
    });
    done.unwrap_or_else(|error| match error.downcast::<clap::Error>() {
        Ok(usage) => usage.exit(),
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    })
}

/// Flags count more than the environment, and that more than a configuration file.
fn arguments() -> anyhow::Result<Arguments> {
    let command = configuration::apply(Arguments::command(), std::env::args_os())?;
    Ok(Arguments::from_arg_matches(&command.get_matches())?)
}

#[expect(clippy::print_stderr, reason = "this is the one place that reports a failed command")]
fn complain(error: &anyhow::Error) {
    eprintln!("masthead: {error:#}");
}
