//! Bounds of the history window, and what snapshots keep beyond it.

use std::time::Duration;

use masthead_cache::{Batch, From, Gaps, HistoryLimits, Interest, SnapshotError};
use masthead_core::{Revision, Time};

use crate::{cache, delete, keeping, pod, put};

#[test]
fn the_window_holds_as_many_changes_as_allowed_and_not_one_more() {
    let (mut writer, cache) = cache(keeping(3));
    for rv in 2..5 {
        writer.apply([put(pod("a", "", rv))], Time(0));
    }
    assert_eq!(cache.oldest(), Revision(1));
    writer.apply([put(pod("a", "", 5))], Time(0));
    assert_eq!(cache.oldest(), Revision(2));
    assert_eq!(
        cache.snapshot_at(Revision(2)).unwrap().get_str("ns/a").unwrap().revision(),
        Revision(2)
    );
    let expired = cache.snapshot_at(Revision(1)).unwrap_err();
    assert_eq!(expired, SnapshotError::Expired { asked: Revision(1), oldest: Revision(2) });
    let future = cache.snapshot_at(Revision(6)).unwrap_err();
    assert_eq!(future, SnapshotError::Future { asked: Revision(6), current: Revision(5) });
}

#[test]
fn the_window_holds_as_many_bytes_as_allowed_and_not_one_more() {
    let history_after = |bytes: usize| {
        let (mut writer, cache) = cache(HistoryLimits { bytes, ..HistoryLimits::default() });
        for rv in 2..12 {
            writer.apply([put(pod("a", "", rv))], Time(0));
        }
        (cache.memory().history, cache.oldest())
    };
    let (all, oldest) = history_after(usize::MAX);
    assert_eq!(oldest, Revision(1));
    assert_eq!(history_after(all), (all, Revision(1)));
    let (less, oldest) = history_after(all - 1);
    assert!(less < all && oldest == Revision(2), "{less} {oldest}");
}

#[test]
fn what_a_reader_has_not_read_is_kept_up_to_a_bound_of_its_own_and_not_one_byte_more() {
    let read_after = |unread_bytes: usize, changes: u64| {
        let (mut writer, cache) = cache(HistoryLimits { unread_bytes, ..keeping(2) });
        let from = From::After(Revision(1));
        let mut cursor = cache.subscribe(Interest::all(), from, Gaps::Bridge).unwrap();
        // In one publication and in several: what is marked only now counts as unread, too.
        writer.apply([put(pod("a", "", 2))], Time(0));
        writer.apply((3..7).map(|rv| put(pod("a", "", rv))), Time(0));
        for rv in 7..2 + changes {
            writer.apply([put(pod("a", "", rv))], Time(0));
        }
        let (kept, mut batch) = (cache.memory().history, Batch::default());
        let read = cursor.try_read(&mut batch, 100).map(|_| batch.events.len());
        // Read or overtaken, nobody needs it any more.
        cursor.rebase();
        writer.tick(Time(0));
        assert_eq!(cache.oldest(), Revision(changes - 1));
        (read.ok(), kept)
    };
    let (read, all) = read_after(usize::MAX, 12);
    assert_eq!(read, Some(12));
    assert_eq!(read_after(all, 12), (Some(12), all));
    let (read, kept) = read_after(all - 1, 12);
    assert!(read.is_none() && kept < all, "{read:?} {kept} {all}");
    assert_eq!(read_after(0, 12).0, None);
}

#[test]
fn the_window_holds_no_more_for_readers_that_have_read_everything() {
    let (mut writer, cache) = cache(HistoryLimits { unread_bytes: usize::MAX, ..keeping(2) });
    let mut cursor = cache.subscribe(Interest::all(), From::State, Gaps::Bridge).unwrap();
    let mut batch = Batch::default();
    for rv in 2..9 {
        while cursor.try_read(&mut batch, 100).unwrap() {}
        writer.apply([put(pod("a", "", rv))], Time(0));
    }
    assert_eq!(cache.oldest(), Revision(6));
}

#[test]
fn the_window_holds_changes_up_to_their_age_and_no_longer() {
    let age = Duration::from_millis(1000);
    let (mut writer, cache) = cache(HistoryLimits { age, ..HistoryLimits::default() });
    writer.apply([put(pod("a", "", 2))], Time(0));
    writer.apply([put(pod("a", "", 3))], Time(500));
    writer.tick(Time(1000));
    assert_eq!(cache.oldest(), Revision(1));
    writer.tick(Time(1001));
    assert_eq!(cache.oldest(), Revision(2));
    writer.tick(Time(1501));
    assert_eq!((cache.oldest(), cache.memory().history), (Revision(3), 0));
}

#[test]
fn a_held_snapshot_keeps_what_it_sees_and_nothing_else() {
    let (mut writer, cache) = cache(keeping(1));
    writer.apply([put(pod("a", "", 2)), put(pod("b", "", 3))], Time(0));
    let held = cache.snapshot();
    for rv in 4..1000 {
        writer.apply([put(pod("a", "", rv))], Time(0));
    }
    writer.apply([delete("b", 1000), put(pod("c", "", 1001))], Time(0));
    let one = pod("a", "", 2).body_bytes() + pod("b", "", 3).body_bytes();
    let pinned = cache.memory().pinned;
    assert!(pinned >= one && pinned < 3 * one + 1024, "two of a thousand states: {pinned}");
    assert_eq!(held.get_str("ns/a").unwrap().revision(), Revision(2));
    assert_eq!(held.get_str("ns/b").unwrap().revision(), Revision(3));
    assert_eq!((held.len(), held.iter().count()), (2, 2));
    drop(held);
    writer.tick(Time(0));
    assert_eq!(cache.memory().pinned, 0);
    assert!(cache.snapshot().get_str("ns/b").is_none());
}

#[test]
fn an_exact_snapshot_in_the_middle_of_the_window_outlives_it() {
    let (mut writer, cache) = cache(keeping(10));
    for rv in 2..12 {
        writer.apply([put(pod("a", "", rv)), put(pod(&format!("p{rv}"), "", rv))], Time(0));
    }
    let held = cache.snapshot_at(Revision(9)).unwrap();
    for rv in 12..100 {
        writer.apply([put(pod("a", "", rv)), delete(&format!("p{}", rv - 10), rv)], Time(0));
    }
    assert_eq!(held.revision(), Revision(9));
    assert_eq!(held.get_str("ns/a").unwrap().revision(), Revision(9));
    let names: Vec<String> = held.iter().map(|object| object.key().name().to_owned()).collect();
    assert_eq!(names, ["a", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9"]);
    // Several states of one object were kept for it: all of them go with it.
    drop(held);
    writer.tick(Time(0));
    assert_eq!(cache.memory().pinned, 0);
    assert_eq!(cache.snapshot().get_str("ns/a").unwrap().revision(), Revision(99));
}

#[test]
fn keys_come_and_go_without_leaving_anything() {
    let (mut writer, cache) = cache(keeping(100));
    let mut rv = 1;
    for round in 0..50 {
        for at in 0..100 {
            rv += 1;
            writer.apply([put(pod(&format!("{round}-{at}"), "", rv))], Time(0));
        }
        for at in 0..100 {
            rv += 1;
            writer.apply([delete(&format!("{round}-{at}"), rv)], Time(0));
        }
        let memory = cache.memory();
        assert_eq!((memory.objects, memory.bodies), (0, 0));
        assert!(memory.total() < 200 * 2000, "{memory:?}");
    }
}

#[test]
fn states_kept_for_two_snapshots_go_in_whatever_order_they_are_let_go() {
    let age = Duration::from_secs(60);
    let (mut writer, cache) = cache(HistoryLimits { changes: 6, age, ..HistoryLimits::default() });
    writer.apply([put(pod("y", "", 2)), put(pod("z", "", 3)), delete("z", 4)], Time(0));
    let first = cache.snapshot_at(Revision(3)).unwrap();
    writer.apply([put(pod("x", "", 5))], Time(0));
    writer.bookmark(Revision(6), Time(0));
    let second = cache.snapshot_at(Revision(3)).unwrap();
    let batch = [
        delete("x", 7),
        put(pod("x", "", 8)),
        delete("x", 9),
        put(pod("x", "", 10)),
        put(pod("z", "", 11)),
    ];
    writer.apply(batch, Time(0));
    drop(second);
    writer.tick(Time(61_000));
    assert_eq!(first.get_str("ns/z").unwrap().revision(), Revision(3));
    drop(first);
    writer.tick(Time(61_000));
    assert_eq!((cache.memory().pinned, cache.memory().history), (0, 0));
    assert_eq!(cache.snapshot().iter().count(), 3);
}

#[test]
fn keys_of_any_length_are_told_apart() {
    let (mut writer, cache) = cache(keeping(1));
    let name = |len: usize, last: char| format!("{}{last}", "k".repeat(len - 1));
    let names: Vec<String> = [1, 43, 44, 45, 46, 100, 252, 253]
        .iter()
        .flat_map(|&len| ['a', 'b'].map(|last| name(len, last)))
        .collect();
    let batch = (2..).zip(&names).map(|(rv, name)| put(pod(name, "", rv)));
    writer.apply(batch.collect::<Vec<_>>(), Time(0));
    for (rv, name) in (2..).zip(&names) {
        let found = cache.snapshot().get_str(&format!("ns/{name}")).unwrap();
        assert_eq!((found.revision(), found.key().name()), (Revision(rv), name.as_str()));
    }
    assert!(cache.snapshot().get_str(&format!("ns/{}", name(253, 'c'))).is_none());
    writer.apply([delete(&names[15], 100)], Time(0));
    assert!(cache.snapshot().get_str(&format!("ns/{}", names[15])).is_none());
    assert!(cache.snapshot().get_str(&format!("ns/{}", names[14])).is_some());
}
