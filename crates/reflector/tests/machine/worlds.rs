//! Many simulated worlds, judged by the offline checker.

use std::fmt::Write as _;

use masthead_reflector::Report;
use masthead_sim::world::{self, Run};
use masthead_sim::{Violation, check, seeds};

/// Seeds of an ordinary run. `MASTHEAD_SEED` runs one, `MASTHEAD_SEEDS` another number of them.
const SEEDS: u64 = 5_000;

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
