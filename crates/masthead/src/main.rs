//! The `masthead` command.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench;

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
    /// Measure this machine: every figure is a ratio to a peer or a floor from the same run
    #[command(subcommand, arg_required_else_help = true)]
    Bench(bench::Scenario),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Bench(scenario) => bench::run(scenario),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "this is the one place that reports a failed command")]
fn complain(error: &anyhow::Error) {
    eprintln!("masthead: {error:#}");
}
