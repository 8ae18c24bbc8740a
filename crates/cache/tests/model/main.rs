//! The cache against the naive model: random scripts of changes, gaps, readers and snapshots, written
//! down as a history and judged by the one checker, and compared with the folded log at every revision.

mod audit;
mod lists;
mod readers;
mod script;
mod world;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Runs a script and says what went wrong.
fn judge(script: &script::Script) -> Result<(), String> {
    let mut world = world::World::new(script);
    for step in &script.steps {
        world.step(step)?;
    }
    world.finish()
}

fn runner(cases: u32) -> TestRunner {
    let config =
        Config { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    TestRunner::new(config)
}

/// S1–S8, L1, L3, L4 and I5 over random scripts.
#[test]
fn whatever_happens_readers_see_the_log_and_nothing_else() {
    let judged =
        runner(std::env::var("MASTHEAD_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(4_000))
            .run(&script::script(), |script| judge(&script).map_err(TestCaseError::fail));
    if let Err(error) = judged {
        panic!("{error}");
    }
}

/// Every planted bug in the cache is noticed within 1,000 scripts.
#[cfg(planted)]
#[test]
fn planted_bugs_are_caught() {
    use masthead_core::planted;
    use proptest::test_runner::{RngAlgorithm, TestRng};

    const BUGS: [&str; 12] = [
        "event_skipped_at_window_edge",
        "expired_off_by_one",
        "bookmark_before_flush",
        "duplicate_on_resume",
        "deleted_dropped_on_leave",
        "leaving_shows_new_content",
        "index_not_updated_on_relabel",
        "exact_reads_newer",
        "slow_cursor_dropped_silently",
        "namespace_prefix_matches_longer",
        "missed_tombstone",
        "older_list_accepted",
    ];
    for bug in BUGS {
        let config = Config {
            cases: 1_000,
            failure_persistence: None,
            max_shrink_iters: 0,
            ..Config::default()
        };
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut tried = 0;
        let strategy = script::script();
        let caught = planted::with(bug, || {
            let quiet = std::panic::take_hook();
            std::panic::set_hook(Box::new(|_| {}));
            let tries = std::cell::Cell::new(0);
            let caught = TestRunner::new_with_rng(config, rng).run(&strategy, |script| {
                tries.set(tries.get() + 1);
                judge(&script).map_err(TestCaseError::fail)
            });
            std::panic::set_hook(quiet);
            tried = tries.get();
            assert!(planted::reached(), "{bug}: its line was never executed");
            caught
        });
        let error = caught.expect_err(bug).to_string();
        println!("{bug}: caught by script {tried}: {}", error.lines().next().unwrap_or_default());
    }
}
