//! R5 to R8: how a watch is kept up.

use crate::fixture::{Fixture, run};

#[test]
fn r05_the_watch_starts_at_the_list_and_lives_5_to_10_minutes() {
    // The fixture checks the range of every watch that it prints.
    run(
        "limit=50",
        "list 1 latest limit=50
         > page 1 rv=10 a@9
         ----
         replace 10: a@9
         watch 2 from=10
         > open 2
         > at 630000
         ----
         cancel 2
         watch 3 from=10",
    );
}

#[test]
fn r06_waits_grow_from_failure_to_failure() {
    let mut fixture = Fixture::new("");
    for (number, base) in [(1, 800), (2, 1600), (3, 3200), (4, 6400)] {
        assert_eq!(fixture.outputs(), [format!("list {number} latest limit=500")]);
        fixture.script(&format!("> fail {number} 503\n----\nwait"));
        assert!((base..=2 * base).contains(&fixture.wait_ms()), "{}", fixture.wait_ms());
        let until = fixture.machine.poll_timeout().unwrap();
        fixture.now = until;
        fixture.machine.handle_timeout(until);
    }
}

#[test]
fn r07_a_watch_that_ends_is_resumed_at_once_from_the_last_revision() {
    run(
        "at=10",
        "watch 1 from=10
         > open 1
         > events 1 +a@11
         ----
         apply put a@11
         > end 1
         ----
         watch 2 from=11
         > events 2 mark@15
         ----
         bookmark 15
         > fail 2 reset
         ----
         watch 3 from=15
         > at 30000
         ----
         cancel 3
         watch 4 from=15",
    );
}

#[test]
fn r07_refused_and_overloaded_wait_and_do_not_list() {
    for failure in ["refused", "429", "500", "503"] {
        run(
            "at=10",
            &format!(
                "watch 1 from=10
                 > fail 1 {failure}
                 ----
                 wait
                 > next
                 ----
                 watch 2 from=10"
            ),
        );
    }
}

#[test]
fn r07_retry_after_is_honoured() {
    let fixture = run("at=10", "watch 1 from=10\n> fail 1 429 after=20\n----\nwait");
    assert!((20_000..=25_000).contains(&fixture.wait_ms()));
}

#[test]
fn r07_only_the_third_very_short_watch_in_a_row_lists() {
    run(
        "at=10",
        "watch 1 from=10
         > open 1
         > end 1
         ----
         wait
         > next
         ----
         watch 2 from=10
         > end 2
         ----
         wait
         > next
         ----
         watch 3 from=10
         > end 3
         ----
         wait
         > next
         ----
         list 4 latest limit=500",
    );
}

#[test]
fn r07_a_watch_that_only_repeats_itself_is_not_resumed_at_once() {
    run(
        "at=10",
        "watch 1 from=10
         > events 1 mark@10
         > end 1
         ----
         wait
         > next
         ----
         watch 2 from=10",
    );
}

#[test]
fn r07_an_event_in_between_is_no_very_short_watch() {
    run(
        "at=10",
        "watch 1 from=10
         > end 1
         ----
         wait
         > next
         ----
         watch 2 from=10
         > end 2
         ----
         wait
         > next
         ----
         watch 3 from=10
         > events 3 +a@11
         ----
         apply put a@11
         > end 3
         ----
         watch 4 from=11
         > end 4
         ----
         wait
         > next
         ----
         watch 5 from=11",
    );
}

#[test]
fn r08_expired_as_status_or_event_is_a_consistent_list() {
    for expired in ["fail 1 410", "fail 1 future"] {
        run("at=10", &format!("watch 1 from=10\n> {expired}\n----\nlist 2 latest limit=500"));
    }
    run(
        "at=10",
        "watch 1 from=10
         > events 1 +a@11 error=410 +b@12
         ----
         apply put a@11
         cancel 1
         list 2 latest limit=500",
    );
}
