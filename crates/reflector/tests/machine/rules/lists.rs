//! R1 to R4: how a list is read.

use masthead_core::Time;
use masthead_reflector::Class;
use masthead_reflector::limits::{PAGE_TRIES_MAX, TINY_PAGE_PAUSE, TINY_PAGES_MAX};

use crate::fixture::{Fixture, run};

#[test]
fn r01_the_first_list_is_consistent() {
    run(
        "",
        "list 1 latest limit=500
         > page 1 rv=10 a@3 b@4
         ----
         replace 10: a@3 b@4
         watch 2 from=10",
    );
}

#[test]
pub(crate) fn r01_a_cached_first_list_is_an_option_and_only_the_first_is() {
    run(
        "cached",
        "list 1 cached limit=500
         > page 1 rv=10 a@3
         ----
         replace 10: a@3
         watch 2 from=10
         > fail 2 410
         ----
         list 3 latest limit=500",
    );
    run("cached streaming", "watch 1 cached state");
    run("cached start=7", "list 1 latest limit=500");
}

#[test]
fn r02_a_list_is_a_stream_where_the_server_has_it() {
    run(
        "streaming",
        "watch 1 state
         > open 1
         > events 1 +b@4 +a@3
         > events 1 +c@5 ~c@6 -b@7 end@9 +d@10
         ----
         replace 9: a@3 c@6
         apply put d@10
         > events 1 ~d@11 mark@12
         ----
         apply put d@11
         bookmark 12",
    );
}

#[test]
fn r02_what_a_server_refused_once_it_is_not_asked_for_again() {
    let mut fixture = run(
        "streaming",
        "watch 1 state
         > fail 1 422
         ----
         list 2 latest limit=500
         > page 2 rv=10
         ----
         replace 10:
         watch 3 from=10",
    );
    fixture.script(
        "> fail 3 410
         ----
         list 4 latest limit=500",
    );
}

#[test]
fn r02_an_initial_stream_that_broke_after_progress_is_followed_by_pages() {
    run(
        "streaming",
        "watch 1 state
         > events 1 +ghost@3
         > end 1
         ----
         list 2 latest limit=500
         > page 2 rv=10 a@4
         ----
         replace 10: a@4
         watch 3 from=10
         > events 3 ~a@11
         ----
         apply put a@11
         > at 5000
         > fail 3 410
         ----
         watch 4 state",
    );
}

#[test]
fn r02_an_initial_stream_without_progress_is_tried_again_as_a_stream() {
    run(
        "streaming",
        "watch 1 state
         > fail 1 reset
         ----
         wait
         > next
         ----
         watch 2 state",
    );
}

#[test]
fn r02_initial_events_that_never_end_are_given_up() {
    run(
        "streaming",
        "watch 1 state
         > events 1 +a@3
         > next
         ----
         cancel 1
         list 2 latest limit=500",
    );
}

#[test]
fn r03_later_pages_carry_only_the_token() {
    run(
        "limit=2",
        "list 1 latest limit=2
         > page 1 rv=10 a@1 next=t1
         ----
         list 2 continue=t1 limit=2
         > page 2 rv=10 b@2
         ----
         replace 10: a@1 b@2
         watch 3 from=10",
    );
}

#[test]
fn r03_after_an_expired_token_the_beginning_is_read_again_at_the_revision_of_the_rest() {
    run(
        "limit=50",
        "list 1 latest limit=50
         > page 1 rv=10 a@1 b@2 next=t1
         ----
         list 2 continue=t1 limit=50
         > fail 2 410 token=fresh
         ----
         list 3 continue=fresh limit=50
         > page 3 rv=20 c@3 next=t2
         ----
         list 4 continue=t2 limit=50
         > page 4 rv=20 d@15
         ----
         list 5 exact=20 limit=50
         > page 5 rv=20 a@12 next=t3
         ----
         list 6 continue=t3 limit=50
         > page 6 rv=20 c@3 d@15
         ----
         replace 20: a@12 c@3 d@15
         watch 7 from=20",
    );
}

#[test]
fn r03_a_second_expiry_moves_the_boundary() {
    run(
        "limit=50",
        "list 1 latest limit=50
         > page 1 rv=10 a@1 next=t1
         ----
         list 2 continue=t1 limit=50
         > fail 2 410 token=f1
         ----
         list 3 continue=f1 limit=50
         > page 3 rv=20 b@2 next=t2
         ----
         list 4 continue=t2 limit=50
         > fail 4 410 token=f2
         ----
         list 5 continue=f2 limit=50
         > page 5 rv=30 c@3
         ----
         list 6 exact=30 limit=50
         > page 6 rv=30 a@1 b@22 c@3
         ----
         replace 30: a@1 b@22 c@3
         watch 7 from=30",
    );
}

#[test]
fn r03_nothing_behind_the_boundary_leads_to_the_beginning_at_once() {
    run(
        "limit=50",
        "list 1 latest limit=50
         > page 1 rv=10 a@1 next=t1
         ----
         list 2 continue=t1 limit=50
         > fail 2 410 token=fresh
         ----
         list 3 continue=fresh limit=50
         > page 3 rv=20
         ----
         list 4 exact=20 limit=50
         > page 4 rv=20 a@1
         ----
         replace 20: a@1
         watch 5 from=20",
    );
}

#[test]
fn r03_if_the_beginning_cannot_be_read_again_the_list_begins_anew_in_pages() {
    run(
        "limit=50",
        "list 1 latest limit=50
         > page 1 rv=10 a@1 next=t1
         ----
         list 2 continue=t1 limit=50
         > fail 2 410 token=fresh
         ----
         list 3 continue=fresh limit=50
         > page 3 rv=20 b@2
         ----
         list 4 exact=20 limit=50
         > fail 4 410
         ----
         list 5 latest limit=50
         > page 5 rv=30 b@25
         ----
         replace 30: b@25
         watch 6 from=30",
    );
}

#[test]
fn r03_a_page_of_another_revision_is_never_mixed_in() {
    run(
        "limit=50",
        "list 1 latest limit=50
         > page 1 rv=10 a@1 next=t1
         ----
         list 2 continue=t1 limit=50
         > page 2 rv=20 b@2
         ----
         list 3 exact=20 limit=50
         > page 3 rv=20 b@2
         ----
         replace 20: b@2
         watch 4 from=20",
    );
}

#[test]
fn r03_without_a_fresh_token_the_list_begins_anew_once_at_once() {
    run(
        "limit=50",
        "list 1 latest limit=50
         > page 1 rv=10 a@1 next=t1
         ----
         list 2 continue=t1 limit=50
         > fail 2 410
         ----
         list 3 latest limit=50
         > page 3 rv=11 a@1 next=t2
         ----
         list 4 continue=t2 limit=50
         > fail 4 410
         ----
         wait
         > next
         ----
         list 5 latest limit=50",
    );
}

#[test]
fn r04_a_page_is_kept_once_it_has_arrived() {
    run(
        "limit=100",
        "list 1 latest limit=100
         > page 1 rv=10 a@1 next=t1
         ----
         list 2 continue=t1 limit=100
         > at 2000
         > fail 2 timeout
         ----
         list 3 continue=t1 limit=50
         > fail 3 500
         ----
         wait
         > next
         ----
         list 4 continue=t1 limit=50
         > page 4 rv=10 b@2
         ----
         replace 10: a@1 b@2
         watch 5 from=10",
    );
}

#[test]
fn r04_the_page_size_halves_down_to_25_and_then_the_waits_grow() {
    run(
        "limit=100",
        "list 1 latest limit=100
         > at 2000
         > fail 1 timeout
         ----
         list 2 latest limit=50
         > at 4000
         > fail 2 timeout
         ----
         list 3 latest limit=25
         > at 6000
         > fail 3 timeout
         ----
         wait
         > next
         ----
         list 4 latest limit=25",
    );
}

#[test]
fn r04_quick_full_pages_double_the_size_up_to_1000() {
    let full = objects("", 0..500);
    let larger = objects("", 500..1500);
    let half = objects("", 1500..2000);
    let mut fixture = Fixture::new("");
    fixture.script("list 1 latest limit=500");
    fixture.script(&format!("> page 1 rv=10 next=t1{full}\n----\nlist 2 continue=t1 limit=1000"));
    fixture.script(&format!("> page 2 rv=10 next=t2{larger}\n----\nlist 3 continue=t2 limit=1000"));
    // Slow or half empty: no change.
    fixture.now = Time(5_000);
    fixture.script(&format!("> page 3 rv=10 next=t3{half}\n----\nlist 4 continue=t3 limit=1000"));
}

#[test]
fn r04_the_deadline_is_on_progress() {
    let mut fixture = run(
        "",
        "list 1 latest limit=500
         > at 29999
         > bytes 1 100
         > at 59998
         > bytes 1 100
         > at 89997",
    );
    assert_eq!(fixture.machine.report(fixture.now).bytes, 200);
    fixture.script(
        "> at 89998
         ----
         cancel 1
         list 2 latest limit=250",
    );
    let report = fixture.machine.report(fixture.now);
    assert_eq!(report.last_error.unwrap().class, Class::TimedOutProgress);
}

/// So many objects, each after a mark.
fn objects(mark: &str, numbers: std::ops::Range<usize>) -> String {
    let objects: Vec<_> = numbers.map(|n| format!(" {mark}n{n:04}@1")).collect();
    objects.concat()
}

#[test]
fn r04_where_requests_are_cut_pages_are_made_to_fit() {
    let mut fixture = Fixture::new("request=8");
    fixture.script("list 1 latest limit=100");
    // 100 objects take 1.6 s, and a page should take 2 s at most.
    fixture.now = Time(1_600);
    let page = objects("", 0..100);
    fixture.script(&format!("> page 1 rv=10 next=t1{page}\n----\nlist 2 continue=t1 limit=100"));
    // Now they take 4 s: half as many next time.
    fixture.now = Time(5_600);
    let page = objects("", 100..200);
    fixture.script(&format!("> page 2 rv=10 next=t2{page}\n----\nlist 3 continue=t2 limit=50"));
    // A page that moves all the time is given up all the same when its time is over.
    for at in [6_500, 7_400, 8_300, 9_200, 10_100, 11_000, 11_900, 12_800, 13_599] {
        fixture.script(&format!("> at {at}\n> bytes 3 10"));
    }
    fixture.script(
        "> at 13600
         ----
         cancel 3
         list 4 continue=t2 limit=25",
    );
    let report = fixture.machine.report(fixture.now);
    assert_eq!(report.last_error.unwrap().class, Class::TimedOutProgress);
}

#[test]
fn r04_a_stream_that_was_cut_tells_how_large_pages_may_be() {
    let mut fixture = Fixture::new("streaming");
    fixture.script("watch 1 state");
    fixture.script("> open 1");
    fixture.script(&format!("> events 1{}", objects("+", 0..400)));
    fixture.now = Time(8_000);
    fixture.script("> fail 1 reset\n----\nlist 2 latest limit=100");
}

#[test]
fn r04_a_page_that_breaks_off_between_pages_that_arrive_is_asked_for_at_once() {
    run(
        "limit=100",
        "list 1 latest limit=100
         > page 1 rv=10 a@1 next=t1
         ----
         list 2 continue=t1 limit=100
         > fail 2 reset
         ----
         list 3 continue=t1 limit=100
         > fail 3 reset
         ----
         wait",
    );
}

#[test]
fn i07_a_list_whose_keys_do_not_rise_is_given_up_and_begins_anew_after_a_wait() {
    for (first, second) in
        [("a@1 b@2", "b@2 c@3"), ("a@1 b@2", "a@1 b@2"), ("b@2", "a@1"), ("a@1 a@1", "")]
    {
        let mut fixture = run("limit=50", "list 1 latest limit=50");
        fixture.script(&if second.is_empty() {
            format!("> page 1 rv=10 {first} next=t1\n----\nwait")
        } else {
            format!(
                "> page 1 rv=10 {first} next=t1\n----\nlist 2 continue=t1 limit=50
                 > page 2 rv=10 {second} next=t1\n----\nwait"
            )
        });
        let report = fixture.machine.report(fixture.now);
        assert_eq!(report.last_error.unwrap().class, Class::Unordered, "{first}, {second}");
        let n = if second.is_empty() { 2 } else { 3 };
        fixture.script(&format!("> next\n----\nlist {n} latest limit=50"));
    }
}

#[test]
fn i07_a_list_in_one_piece_may_have_any_order_and_no_key_twice() {
    run(
        "",
        "list 1 latest limit=500
         > page 1 rv=10 b@2 a@1
         ----
         replace 10: b@2 a@1
         watch 2 from=10",
    );
    run(
        "",
        "list 1 latest limit=500
         > page 1 rv=10 b@2 a@1 b@3
         ----
         wait",
    );
}

#[test]
pub(crate) fn i07_a_fresh_token_that_is_expired_too_is_waited_for_and_the_tries_are_counted() {
    let mut fixture = run(
        "limit=50",
        "list 1 latest limit=50
         > page 1 rv=10 a@1 next=t1
         ----
         list 2 continue=t1 limit=50
         > fail 2 410 token=f1
         ----
         list 3 continue=f1 limit=50
         > fail 3 410 token=f2
         ----
         wait",
    );
    let first = fixture.wait_ms();
    for n in 4..4 + u64::from(PAGE_TRIES_MAX) - 3 {
        fixture.script(&format!(
            "> next\n----\nlist {n} continue=f{} limit=50\n> fail {n} 410 token=f{}\n----\nwait",
            n - 2,
            n - 1
        ));
    }
    assert!(fixture.wait_ms() > first, "the waits grow");
    let last = u64::from(PAGE_TRIES_MAX) + 1;
    fixture.script(&format!(
        "> next\n----\nlist {last} continue=f{} limit=50\n> fail {last} 410 token=x\n----\nwait
         > next\n----\nlist {} latest limit=50",
        last - 2,
        last + 1
    ));
}

#[test]
fn i07_tiny_pages_are_asked_for_at_once_up_to_their_limit_and_then_ten_times_a_second() {
    let mut fixture = run("", "list 1 latest limit=500");
    let tiny = u64::from(TINY_PAGES_MAX);
    for n in 1..=tiny {
        fixture.script(&format!(
            "> page {n} rv=10 n{n:04}@1 next=t{n}\n----\nlist {} continue=t{n} limit=500",
            n + 1
        ));
    }
    fixture.script(&format!("> page {} rv=10 n9999@1 next=more", tiny + 1));
    fixture.script(&format!(
        "> at {}\n----\nlist {} continue=more limit=500",
        TINY_PAGE_PAUSE.as_millis(),
        tiny + 2
    ));
}

#[test]
fn i07_a_page_without_objects_is_followed_by_a_wait() {
    run(
        "limit=50",
        "list 1 latest limit=50
         > page 1 rv=10 next=t1
         ----
         wait
         > next
         ----
         list 2 continue=t1 limit=50
         > page 2 rv=10 a@1
         ----
         replace 10: a@1
         watch 3 from=10",
    );
}

#[test]
pub(crate) fn i07_an_event_between_two_relists_does_not_make_them_a_loop() {
    run(
        "at=10",
        "watch 1 from=10
         > events 1 +a@11
         ----
         apply put a@11
         > fail 1 410
         ----
         list 2 latest limit=500
         > page 2 rv=12 a@11
         ----
         replace 12: a@11
         watch 3 from=12
         > events 3 ~a@13
         ----
         apply put a@13
         > fail 3 410
         ----
         wait
         > at 5000
         ----
         list 4 latest limit=500",
    );
}

#[test]
fn i08_a_list_that_holds_more_than_it_may_is_given_up_and_says_so() {
    let each = {
        let mut fixture = run("", "list 1 latest limit=500");
        fixture.script("> page 1 rv=10 a@1 next=t\n----\nlist 2 continue=t limit=500");
        fixture.machine.staged_bytes()
    };
    for (limit, is_taken) in [(2 * each, true), (2 * each - 1, false)] {
        let mut fixture = run(&format!("bytes={limit}"), "list 1 latest limit=500");
        fixture.script("> page 1 rv=10 a@1 next=t\n----\nlist 2 continue=t limit=500");
        let then = if is_taken { "replace 10: a@1 b@1\nwatch 3 from=10" } else { "wait" };
        fixture.script(&format!("> page 2 rv=10 b@1\n----\n{then}"));
        let error = fixture.machine.report(fixture.now).last_error.map(|error| error.class);
        assert_eq!(error, (!is_taken).then_some(Class::TooLarge));
    }
}
