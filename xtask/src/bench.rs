//! `cargo xtask bench`: the scenarios of `masthead bench`, several times in turn, with their spread.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};

use self::figures::{Figures, Run};

mod figures;
mod page;
mod plot;

#[derive(Args)]
pub(crate) struct Arguments {
    /// What to measure, of `masthead bench --help`; everything unless said
    scenarios: Vec<String>,
    /// Also the peers, in the same runs: built on demand, kube-apiserver in some ten minutes
    #[arg(long)]
    peers: bool,
    /// One short round of everything
    #[arg(long)]
    quick: bool,
    /// How often each scenario runs, in turn with the others; the median of the ratios counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=50))]
    rounds: u32,
    /// Write the figures and their page into docs/
    #[arg(long)]
    report: bool,
    /// Do not measure: take the figures of an earlier run
    #[arg(long, value_name = "FILE", conflicts_with_all = ["peers", "quick", "scenarios"])]
    from: Option<PathBuf>,
    /// Say which ratios are outside of the spread of an earlier run
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

/// A scenario, its arguments where they are not the defaults, and those of a quick look.
const SCENARIOS: [(&str, &[&str], &[&str]); 17] = [
    ("cache", &[], &["--pods=10000", "--rounds=1"]),
    ("list", &["--rounds=3"], &["--rounds=1", "--lists=5"]),
    ("fanout", &["--seconds=6"], &["--part=cost,memory", "--seconds=3"]),
    ("selective", &[], &["--watches=1000", "--rate=100", "--seconds=5"]),
    ("serve", &["--seconds=5"], &["--pods=10000", "--seconds=2"]),
    ("sync", &[], &["--rounds=1"]),
    ("relist", &[], &["--rounds=1"]),
    ("link", &[], &["--pods=50"]),
    ("resync", &[], &["--rounds=1"]),
    ("storm", &[], &["--watches=500"]),
    ("mixed", &[], &["--seconds=3"]),
    ("store", &[], &["--pods=20000", "--rounds=1"]),
    ("queue", &[], &["--rounds=1"]),
    ("controller", &[], &["--objects=500"]),
    ("replicas", &[], &["--seconds=3"]),
    ("scale", &["--seconds=20"], &["--watches=2000", "--streams=2000", "--seconds=5"]),
    ("growth", &[], &["--quick"]),
];

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
        for &(name, usual, quick) in &wanted {
            let began = Instant::now();
            let mut command = Command::new(&program);
            command.args(["bench", name, "-o", "json"]);
            command.args(if arguments.quick { quick } else { usual });
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

type Scenario = (&'static str, &'static [&'static str], &'static [&'static str]);

fn wanted(names: &[String]) -> anyhow::Result<Vec<Scenario>> {
    let known = || SCENARIOS.map(|(name, ..)| name).join(", ");
    let find = |name: &String| {
        let found = SCENARIOS.iter().find(|it| it.0 == name).copied();
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
