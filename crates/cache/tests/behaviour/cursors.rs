//! Cursors: what a reader is sent, and who is woken.

use std::task::{Context, Poll};

use masthead_cache::{Batch, Cache, Config, Cursor, From, Gaps, Interest, SubscribeError};
use masthead_core::{Cause, Change, EventType, Revision, Time};

use crate::{Wakes, cache, delete, keeping, labelled, pod, pod_with_uid, put};

/// Type, name and revision of all that is there to read.
fn read(cursor: &mut Cursor) -> Vec<(EventType, String, u64)> {
    let mut batch = Batch::default();
    let mut seen = Vec::new();
    while cursor.try_read(&mut batch, 2).unwrap() {
        seen.extend(
            batch
                .events
                .iter()
                .map(|event| (event.kind, event.object.key().name().to_owned(), event.revision.0)),
        );
    }
    seen
}

#[test]
fn a_quiet_selective_cursor_survives_ten_turnovers_of_the_ring() {
    let (mut writer, cache) = cache(keeping(20));
    let mut quiet =
        cache.subscribe(labelled("app=db"), From::After(Revision(1)), Gaps::End).unwrap();
    let mut busy =
        cache.subscribe(labelled("app=web"), From::After(Revision(1)), Gaps::End).unwrap();
    for rv in 2..202 {
        writer.apply([put(pod("web", r#""app":"web""#, rv))], Time(0));
    }
    assert!(cache.oldest() > Revision(180), "the ring has turned");
    writer.apply([put(pod("db", r#""app":"db""#, 300))], Time(0));
    assert_eq!(read(&mut quiet), [(EventType::Added, "db".to_owned(), 300)]);
    assert_eq!(quiet.progress(), Some(Revision(300)));
    let overtaken = busy.try_read(&mut Batch::default(), 10).unwrap_err();
    assert_eq!((overtaken.read, overtaken.oldest), (Revision(1), cache.oldest()));
}

#[test]
fn only_those_whom_a_change_concerns_are_woken() {
    let (mut writer, cache) = cache(keeping(100));
    let (wakeups, waker) = Wakes::new();
    let mut cursors: Vec<_> = (0..100)
        .map(|i| {
            let interest = labelled(&format!("app=a{i}"));
            cache.subscribe(interest, From::After(Revision(1)), Gaps::End).unwrap()
        })
        .collect();
    let mut batch = Batch::default();
    for cursor in &mut cursors {
        assert!(cursor.poll_read(&mut Context::from_waker(&waker), &mut batch, 9).is_pending());
    }
    writer.apply([put(pod("x", r#""app":"a7""#, 2))], Time(0));
    assert_eq!(wakeups.count(), 1);
    // It moves from one to another: both hear of it, the first of them has something to read already.
    writer.apply([put(pod("x", r#""app":"a8""#, 3))], Time(0));
    assert_eq!(wakeups.count(), 2);
    assert_eq!(
        read(&mut cursors[7]),
        [(EventType::Added, "x".to_owned(), 2), (EventType::Deleted, "x".to_owned(), 3)]
    );
    assert_eq!(read(&mut cursors[8]), [(EventType::Added, "x".to_owned(), 3)]);
    writer.bookmark(Revision(9), Time(0));
    assert_eq!(wakeups.count(), 2, "progress wakeups no cursor");
    drop(cursors);
    assert_eq!(cache.cursors(), 0);
}

#[test]
fn initial_state_then_every_change_without_a_gap() {
    let (mut writer, cache) = cache(keeping(100));
    let pods = (0..5).map(|i| put(pod(&format!("p{i}"), "", 2 + i)));
    writer.apply(pods, Time(0));
    let mut cursor = cache.subscribe(Interest::all(), From::State, Gaps::End).unwrap();
    let mut batch = Batch::default();
    assert!(cursor.try_read(&mut batch, 3).unwrap());
    assert!(batch.events.iter().all(|event| event.initial && event.kind == EventType::Added));
    assert_eq!((batch.events.len(), batch.initial_end), (3, None));
    // A change in the middle of the initial state belongs to what comes after it.
    writer.apply([delete("p4", 10), put(pod("p0", "", 11))], Time(0));
    assert!(cursor.try_read(&mut batch, 3).unwrap());
    assert_eq!((batch.events.len(), batch.initial_end), (2, Some(Revision(6))));
    assert_eq!(
        read(&mut cursor),
        [(EventType::Deleted, "p4".to_owned(), 10), (EventType::Modified, "p0".to_owned(), 11)]
    );
}

#[test]
fn a_cursor_on_an_empty_cache_waits_for_the_first_list() {
    let (mut writer, cache) = Cache::new(Config::default());
    let after = cache.subscribe(Interest::all(), From::After(Revision(1)), Gaps::End);
    assert_eq!(after.unwrap_err(), SubscribeError::NotReady);
    let (wakeups, waker) = Wakes::new();
    let mut cursor = cache.subscribe(Interest::all(), From::State, Gaps::End).unwrap();
    let mut batch = Batch::default();
    let mut cx = Context::from_waker(&waker);
    assert!(cursor.poll_read(&mut cx, &mut batch, 9).is_pending());
    writer.replace(vec![pod("a", "", 3)], Revision(5), Time(0)).unwrap();
    assert_eq!(wakeups.count(), 1);
    assert!(matches!(cursor.poll_read(&mut cx, &mut batch, 9), Poll::Ready(Ok(()))));
    assert_eq!((batch.events.len(), batch.initial_end), (1, Some(Revision(5))));
}

#[test]
fn a_gap_ends_those_who_need_every_change_and_is_bridged_for_the_others() {
    let (mut writer, cache) = cache(keeping(100));
    writer.apply([put(pod("a", "", 2)), put(pod("b", "", 3)), put(pod("c", "", 4))], Time(0));
    let from = From::After(Revision(4));
    let mut watch = cache.subscribe(labelled("no=thing"), from, Gaps::End).unwrap();
    let mut handler = cache.subscribe(Interest::all(), from, Gaps::Bridge).unwrap();
    let list = vec![pod("a", "", 2), pod("b", "", 7), pod_with_uid("c", "", 8, "another")];
    let difference = writer.replace(list, Revision(9), Time(0)).unwrap();
    assert_eq!(difference.len(), 2);
    assert_eq!(cache.oldest(), Revision(9));
    assert!(watch.try_read(&mut Batch::default(), 9).is_err(), "even where nothing matched");
    let mut batch = Batch::default();
    assert!(handler.try_read(&mut batch, 9).unwrap());
    let seen: Vec<_> = batch.events.iter().map(|e| (e.object.key().name(), e.cause)).collect();
    assert_eq!(seen, [("b", Cause::Relist), ("c", Cause::Relist)]);
    let early = cache.subscribe(Interest::all(), From::After(Revision(8)), Gaps::Bridge);
    assert!(matches!(early, Err(SubscribeError::Expired { oldest: Revision(9), .. })));
}

#[test]
fn a_list_that_changes_nothing_at_the_same_revision_ends_nobody() {
    let (mut writer, cache) = cache(keeping(100));
    writer.apply([put(pod("a", "", 2))], Time(0));
    let mut watch = cache.subscribe(Interest::all(), From::After(Revision(1)), Gaps::End).unwrap();
    assert!(writer.replace(vec![pod("a", "", 2)], Revision(2), Time(0)).unwrap().is_empty());
    assert_eq!(read(&mut watch), [(EventType::Added, "a".to_owned(), 2)]);
}

#[test]
fn a_rewound_source_starts_over_and_handlers_get_the_difference() {
    let (mut writer, cache) = cache(keeping(100));
    writer.apply([put(pod("a", "", 50)), put(pod("b", "", 60))], Time(0));
    let mut watch = cache.subscribe(Interest::all(), From::After(Revision(60)), Gaps::End).unwrap();
    let mut handler =
        cache.subscribe(Interest::all(), From::After(Revision(60)), Gaps::Bridge).unwrap();
    let held = cache.snapshot();
    assert!(writer.replace(vec![pod("a", "", 40)], Revision(45), Time(0)).is_err());
    let difference = writer.rewind(vec![pod("a", "", 40)], Revision(45), Time(0));
    assert_eq!(difference.len(), 2);
    assert_eq!((cache.revision(), cache.oldest()), (Revision(45), Revision(45)));
    assert!(watch.try_read(&mut Batch::default(), 9).is_err());
    writer.apply([put(pod("c", "", 46))], Time(0));
    assert_eq!(
        read(&mut handler),
        [
            (EventType::Modified, "a".to_owned(), 45),
            (EventType::Deleted, "b".to_owned(), 45),
            (EventType::Added, "c".to_owned(), 46),
        ]
    );
    // A snapshot from before still shows what it showed.
    assert_eq!(held.get_str("ns/a").unwrap().revision(), Revision(50));
    assert_eq!(cache.snapshot().get_str("ns/a").unwrap().revision(), Revision(40));
}

#[test]
fn what_the_source_repeats_is_ignored() {
    let (mut writer, cache) = cache(keeping(100));
    writer.apply([put(pod("a", "", 5))], Time(0));
    let again = [put(pod("a", "", 5)), put(pod("a", "", 4)), delete("none", 6), delete("a", 3)];
    let applied = writer.apply(again, Time(0));
    assert_eq!((applied.changes, applied.ignored), (0, 4));
    assert_eq!(cache.revision(), Revision(6));
    // Two objects changed by one transaction share a revision.
    let applied = writer.apply([put(pod("a", "", 7)), put(pod("b", "", 7))], Time(0));
    assert_eq!((applied.changes, applied.ignored), (2, 0));
}

/// Name and revision of all objects of a state.
fn shown(state: &masthead_cache::Snapshot) -> Vec<(String, u64)> {
    state.iter().map(|it| (it.key().name().to_owned(), it.revision().0)).collect()
}

#[test]
fn a_position_shows_what_was_read_when_the_history_has_long_gone_on() {
    let (mut writer, cache) = cache(keeping(8));
    writer.apply((0..3).map(|i| put(pod(&format!("p{i}"), "", 2 + i))), Time(0));
    let mut cursor = cache.subscribe(Interest::all(), From::State, Gaps::Bridge).unwrap();
    assert!(cursor.position().is_none(), "nothing was read");
    let mut batch = Batch::default();
    assert!(cursor.try_read(&mut batch, 2).unwrap());
    let initial = cursor.position().unwrap();
    assert_eq!(shown(&initial), [("p0".into(), 2), ("p1".into(), 3), ("p2".into(), 4)]);
    assert!(cursor.try_read(&mut batch, 2).unwrap());
    writer.apply((5..10).map(|rv| put(pod("p0", "", rv))), Time(0));
    assert!(cursor.try_read(&mut batch, 2).unwrap());
    assert_eq!(batch.events.last().unwrap().revision, Revision(6));
    let position = cursor.position().unwrap();
    writer.apply([delete("p1", 20)], Time(0));
    writer.apply((21..60).map(|rv| put(pod("p2", "", rv))), Time(0));
    assert!(cursor.try_read(&mut batch, 2).is_err(), "overtaken");
    assert!(cursor.position().is_none(), "what it would have to begin with is gone");
    let expected = [("p0".into(), 6), ("p1".into(), 3), ("p2".into(), 4)];
    assert_eq!(shown(&position), expected);
    assert!(cache.memory().pinned > 0);

    let present = cursor.rebase();
    assert_eq!(shown(&present), [("p0".into(), 9), ("p2".into(), 59)]);
    assert!(!cursor.try_read(&mut batch, 2).unwrap(), "nothing after the present");
    writer.apply([put(pod("p3", "", 99))], Time(0));
    assert_eq!(read(&mut cursor), [(EventType::Added, "p3".to_owned(), 99)]);
    drop((position, present, initial));
    writer.apply([put(pod("p3", "", 100))], Time(0));
    assert_eq!(cache.memory().pinned, 0);
}

/// Of the events that a read gave.
fn revisions(batch: &Batch) -> Vec<u64> {
    batch.events.iter().map(|event| event.revision.0).collect()
}

#[test]
fn a_batch_says_whether_the_next_reader_is_told_the_very_same() {
    let (mut writer, cache) = cache(keeping(100));
    let follow = || cache.subscribe(Interest::all(), From::After(Revision(1)), Gaps::End).unwrap();
    let (mut one, mut two, mut three) = (follow(), follow(), follow());
    let mut batch = Batch::default();
    writer.apply([put(pod("a", "", 2))], Time(0));
    assert!(one.try_read(&mut batch, 9).unwrap() && !batch.is_as_before());
    assert!(!one.try_read(&mut batch, 9).unwrap());
    assert!(batch.events.is_empty(), "a read that finds nothing shows nothing");
    assert!(two.try_read(&mut batch, 9).unwrap() && batch.is_as_before());
    assert_eq!(revisions(&batch), [2]);

    writer.apply([put(pod("a", "", 3))], Time(0));
    assert!(three.try_read(&mut batch, 9).unwrap() && !batch.is_as_before());
    assert_eq!(revisions(&batch), [2, 3], "the first is known, the second is not");
    assert!(one.try_read(&mut batch, 9).unwrap() && !batch.is_as_before());
    assert_eq!(revisions(&batch), [3]);
    assert!(two.try_read(&mut batch, 9).unwrap() && batch.is_as_before());

    batch.events.clear();
    writer.apply([put(pod("a", "", 4))], Time(0));
    for (reader, as_before) in [(&mut one, false), (&mut two, true)] {
        assert!(reader.try_read(&mut batch, 9).unwrap());
        assert_eq!((revisions(&batch), batch.is_as_before()), (vec![4], as_before));
    }
}

#[test]
fn a_reader_with_another_view_of_a_change_is_told_its_own() {
    let (mut writer, cache) = cache(keeping(100));
    let follow = |interest| cache.subscribe(interest, From::After(Revision(1)), Gaps::End).unwrap();
    writer.apply([put(pod("a", "", 2))], Time(0));
    writer.apply([put(pod("b", "", 3))], Time(0));
    let mut batch = Batch::default();
    assert!(follow(Interest::all()).try_read(&mut batch, 9).unwrap());
    assert_eq!(revisions(&batch), [2, 3]);
    let mut fewer = follow(Interest::all());
    assert!(fewer.try_read(&mut batch, 1).unwrap() && !batch.is_as_before());
    assert_eq!(revisions(&batch), [2], "what is left of the last read is not of this one");
}

#[test]
fn r15_another_uid_under_the_same_name_replaces_the_object() {
    let (mut writer, _cache) = cache(keeping(100));
    writer.apply([put(pod("a", "", 2)), put(pod("b", "", 3))], Time(0));
    let list = vec![pod("a", "", 7), pod_with_uid("b", "", 8, "another")];
    let difference = writer.replace(list, Revision(9), Time(0)).unwrap();
    let replaced: Vec<_> = difference.iter().map(Change::replaced).collect();
    assert_eq!(replaced, [false, true], "a is updated, b is another object");
}
