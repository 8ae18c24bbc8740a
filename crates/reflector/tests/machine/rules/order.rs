//! R9 to R15 and what belongs to no rule alone: what may be believed, and what is said about it.

use masthead_cache::{Cache, Config};
use masthead_core::{Labels, Object, Revision, Time};
use masthead_reflector::{Class, Phase, share_unchanged};

use crate::fixture::{Fixture, object, run, things};

#[test]
fn r09_a_list_that_leads_back_to_the_expired_revision_is_refused() {
    let fixture = run(
        "at=10",
        "watch 1 from=10
         > fail 1 410
         ----
         list 2 latest limit=500
         > page 2 rv=10 a@1
         ----
         wait
         > next
         ----
         list 3 latest limit=500 elsewhere
         > page 3 rv=11 a@1
         ----
         replace 11: a@1
         watch 4 from=11",
    );
    let report = fixture.machine.report(fixture.now);
    assert_eq!(report.last_error.unwrap().class, Class::RvLoop);
    assert_eq!((report.relists.expired, report.relists.older), (1, 1));
}

#[test]
fn r10_an_older_list_is_refused_and_tried_elsewhere() {
    run(
        "at=100",
        "watch 1 from=100
         > fail 1 410
         ----
         list 2 latest limit=500
         > page 2 rv=60 old@1 next=t
         ----
         wait
         > next
         ----
         list 3 latest limit=500 elsewhere
         > page 3 rv=120 new@110
         ----
         replace 120: new@110
         watch 4 from=120",
    );
}

#[test]
fn r10_a_saved_mark_binds_the_next_run() {
    run(
        "start=100 streaming",
        "watch 1 state
         > events 1 +a@3 end@60
         ----
         cancel 1
         wait
         > next
         ----
         watch 2 state
         > events 2 +a@3 end@100
         ----
         replace 100: a@3",
    );
}

#[test]
fn r10_an_event_that_is_not_news_is_dropped() {
    let fixture = run(
        "at=10",
        "watch 1 from=10
         > events 1 +a@11 +a@11 ~b@9 mark@5 -c@12
         ----
         apply put a@11 delete c@12",
    );
    assert_eq!(fixture.machine.report(fixture.now).stale, 2);
}

#[test]
fn r10_versions_that_are_no_numbers_are_numbered_here() {
    let fixture = run(
        "",
        "list 1 latest limit=500
         > page 1 rv=x9 a@x1
         ----
         replace 1: a@x1
         watch 2 from=x9
         > events 2 ~a@x0 mark@y1
         ----
         apply put a@x0 as 2
         > end 2
         ----
         watch 3 from=y1
         > fail 3 410
         ----
         list 4 latest limit=500
         > page 4 rv=a0 a@x0
         ----
         replace 3: a@x0
         watch 5 from=a0",
    );
    assert!(fixture.machine.report(fixture.now).opaque, "the report says so");
}

#[test]
fn r11_three_lists_below_the_mark_are_one_explicit_rewind() {
    let mut fixture = run(
        "at=100",
        "watch 1 from=100
         > fail 1 410
         ----
         list 2 latest limit=500
         > page 2 rv=60 a@50
         ----
         wait
         > next
         ----
         list 3 latest limit=500 elsewhere
         > page 3 rv=60 a@50
         ----
         wait
         > next
         ----
         list 4 latest limit=500 elsewhere
         > page 4 rv=61 a@50 next=t
         ----
         rewound 100 to 61
         list 5 continue=t limit=500 elsewhere
         > fail 5 410
         ----
         list 6 latest limit=500 elsewhere
         > page 6 rv=62 a@50
         ----
         rewind 62: a@50
         watch 7 from=62",
    );
    let report = fixture.machine.report(fixture.now);
    assert_eq!((report.rewinds, report.revision), (1, Revision(62)));
    fixture.script("> events 7 ~a@63\n----\napply put a@63");
}

#[test]
fn r11_a_rewind_can_come_as_a_stream() {
    run(
        "start=100 streaming",
        "watch 1 state
         > events 1 end@60
         ----
         cancel 1
         wait
         > next
         ----
         watch 2 state
         > events 2 end@60
         ----
         cancel 2
         wait
         > next
         ----
         watch 3 state
         > events 3 +a@5 end@60 ~a@61
         ----
         rewound 100 to 60
         rewind 60: a@5
         apply put a@61",
    );
}

#[test]
fn r11_a_server_that_silently_waits_for_a_lost_revision_is_found_out() {
    run(
        "at=100",
        "watch 1 from=100
         > events 1 mark@101
         ----
         bookmark 101
         > end 1
         ----
         watch 2 from=101
         > open 2
         > next
         ----
         cancel 2
         watch 3 from=101
         > open 3
         > next
         ----
         cancel 3
         list 4 latest limit=500",
    );
}

#[test]
fn r11_silence_without_bookmarks_is_looked_into_less_and_less_often() {
    let mut fixture = Fixture::new("at=100");
    let mut lists = Vec::new();
    for request in 1..=17 {
        let said = fixture.outputs().join(" ");
        if said.contains("list") {
            lists.push(request);
            fixture.input(&format!("page {request} rv=100"));
        } else {
            fixture.input(&format!("open {request}"));
            fixture.input("next");
        }
    }
    assert_eq!(lists, [3, 8, 17]);
}

#[test]
fn r12_a_watch_without_a_revision_records_none_before_a_change() {
    run(
        "",
        "list 1 latest limit=500
         > page 1 rv= a@3
         ----
         replace 1: a@3
         watch 2 from=
         > events 2 +a@3 +b@4
         ----
         apply put a@3 as 2 put b@4 as 3
         > end 2
         ----
         list 3 latest limit=500
         > page 3 rv= a@3 b@4
         ----
         replace 4: a@3 b@4
         watch 4 from=
         > events 4 +a@3 ~b@5
         ----
         apply put a@3 as 5 put b@5 as 6
         > end 4
         ----
         watch 5 from=5",
    );
}

#[test]
fn r13_objects_of_another_kind_are_counted_and_skipped() {
    let fixture = run(
        "",
        "list 1 latest limit=500
         > page 1 rv=10 skipped=2 a@3
         ----
         replace 10: a@3
         watch 2 from=10
         > events 2 skip +b@11
         ----
         apply put b@11",
    );
    assert_eq!(fixture.machine.report(fixture.now).skipped, 3);
}

#[test]
fn r14_r15_a_relist_is_compared_with_the_cache() {
    let (mut writer, cache) = Cache::new(Config::default());
    let first = vec![object("a@1/u1"), object("b@2/u2"), object("c@3/u3"), object("d@4/u4")];
    writer.replace(first, Revision(10), Time(0)).unwrap();
    let before = cache.snapshot().get_str("a").unwrap();
    let second = vec![object("a@1/u1"), object("b@12/u2"), object("d@15/u9")];
    let changes = writer.replace(second, Revision(20), Time(1)).unwrap();
    assert_eq!(changes.len(), 3, "b is updated, c is gone, d was reused");
    assert!(changes.iter().any(masthead_core::Change::replaced));
    let after = cache.snapshot().get_str("a").unwrap();
    assert_eq!(before.body().as_ptr(), after.body().as_ptr(), "a stays the same object");
}

#[test]
fn r11_a_rewind_tells_equal_numbers_with_other_content_apart() {
    let labelled = |label: &str| {
        let body = format!(
            r#"{{"metadata":{{"name":"a","uid":"u","resourceVersion":"60","labels":{{"is":"{label}"}}}}}}"#
        );
        Object::parse(&things(), body.into()).unwrap()
    };
    let (mut writer, cache) = Cache::new(Config::default());
    writer.replace(vec![labelled("lost")], Revision(100), Time(0)).unwrap();
    let mut listed = [labelled("new")];
    share_unchanged(&cache.snapshot(), &mut listed);
    let changes = writer.rewind(listed.to_vec(), Revision(60), Time(1));
    assert_eq!(changes.len(), 1);
    assert_eq!(cache.snapshot().get_str("a").unwrap().label("is"), Some("new"));
}

#[test]
pub(crate) fn a_late_answer_to_a_dead_request_is_dropped() {
    let fixture = run(
        "limit=50",
        "list 1 latest limit=50
         > at 30000
         ----
         cancel 1
         list 2 latest limit=25
         > page 1 rv=5 ghost@1
         > fail 1 500
         > events 1 +ghost@1
         > page 2 rv=10 a@3
         ----
         replace 10: a@3
         watch 3 from=10
         > page 2 rv=4 ghost@2
         > end 2",
    );
    assert_eq!(fixture.machine.report(fixture.now).late, 5);
}

#[test]
fn the_report_says_how_far_and_why_not_further() {
    let mut fixture = Fixture::new("limit=50");
    fixture.outputs();
    assert_eq!(fixture.machine.report(Time(5)).phase, Phase::Connecting);
    fixture.script("> page 1 rv=10 a@1 b@2 next=t more=7\n----\nlist 2 continue=t limit=50");
    let report = fixture.machine.report(Time(900));
    assert_eq!(report.phase.to_string(), "listing 2 of ~9");
    assert_eq!(report.elapsed.as_millis(), 900);
    fixture.script("> fail 2 403\n----\nwait");
    let report = fixture.machine.report(Time(900));
    assert_eq!((report.phase, report.synced, report.pages), (Phase::Failed, false, 1));
    assert_eq!(report.last_error.as_ref().unwrap().class, Class::Forbidden);
    assert!(report.advice().unwrap().contains("Grant"));
    fixture.script(
        "> next
         ----
         list 3 continue=t limit=50
         > page 3 rv=10
         ----
         replace 10: a@1 b@2
         watch 4 from=10",
    );
    let report = fixture.machine.report(fixture.now);
    assert_eq!((report.phase, report.synced, report.objects), (Phase::Synced, true, 2));
    assert_eq!(report.advice(), None);
}
