//! Runs one hot path, the same way every time, for its instructions and allocations to be counted.
//!
//! `cargo xtask instructions` runs each path under callgrind, counts what happens inside [`count`], and
//! compares it with `baseline.json`. A path prints how often it allocated; without an argument the names of the
//! paths are printed.
//!
//! **Invariant:** one thread, no clock, no random hasher: a path executes the same instructions in every run.

use std::hint::black_box;
use std::process::ExitCode;

mod paths;
mod pods;

fn main() -> ExitCode {
    let Some(asked) = std::env::args().nth(1) else {
        names();
        return ExitCode::SUCCESS;
    };
    match paths::ALL.iter().find(|(name, _)| *name == asked) {
        Some((_, run)) => {
            run();
            ExitCode::SUCCESS
        }
        None => ExitCode::FAILURE,
    }
}

#[expect(clippy::print_stdout, reason = "xtask reads the names here")]
fn names() {
    for (name, _) in paths::ALL {
        println!("{name}");
    }
}

/// The part of a path that is counted.
#[expect(clippy::print_stdout, reason = "xtask reads the count here")]
fn count(mut work: impl FnMut()) {
    let seen = allocation_counter::measure(|| measured(&mut work));
    println!("{}", seen.count_total);
}

/// Callgrind collects from its beginning to its end, and knows it by its name.
#[inline(never)]
fn measured(work: &mut dyn FnMut()) {
    work();
    // Something to come back for: a jump into the work would end the collecting at once.
    black_box(());
}
