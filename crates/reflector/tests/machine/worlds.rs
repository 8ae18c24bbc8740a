//! Many simulated worlds, judged by the offline checker.

use std::fmt::Write as _;

use masthead_reflector::{Class, Report};
use masthead_sim::world::{self, Run};
use masthead_sim::{Violation, check, malice, seeds};

/// Seeds of an ordinary run. `MASTHEAD_SEED` runs one, `MASTHEAD_SEEDS` another number of them.
const SEEDS: u64 = 5_000;
/// The same for malicious servers, whose runs are shorter.
const MALICIOUS_SEEDS: u64 = 20_000;

/// Runs a seed and judges it; says what is wrong.
fn judge(seed: u64) -> Result<(), String> {
    let run = world::run(seed);
    let violations = check(&run.history);
    if violations.is_empty() && run.settled {
        Ok(())
    } else {
        Err(explain(seed, &run, &violations))
    }
}

fn explain(seed: u64, run: &Run, violations: &[Violation]) -> String {
    let path = std::env::temp_dir().join(format!("masthead-reflector-{seed}.jsonl"));
    let mut text = Vec::new();
    run.history.write(&mut text).unwrap();
    std::fs::write(&path, text).unwrap();
    let mut said = format!("history in {}", path.display());
    if !run.settled {
        said += "\n  does not come to rest";
    }
    for violation in violations.iter().take(10) {
        write!(said, "\n  {violation}").unwrap();
    }
    said
}

/// Every rule: I1, I2, I4, I7 and I8, and those for what the simulated server says.
#[test]
fn worlds_hold() {
    let test = "-p masthead-reflector --test machine worlds_hold";
    if let Err(wrong) = seeds::judge(SEEDS, test, judge) {
        panic!("\n{wrong}");
    }
}

/// I7 and I8 with servers that answer as badly as they can: whatever they repeat, the client asks again
/// only after progress or a wait, and gathers no more than it may.
#[test]
fn i07_no_server_makes_a_client_ask_without_progress_or_a_wait() {
    let test = "-p masthead-reflector --test machine i07_no_server";
    if let Err(wrong) =
        seeds::judge(MALICIOUS_SEEDS, test, |seed| malice::judge(&malice::run(seed)))
    {
        panic!("\n{wrong}");
    }
}

/// Servers that nobody notices prove nothing.
#[test]
fn malicious_servers_are_bad_enough() {
    let runs: Vec<_> = (0..1_000).map(malice::run).collect();
    let reached = |class| runs.iter().filter(|run| run.report.errors.of(class) > 0).count();
    let classes = [Class::Unordered, Class::TooLarge, Class::Expired, Class::RvLoop, Class::Decode];
    let seen: Vec<_> = classes.into_iter().map(|class| (class, reached(class))).collect();
    assert!(seen.iter().all(|(_, count)| *count >= 20), "{seen:?}");
    assert!(runs.iter().any(|run| run.report.synced));
}

/// A world in which nothing goes wrong proves nothing.
#[test]
fn worlds_are_wild_enough() {
    let reports: Vec<_> = (0..400).map(|seed| world::run(seed).report).collect();
    let seeds = |shows: fn(&Report) -> bool| reports.iter().filter(|it| shows(it)).count();
    let shown = [
        ("expired", seeds(|it| it.relists.expired > 0)),
        ("short watches", seeds(|it| it.relists.short_watches > 0)),
        ("older lists", seeds(|it| it.relists.older > 0)),
        ("silence", seeds(|it| it.relists.silent > 0)),
        ("rewinds", seeds(|it| it.rewinds > 0)),
        ("late answers", seeds(|it| it.late > 0)),
        ("pages", seeds(|it| it.pages > 3)),
    ];
    assert!(shown.iter().all(|(_, count)| *count >= 10), "{shown:?}");
    assert!(reports.iter().all(|report| report.synced));
}

#[test]
fn twenty_seeds_run_twice_give_identical_histories() {
    for seed in 0..20 {
        let (first, second) = (world::run(seed), world::run(seed));
        assert_eq!(first.history, second.history, "seed {seed}");
    }
}
