//! The `masthead` command.

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

mod bench;
mod configuration;
mod serve;

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
    /// Measure this machine: every figure is a ratio to a peer or a floor from the same run
    #[command(subcommand, arg_required_else_help = true)]
    Bench(bench::Scenario),
}

fn main() -> ExitCode {
    let done = arguments().and_then(|arguments| match arguments.command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Bench(scenario) => bench::run(scenario),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
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
