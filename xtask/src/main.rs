//! `cargo xtask`: the one entry point for developers and CI.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;

use clap::Parser;

mod bench;
mod cluster;
mod instructions;
mod kubernetes;
mod tidy;

const HELP: &str = "\
cargo xtask test        everything that CI runs: manifests, papers, format, lints, docs, tests, planted bugs,
                        interleavings, instruction counts
cargo xtask quick       manifests, papers, format, lints and the plain tests
cargo xtask tidy        rules of the contract have tests, rooms import downwards, links and lines of papers
cargo xtask planted     planted bugs only: each must be caught
cargo xtask shuttle     interleavings only
cargo xtask instructions [--bless]
                        what the hot paths execute, against bench/instructions/baseline.json
cargo xtask cluster up [MASTHEAD]
                        three etcd members, three servers and a balancer on this machine
cargo xtask bench [SCENARIO…] [--peers] [--quick] [--report]
                        figures beside the floor and the peers; see cargo xtask bench --help
cargo xtask deny        licences and duplicates, if cargo-deny is installed
";

/// Figures beside the floor and the peers, several rounds, with their spread.
#[derive(Parser)]
#[command(
    name = "cargo xtask bench",
    after_help = "Examples:
  cargo xtask bench --quick                everything once, without peers: minutes
  cargo xtask bench fanout list --peers    some of it, beside the peers
  cargo xtask bench --peers --report       all of it, into docs/performance.md: an hour or two
  cargo xtask bench list --peers --against docs/performance/figures.json"
)]
struct Bench {
    #[command(flatten)]
    arguments: bench::Arguments,
}

/// One command of the gate.
struct Step {
    what: &'static str,
    arguments: &'static [&'static str],
    /// The `--cfg` flags that the workspace's own crates are compiled with.
    cfgs: &'static [&'static str],
}

const fn step(what: &'static str, arguments: &'static [&'static str]) -> Step {
    Step { what, arguments, cfgs: &[] }
}

const QUICK: [Step; 3] = [
    step("format", &["fmt", "--all", "--check"]),
    step(
        "lints",
        &["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"],
    ),
    step("tests", &["test", "--workspace", "--all-targets", "--locked"]),
];

const REST: [Step; 2] = [
    step("doctests", &["test", "--workspace", "--doc", "--locked"]),
    step("docs", &["doc", "--workspace", "--no-deps", "--locked"]),
];

/// The production code with its planted bugs switched on one at a time: tests named `planted_…` show
/// that each is caught. The whole workspace is selected, so that dependencies have the features that the
/// plain tests built them with and need not be built again.
const PLANTED: Step = Step {
    what: "planted bugs",
    arguments: &[
        "test",
        "--workspace",
        "--lib",
        "--test",
        "model",
        "--test",
        "machine",
        "--test",
        "informer",
        "--test",
        "queue",
        "--test",
        "controller",
        "--locked",
        "planted_",
        "--",
        "--nocapture",
    ],
    cfgs: &["planted"],
};

/// The locks, atomics and wakers of the cache and of the work queue swapped for shuttle's.
const SHUTTLE: Step = Step {
    what: "interleavings",
    arguments: &["test", "--workspace", "--test", "interleavings", "--locked"],
    cfgs: &["planted", "shuttle"],
};

fn main() -> ExitCode {
    let task = env::args().nth(1);
    let done = match task.as_deref() {
        Some("test") => {
            manifests()
                && tidy()
                && run(QUICK.iter().chain(&REST).chain([&PLANTED, &SHUTTLE]))
                && instructions(false)
                && deny()
        }
        Some("quick") => manifests() && tidy() && run(&QUICK),
        Some("tidy") => tidy(),
        Some("planted") => run([&PLANTED]),
        Some("shuttle") => run([&SHUTTLE]),
        Some("instructions") => instructions(env::args().nth(2).as_deref() == Some("--bless")),
        Some("deny") => deny(),
        Some("cluster") if env::args().nth(2).as_deref() == Some("up") => {
            let done = cluster::up(env::args_os().nth(3).map(Into::into));
            if let Err(error) = &done {
                say(&format!("the cluster is not up: {error}"));
            }
            done.is_ok()
        }
        Some("bench") => {
            let Bench { arguments } = Bench::parse_from(env::args_os().skip(1));
            let done = bench::run(&arguments);
            if let Err(error) = &done {
                say(&format!("not measured: {error:#}"));
            }
            done.is_ok()
        }
        _ => {
            say(HELP);
            task.is_none()
        }
    };
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs steps in order until one fails.
fn run<'a>(steps: impl IntoIterator<Item = &'a Step>) -> bool {
    steps.into_iter().all(|step| {
        say(&format!("==> {}: cargo {}", step.what, step.arguments.join(" ")));
        let start = Instant::now();
        let done = cargo(step).status().is_ok_and(|status| status.success());
        let word = if done { "done" } else { "FAILED" };
        say(&format!("<== {}: {word} after {} s", step.what, start.elapsed().as_secs()));
        done
    })
}

fn cargo(step: &Step) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(step.arguments).env("RUSTDOCFLAGS", "--deny warnings");
    // A failing property prints its input; a trace of the runner would bury it.
    command.env("RUST_BACKTRACE", "0").env("SHUTTLE_SILENCE_WARNINGS", "1");
    if !step.cfgs.is_empty() {
        command.env("RUSTC_WORKSPACE_WRAPPER", wrapper(step.cfgs));
    }
    command
}

/// A program that runs rustc with `--cfg` flags for the workspace's own crates. Cargo keeps what they
/// become apart by the wrapper's path, and dependencies stay as they were built for the plain tests.
/// With `RUSTFLAGS` all of them would be built once more.
fn wrapper(cfgs: &[&str]) -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let folder = target.join("wrappers");
    let path = folder.join(cfgs.join("-"));
    let flags: Vec<_> = cfgs.iter().map(|cfg| format!("--cfg {cfg}")).collect();
    let script = format!("#!/bin/sh\nexec \"$@\" {}\n", flags.join(" "));
    // Cargo asks rustc everything again if the file is newer than before.
    if fs::read_to_string(&path).is_ok_and(|known| known == script) {
        return path.canonicalize().expect("was just read");
    }
    fs::create_dir_all(&folder).expect("the target directory can be written");
    fs::write(&path, script).expect("the target directory can be written");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&path, executable).expect("was just written");
    path.canonicalize().expect("was just written")
}

/// Rules, rooms and papers hold together.
fn tidy() -> bool {
    say("==> tidy: rules, rooms and papers hold together");
    let done = tidy::run();
    if let Err(findings) = &done {
        say(findings);
    }
    say(&format!("<== tidy: {}", if done.is_ok() { "done" } else { "FAILED" }));
    done.is_ok()
}

/// The version of Kubernetes that `k8s-openapi` is built for, in the manifests.
fn manifests() -> bool {
    say("==> manifests: libraries leave the version of Kubernetes to binaries");
    let done = kubernetes::check();
    if let Err(error) = &done {
        say(&format!("{error:#}"));
    }
    say(&format!("<== manifests: {}", if done.is_ok() { "done" } else { "FAILED" }));
    done.is_ok()
}

/// The hot paths under callgrind.
fn instructions(bless: bool) -> bool {
    say("==> instructions: the hot paths under callgrind");
    let start = Instant::now();
    let done = instructions::run(bless);
    if let Err(error) = &done {
        say(error);
    }
    let word = if done.is_ok() { "done" } else { "FAILED" };
    say(&format!("<== instructions: {word} after {} s", start.elapsed().as_secs()));
    done.is_ok()
}

/// Licences, duplicates and sources. Advisories need the network and are left to `cargo deny check`.
fn deny() -> bool {
    let mut check = Command::new("cargo");
    check.args(["deny", "--offline", "--locked", "check", "licenses", "bans", "sources"]);
    let installed = Command::new("cargo").args(["deny", "--version"]).output();
    if !installed.is_ok_and(|output| output.status.success()) {
        say(
            "==> licences: skipped, cargo-deny is not installed (cargo install --locked cargo-deny)",
        );
        return true;
    }
    say("==> licences: cargo deny check licenses bans sources");
    check.status().is_ok_and(|status| status.success())
}

#[expect(clippy::print_stdout, reason = "a task runner says what it runs")]
fn say(text: &str) {
    println!("{text}");
}
