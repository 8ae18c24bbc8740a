//! `cargo xtask instructions`: what the hot paths execute and how often they allocate, against what they did when somebody last agreed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::say;

/// By how much a count may differ from its baseline.
const TOLERANCE_PERCENT: u64 = 3;

const ALLOCATIONS: &str = ", allocations";

const BASELINE: &str = "bench/instructions/baseline.json";
const BLESS: &str = "cargo xtask instructions --bless";

/// Instructions of each path, by its name, and its allocations, by its name and [`ALLOCATIONS`].
type Counts = BTreeMap<String, u64>;

/// What was agreed upon.
#[derive(Serialize, Deserialize)]
struct Baseline {
    /// Elsewhere the same program executes something else.
    environment: String,
    counts: Counts,
}

/// What a count means beside its baseline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Same,
    /// Better, and nothing would notice if it were lost again.
    Lower,
    Higher,
    /// The baseline does not have it.
    Unknown,
}

impl Verdict {
    fn of(baseline: Option<u64>, now: u64) -> Self {
        let Some(baseline) = baseline else { return Self::Unknown };
        let tolerance = baseline * TOLERANCE_PERCENT / 100;
        match now {
            _ if now > baseline + tolerance => Self::Higher,
            _ if now < baseline - tolerance => Self::Lower,
            _ => Self::Same,
        }
    }

    fn fails(self) -> bool {
        matches!(self, Self::Higher | Self::Unknown)
    }

    fn note(self) -> &'static str {
        match self {
            Self::Same => "",
            Self::Lower => "lower: bless it",
            Self::Higher => "HIGHER",
            Self::Unknown => "NOT IN THE BASELINE: bless it",
        }
    }
}

/// Counts every path. Fails if one executes more than its baseline and the tolerance, or has none, unless
/// the baseline is of another compiler or machine; with `bless`, what was counted becomes the baseline.
pub(crate) fn run(bless: bool) -> Result<(), String> {
    let program = build()?;
    let now = count(&program)?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask is in the workspace")?;
    let file = root.join(BASELINE);
    let (baseline, environment) = (read(&file)?, environment());
    say(&table(&baseline.counts, &now));
    if bless {
        return write(&file, &Baseline { environment, counts: now });
    }
    if baseline.environment != environment {
        let was = &baseline.environment;
        say(&format!("not held against the baseline, which is of {was}; this is {environment}"));
        return Ok(());
    }
    compare(&baseline.counts, &now)
}

/// What the counts depend on besides our code: the compiler, the C library, valgrind, and which of several
/// ways to search and copy memory the processor lets libraries choose.
fn environment() -> String {
    let first_line = |mut command: Command| {
        let said = command.output().map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
        said.unwrap_or_default().lines().next().unwrap_or_default().to_owned()
    };
    let version = |program: &str| {
        let mut command = Command::new(program);
        command.arg("--version");
        first_line(command)
    };
    let mut valgrind = masthead_lab::valgrind();
    valgrind.arg("--version");
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = processor.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let known = ["sse4_2", "avx", "avx2", "bmi2", "erms"];
    let known = known.into_iter().filter(|it| flags.split(' ').any(|flag| flag == *it));
    let known = known.collect::<Vec<_>>().join(" ");
    let (compiler, library, valgrind) = (version("rustc"), version("ldd"), first_line(valgrind));
    format!("{compiler}; {library}; {valgrind}; {known}")
}

fn compare(baseline: &Counts, now: &Counts) -> Result<(), String> {
    let failing = |(path, count): &(&String, &u64)| {
        Verdict::of(baseline.get(*path).copied(), **count).fails()
    };
    let failing: Vec<_> = now.iter().filter(failing).map(|(path, _)| path.as_str()).collect();
    if failing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}: more than {TOLERANCE_PERCENT} % above {BASELINE}, or not in it. If it is meant, or the compiler \
         is another one: `{BLESS}`, and commit the file",
        failing.join(", ")
    ))
}

fn table(baseline: &Counts, now: &Counts) -> String {
    let head = format!("{:<26}{:>14}{:>14}{:>10}", "path", "baseline", "now", "change");
    let rows = now.iter().map(|(path, &count)| row(path, baseline.get(path).copied(), count));
    let gone = baseline.keys().filter(|path| !now.contains_key(*path));
    let gone = gone.map(|path| format!("{path:<26} is no longer counted: bless it"));
    [head].into_iter().chain(rows).chain(gone).collect::<Vec<_>>().join("\n")
}

fn row(path: &str, baseline: Option<u64>, now: u64) -> String {
    let (before, change) = match baseline {
        Some(baseline) => (baseline.to_string(), change(baseline, now)),
        None => ("-".to_owned(), "-".to_owned()),
    };
    let note = Verdict::of(baseline, now).note();
    format!("{path:<26}{before:>14}{now:>14}{change:>10}  {note}").trim_end().to_owned()
}

/// The difference in percent, to two places.
fn change(before: u64, now: u64) -> String {
    let sign = if now < before { '-' } else { '+' };
    let hundredths = u128::from(now.abs_diff(before)) * 10_000 / u128::from(before.max(1));
    format!("{sign}{}.{:02} %", hundredths / 100, hundredths % 100)
}

fn read(file: &Path) -> Result<Baseline, String> {
    if !file.exists() {
        return Ok(Baseline { environment: environment(), counts: Counts::new() });
    }
    let text = fs::read_to_string(file).map_err(|error| format!("{BASELINE}: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("{BASELINE}: {error}"))
}

fn write(file: &Path, baseline: &Baseline) -> Result<(), String> {
    let text = serde_json::to_string_pretty(baseline).map_err(|error| error.to_string())?;
    fs::write(file, text + "\n").map_err(|error| format!("{BASELINE}: {error}"))?;
    say(&format!("written to {BASELINE}"));
    Ok(())
}

/// As it is released: counts of anything less optimised would say little.
fn build() -> Result<PathBuf, String> {
    let arguments = ["build", "--release", "--locked", "--package", "masthead-instructions"];
    let built = Command::new("cargo").args(arguments).status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("the hot paths could not be built".to_owned());
    }
    // This program is in `target/debug`.
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = own.ancestors().nth(2).ok_or("cargo has built this program")?;
    Ok(target.join("release/masthead-instructions"))
}

fn count(program: &Path) -> Result<Counts, String> {
    let names = Command::new(program).output().map_err(|error| error.to_string())?;
    let names = String::from_utf8(names.stdout).map_err(|error| error.to_string())?;
    let folder = program.with_file_name("instructions");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut counts = Counts::new();
    for path in names.lines() {
        let (instructions, allocations) = count_one(program, path, &folder)?;
        counts.insert(path.to_owned(), instructions);
        counts.insert(format!("{path}{ALLOCATIONS}"), allocations);
    }
    Ok(counts)
}

/// What callgrind counts between the beginning and the end of the function `measured`, and the allocations that
/// the program says. What callgrind saw stays in the folder, for `callgrind_annotate`.
fn count_one(program: &Path, path: &str, folder: &Path) -> Result<(u64, u64), String> {
    let seen = folder.join(format!("{path}.callgrind"));
    let output = masthead_lab::valgrind()
        .args(["--tool=callgrind", "--toggle-collect=*::measured*"])
        .arg(format!("--callgrind-out-file={}", seen.display()))
        .arg(program)
        .arg(path)
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let allocations = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
    match collected(&said).zip(allocations) {
        Some(counts) if output.status.success() && counts.0 > 0 => Ok(counts),
        _ => Err(format!("callgrind counted nothing of {path}:\n{said}")),
    }
}

/// The count in what callgrind says at its end.
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().find_map(|line| line.split_once("Collected :"))?.1;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts<const N: usize>(counts: [(&str, u64); N]) -> Counts {
        counts.into_iter().map(|(path, count)| (path.to_owned(), count)).collect()
    }

    #[test]
    fn a_count_may_differ_by_the_tolerance_and_not_by_one_more() {
        let verdict = |now| Verdict::of(Some(1_000), now);
        assert_eq!(verdict(1_000), Verdict::Same);
        assert_eq!(verdict(1_030), Verdict::Same);
        assert_eq!(verdict(1_031), Verdict::Higher);
        assert_eq!(verdict(970), Verdict::Same);
        assert_eq!(verdict(969), Verdict::Lower);
    }

    #[test]
    fn only_a_higher_count_and_a_path_without_a_baseline_fail() {
        let baseline = counts([("a", 1_000), ("b", 1_000), ("gone", 1_000)]);
        assert_eq!(compare(&baseline, &counts([("a", 1_030), ("b", 1)])), Ok(()));
        let higher = compare(&baseline, &counts([("a", 1_031), ("b", 1_000)])).unwrap_err();
        assert!(higher.starts_with("a: "), "{higher}");
        let unknown = compare(&baseline, &counts([("new", 1)])).unwrap_err();
        assert!(unknown.starts_with("new: ") && unknown.contains(BLESS), "{unknown}");
    }

    #[test]
    fn the_table_says_what_changed_and_what_to_do() {
        let baseline = counts([("a", 1_000), ("b", 1_000), ("gone", 1_000)]);
        let table = table(&baseline, &counts([("a", 1_250), ("b", 900), ("new", 7)]));
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[1].ends_with("+25.00 %  HIGHER"), "{table}");
        assert!(lines[2].ends_with("-10.00 %  lower: bless it"), "{table}");
        assert!(lines[3].ends_with("-  NOT IN THE BASELINE: bless it"), "{table}");
        assert!(lines[4].starts_with("gone") && lines[4].ends_with("bless it"), "{table}");
    }

    #[test]
    fn the_count_is_read_from_what_callgrind_says() {
        let said = "==7== Events    : Ir\n==7== Collected : 5194360\n==7== \n";
        assert_eq!(collected(said), Some(5_194_360));
        assert_eq!(collected("==7== Collected : \n"), None);
        assert_eq!(collected("valgrind: no such file"), None);
    }
}
