//! Tests of the tests: each planted bug is noticed, by the checker in some world or by a rule's own
//! test. Built with `RUSTFLAGS="--cfg planted"`.

use std::panic::catch_unwind;

use masthead_core::planted;
use masthead_sim::{check, malice, world};

use crate::rules;

/// Seeds within which a bug has to be noticed.
const SEEDS: u64 = 1_000;

const BUGS: [&str; 20] = [
    "backoff_not_grown",
    "beginning_not_read_again",
    "bookmark_before_events",
    "expired_pages_kept",
    "expired_pages_not_waited_for",
    "expired_revision_forgotten",
    "expired_watch_retried",
    "failure_not_waited_for",
    "initial_delete_ignored",
    "late_answer_accepted",
    "older_list_accepted",
    "pages_of_two_revisions_mixed",
    "relist_from_a_cache",
    "relists_after_events_not_paced",
    "retry_after_ignored",
    "rewound_silently",
    "short_watch_relists",
    "staged_list_kept_after_break",
    "synced_after_one_page",
    "watch_skips_one_revision",
];

/// How a seed shows the bug that is switched on, if it does.
fn shown(seed: u64) -> Option<String> {
    let Ok(run) = catch_unwind(|| world::run(seed)) else { return Some("panic".to_owned()) };
    if !run.settled {
        return Some("no rest".to_owned());
    }
    check(&run.history).first().map(|violation| violation.rule.to_string())
}

/// Bugs that a world may forgive: a machine that takes a late answer usually survives it, since
/// what the answer says is checked again wherever it goes. The rule's own test does not forgive.
fn by_rule(bug: &str) -> Option<String> {
    let rule = match bug {
        "expired_pages_not_waited_for" => {
            rules::lists::i07_a_fresh_token_that_is_expired_too_is_waited_for_and_the_tries_are_counted
        }
        "late_answer_accepted" => rules::order::a_late_answer_to_a_dead_request_is_dropped,
        "relist_from_a_cache" => {
            rules::lists::r01_a_cached_first_list_is_an_option_and_only_the_first_is
        }
        "relists_after_events_not_paced" => {
            rules::lists::i07_an_event_between_two_relists_does_not_make_them_a_loop
        }
        _ => return None,
    };
    catch_unwind(rule).is_err().then(|| "by its rule".to_owned())
}

/// Bugs that only a malicious server brings out: requests without progress or a wait, memory without bound.
const MALICIOUS_BUGS: [&str; 3] =
    ["endless_state_gathered", "keys_of_pages_not_compared", "tiny_pages_not_paced"];

#[test]
fn planted_bugs_that_a_malicious_server_brings_out_are_caught() {
    let caught = |bug| {
        planted::with(bug, || {
            let found = (0..SEEDS).find_map(|seed| malice::judge(&malice::run(seed)).err());
            assert!(planted::reached(), "{bug} was never reached");
            found
        })
    };
    let missed: Vec<_> = MALICIOUS_BUGS.into_iter().filter(|bug| caught(bug).is_none()).collect();
    assert!(missed.is_empty(), "nobody noticed {missed:?}");
}

#[test]
fn planted_bugs_are_caught() {
    let mut missed = Vec::new();
    for bug in BUGS {
        let caught = planted::with(bug, || {
            let caught =
                (0..SEEDS).find_map(|seed| shown(seed).map(|how| format!("{how} by {seed}")));
            let caught = caught.or_else(|| by_rule(bug));
            assert!(planted::reached(), "{bug} was never reached");
            caught
        });
        match caught {
            Some(how) => println!("{bug}: {how}"),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "nobody noticed {missed:?}");
}
