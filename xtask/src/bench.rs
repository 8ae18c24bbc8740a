//! `cargo xtask bench`: the scenarios of `masthead bench`, several times in turn, with their spread.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};

use self::figures::{Figures, Run};

mod again;
mod figures;
mod page;
mod plot;

#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Arguments {
    /// What to measure, of `masthead bench --help`; everything unless said
    scenarios: Vec<String>,
    /// Also the peers, in the same runs: built on demand, kube-apiserver in some ten minutes
    #[arg(long)]
    peers: bool,
    /// One short round of everything
    #[arg(long)]
    quick: bool,
    /// How often scenarios run, in turn with the others; the median of the ratios counts. The longest
    /// parts run once
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=50))]
    rounds: u32,
    /// Only what every round has, without the longest parts: to be held against an earlier run
    #[arg(long, conflicts_with_all = ["quick", "report"])]
    again: bool,
    /// Write the figures and their page into docs/
    #[arg(long)]
    report: bool,
    /// Do not measure: take the figures of an earlier run
    #[arg(long, value_name = "FILE", conflicts_with_all = ["peers", "quick", "scenarios"])]
    from: Option<PathBuf>,
    /// Say which ratios do not lie where an earlier run has one expect them
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// How to show the figures
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// A scenario and its arguments.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    first: &'static [&'static str],
    /// In the rounds after the first. Some are too long for it, or do not change from run to run.
    later: Option<&'static [&'static str]>,
    quick: &'static [&'static str],
}

/// The same in every round.
const fn each(
    name: &'static str,
    usual: &'static [&'static str],
    quick: &'static [&'static str],
) -> Scenario {
    Scenario { name, first: usual, later: Some(usual), quick }
}

/// Only in the first round.
const fn once(
    name: &'static str,
    usual: &'static [&'static str],
    quick: &'static [&'static str],
) -> Scenario {
    Scenario { name, first: usual, later: None, quick }
}

const SCENARIOS: [Scenario; 17] = [
    each("cache", &["--rounds=2"], &["--pods=10000", "--rounds=1"]),
    each("list", &["--rounds=1"], &["--rounds=1", "--lists=5"]),
    Scenario {
        name: "fanout",
        first: &["--seconds=10"],
        later: Some(&["--part=cost", "--seconds=10"]),
        quick: &["--part=cost,memory", "--seconds=3"],
    },
    each("selective", &[], &["--watches=1000", "--rate=100", "--seconds=5"]),
    each("serve", &["--seconds=5"], &["--pods=10000", "--seconds=2"]),
    each("sync", &["--rounds=1"], &["--rounds=1"]),
    each("relist", &["--rounds=1"], &["--rounds=1"]),
    once("link", &[], &["--pods=50"]),
    each("resync", &[], &["--rounds=1"]),
    each("storm", &[], &["--watches=500"]),
    each("mixed", &[], &["--seconds=3"]),
    each("store", &[], &["--pods=20000", "--rounds=1"]),
    each("queue", &[], &["--rounds=1"]),
    each("controller", &[], &["--objects=500"]),
    once("replicas", &[], &["--seconds=3"]),
    once("scale", &["--seconds=60"], &["--watches=2000", "--streams=2000", "--seconds=5"]),
    once("growth", &[], &["--quick"]),
];

impl Scenario {
    /// Of a round, unless it has none in it.
    fn arguments(&self, round: u32, asked: &Arguments) -> Option<&'static [&'static str]> {
        match round {
            _ if asked.quick => Some(self.quick),
            1 if !asked.again => Some(self.first),
            _ => self.later,
        }
    }
}

/// The scenario that runs an etcd, which is the one of the tests.
const ON_ETCD: &str = "replicas";

const FIGURES: &str = "docs/performance/figures.json";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let figures = match &arguments.from {
        Some(file) => read(file)?,
        None => measure(arguments)?,
    };
    match arguments.output {
        Output::Table => super::say(&page::table(&figures)),
        Output::Json => super::say(&serde_json::to_string_pretty(&figures)?),
    }
    if let Some(file) = &arguments.against {
        super::say(&page::changes(&read(file)?, &figures));
    }
    if arguments.report {
        fs::create_dir_all("docs/performance")?;
        fs::write(FIGURES, serde_json::to_string_pretty(&figures)? + "\n")?;
        page::write(&figures)?;
    }
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<Figures> {
    let text = fs::read_to_string(file).with_context(|| format!("{} is not there", file.display()));
    serde_json::from_str(&text?).with_context(|| format!("{} has no figures", file.display()))
}

fn measure(arguments: &Arguments) -> anyhow::Result<Figures> {
    let program = build()?;
    let wanted = wanted(&arguments.scenarios)?;
    let rounds = if arguments.quick { 1 } else { arguments.rounds };
    let mut figures = Figures::new(&commit());
    let saved = program.with_file_name("figures.json");
    for round in 1..=rounds {
        figures.rounds = round;
        for scenario in &wanted {
            let Some(of_round) = scenario.arguments(round, arguments) else { continue };
            let (name, began) = (scenario.name, Instant::now());
            let mut command = Command::new(&program);
            command.args(["bench", name, "-o", "json"]).args(of_round);
            command.args(arguments.peers.then_some("--peers"));
            if name == ON_ETCD {
                command.arg("--etcd").arg(masthead_lab::Version::Current.program());
            }
            // One that fails does not take the figures of the others with it.
            let outcome = match run_one(&mut command) {
                Ok(run) => {
                    figures.add(run);
                    // One that is broken off has what it measured: `--from` takes it.
                    fs::write(&saved, serde_json::to_string_pretty(&figures)?)?;
                    format!("{} s", began.elapsed().as_secs())
                }
                Err(error) => format!("no figures: {error:#}"),
            };
            progress(&format!("round {round} of {rounds}: {name}, {outcome}"));
        }
    }
    Ok(figures)
}

fn run_one(command: &mut Command) -> anyhow::Result<Run> {
    let output = command.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "it ended with {}", output.status);
    serde_json::from_slice(&output.stdout).context("it says something else")
}

fn wanted(names: &[String]) -> anyhow::Result<Vec<Scenario>> {
    let known = || SCENARIOS.map(|it| it.name).join(", ");
    let find = |name: &String| {
        let found = SCENARIOS.iter().find(|it| it.name == name).copied();
        found.with_context(|| format!("there is no scenario {name}; there are {}", known()))
    };
    if names.is_empty() { Ok(SCENARIOS.to_vec()) } else { names.iter().map(find).collect() }
}

fn build() -> anyhow::Result<PathBuf> {
    progress("building masthead");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["build", "--release", "--locked", "--package", "masthead", "--quiet"];
    let built = Command::new(cargo).args(arguments).status()?;
    ensure!(built.success(), "masthead does not build");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    Ok(target.join("release/masthead"))
}

/// What is measured.
fn commit() -> String {
    let output = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let text = output.map(|it| String::from_utf8_lossy(&it.stdout).trim().to_owned());
    text.unwrap_or_default()
}

#[expect(clippy::print_stderr, reason = "the figures go to standard output")]
fn progress(text: &str) {
    eprintln!("{text}");
}
