//! Tests of the tests: each planted bug is noticed in some life. Built with
//! `RUSTFLAGS="--cfg planted"`.
use std::panic::catch_unwind;

use masthead_core::planted;

use crate::random::live;

/// Seeds within which a bug has to be noticed.
const SEEDS: u64 = 1_000;

const BUGS: [&str; 11] = [
    "filter_panic_hides_the_object",
    "filter_panic_not_remembered",
    "filter_sees_only_the_new",
    "handler_synced_early",
    "lost_names_forgotten",
    "missed_delete_not_told",
    "missed_not_told",
    "panic_ends_handler",
    "place_not_moved",
    "replaced_told_as_update",
    "resync_of_the_present",
];

/// How a seed shows the bug that is switched on, if it does.
fn shown(seed: u64) -> Option<String> {
    match catch_unwind(|| live(seed)) {
        Err(_) => Some("panic".to_owned()),
        Ok(lived) => {
            lived.err().map(|wrong| wrong.chars().take_while(|it| *it != '\n').take(60).collect())
        }
    }
}

#[test]
fn planted_bugs_are_caught() {
    let mut missed = Vec::new();
    for bug in BUGS {
        let caught = planted::with(bug, || {
            let caught = (0..SEEDS).find_map(|seed| Some((seed, shown(seed)?)));
            assert!(planted::reached(), "{bug} was never reached");
            caught
        });
        match caught {
            Some((seed, how)) => println!("{bug}: by {seed}: {how}"),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "nobody noticed {missed:?}");
}
