//! Publication and wake-up under many interleavings, with the production code: `--cfg shuttle` swaps
//! the atomics, locks and wakers of the cache for ones whose every step is a point to switch threads.
#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::Arc;

use masthead_cache::{
    Batch, Cache, Config, Cursor, From, Gaps, HistoryLimits, Index, Interest, Snapshot, Writer,
};
use masthead_core::{Mutation, Object, Resource, Revision, Time};
use shuttle::future::block_on;
use shuttle::thread;

fn pod(name: &str, rv: u64) -> Object {
    let body = format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"ns","uid":"{name}","resourceVersion":"{rv}"}}}}"#
    );
    Object::parse(&Resource::pods(), body.into()).unwrap()
}

fn put(name: &str, rv: u64) -> Mutation {
    Mutation::Put { revision: Revision(rv), object: pod(name, rv) }
}

fn cache(changes: usize) -> (Writer, Cache) {
    let history = HistoryLimits { changes, ..HistoryLimits::default() };
    let (mut writer, cache) = Cache::new(Config { history, ..Config::default() });
    writer.replace(vec![pod("a", 1), pod("b", 1)], Revision(1), Time(0)).unwrap();
    (writer, cache)
}

fn follow(cache: &Cache) -> Cursor {
    cache.subscribe(Interest::all(), From::After(Revision(1)), Gaps::End).unwrap()
}

/// Two random schedulers: one that switches anywhere, one that looks for bugs of few switches.
fn everywhere(body: impl Fn() + Send + Sync + Clone + 'static) {
    const SCHEDULES: usize = 2_000;
    shuttle::check_random(body.clone(), SCHEDULES);
    shuttle::check_pct(body, SCHEDULES, 3);
}

/// A waiting reader hears of every change: one that is never woken is a deadlock, which shuttle reports.
fn no_wakeup_is_lost() {
    let (mut writer, cache) = cache(100);
    let mut cursor = follow(&cache);
    let reader = thread::spawn(move || {
        let mut batch = Batch::default();
        let mut seen = Vec::new();
        while seen.len() < 4 {
            block_on(cursor.read(&mut batch, 2)).unwrap();
            seen.extend(batch.events.iter().map(|event| event.revision.0));
        }
        seen
    });
    for rv in [2, 3, 4, 5] {
        writer.apply([put("a", rv)], Time(0));
    }
    assert_eq!(reader.join().unwrap(), [2, 3, 4, 5]);
}

/// A batch is seen whole or not at all, and two looks at one snapshot see the same.
fn no_read_is_torn() {
    let (mut writer, cache) = cache(100);
    let reader = thread::spawn(move || {
        for _ in 0..3 {
            let snapshot = cache.snapshot();
            let look = || {
                let rv = |key| snapshot.get_str(key).unwrap().revision().0;
                (rv("ns/a"), rv("ns/b"))
            };
            let first = look();
            assert!([(1, 1), (2, 3), (4, 5)].contains(&first), "half a batch: {first:?}");
            assert_eq!(look(), first, "one snapshot, two states");
            let listed: Vec<u64> = snapshot.iter().map(|object| object.revision().0).collect();
            assert_eq!(listed, [first.0, first.1]);
        }
    });
    writer.apply([put("a", 2), put("b", 3)], Time(0));
    writer.apply([put("a", 4), put("b", 5)], Time(0));
    reader.join().unwrap();
}

/// What a bookmark says has been handed out before it.
fn no_bookmark_runs_ahead() {
    let (mut writer, cache) = cache(100);
    let mut cursor = follow(&cache);
    let reader = thread::spawn(move || {
        let mut batch = Batch::default();
        let mut read = 1;
        for _ in 0..4 {
            while cursor.try_read(&mut batch, 8).unwrap() {
                read = batch.events.last().unwrap().revision.0;
            }
            if let Some(bookmark) = cursor.progress() {
                assert!(bookmark.0 <= read, "bookmark {bookmark} after event {read}");
            }
            thread::yield_now();
        }
    });
    for rv in [2, 3, 4] {
        writer.apply([put("a", rv)], Time(0));
    }
    reader.join().unwrap();
}

/// With a window of two changes, readers either see all in order with what was before, or are told.
fn the_overtaken_are_told() {
    let (mut writer, cache) = cache(2);
    let mut cursor = follow(&cache);
    let reader = thread::spawn(move || {
        let mut batch = Batch::default();
        let mut last = 1;
        for _ in 0..4 {
            match cursor.try_read(&mut batch, 8) {
                Err(overtaken) => return assert!(overtaken.oldest.0 > last),
                Ok(_) => {
                    for event in &batch.events {
                        assert_eq!(event.revision.0, last + 1, "a gap without a word");
                        let old = event.old.as_ref().map(|old| old.revision().0);
                        assert_eq!(old, Some(last), "what was before was cut too early");
                        last = event.revision.0;
                    }
                }
            }
            thread::yield_now();
        }
    });
    for rv in 2..7 {
        writer.apply([put("a", rv)], Time(0));
    }
    reader.join().unwrap();
}

/// An exact snapshot shows its revision for as long as it is held, while the window moves past it.
fn exact_snapshots_are_pinned() {
    let (mut writer, cache) = cache(2);
    writer.apply([put("a", 2)], Time(0));
    let reader = thread::spawn(move || {
        let Ok(snapshot) = cache.snapshot_at(Revision(2)) else { return };
        for _ in 0..3 {
            assert_eq!(snapshot.get_str("ns/a").map(|a| a.revision().0), Some(2));
            thread::yield_now();
        }
    });
    for rv in 3..8 {
        writer.apply([put("a", rv)], Time(0));
    }
    reader.join().unwrap();
}

/// A held snapshot shows the same while what it sees is superseded, leaves the window and is kept.
fn held_snapshots_outlive_the_window() {
    let (mut writer, cache) = cache(1);
    let reader = thread::spawn(move || {
        let snapshot = cache.snapshot();
        let look = || {
            let rv = |key| snapshot.get_str(key).map(|object| object.revision().0);
            let listed: Vec<u64> = snapshot.iter().map(|object| object.revision().0).collect();
            (rv("ns/a"), rv("ns/b"), listed)
        };
        let first = look();
        assert!(first.0.is_some() && first.1.is_some(), "a state is missing: {first:?}");
        for _ in 0..2 {
            assert_eq!(look(), first, "one snapshot, two states");
        }
    });
    writer.apply([put("a", 2)], Time(0));
    writer.apply([put("b", 3), put("a", 4)], Time(0));
    writer.apply([put("a", 5)], Time(0));
    writer.apply([put("b", 6)], Time(0));
    reader.join().unwrap();
}

/// Readers of old and new snapshots find what is theirs while table, slots and ring grow.
fn growth_disturbs_nobody() {
    let (mut writer, cache) = cache(100);
    let reader = thread::spawn(move || {
        let held = cache.snapshot();
        let seen = held.len();
        for _ in 0..2 {
            let now = cache.snapshot();
            assert_eq!(now.iter().count(), now.len(), "a key is missing");
            for name in ["ns/a", "ns/b", "ns/c", "ns/d", "ns/e"].iter().take(now.len()) {
                assert!(now.get_str(name).is_some(), "{name} is missing");
            }
            assert_eq!((held.len(), held.iter().count()), (seen, seen));
            assert_eq!(held.get_str("ns/e").is_some(), seen == 5);
        }
        let mut cursor =
            cache.subscribe(Interest::all(), From::After(Revision(1)), Gaps::End).unwrap();
        let mut batch = Batch::default();
        let mut next = 2;
        while cursor.try_read(&mut batch, 8).unwrap() {
            for event in &batch.events {
                assert_eq!(event.revision.0, next, "a gap");
                next += 1;
            }
        }
    });
    for (rv, name) in (2..).zip(["c", "d", "a", "e"]) {
        writer.apply([put(name, rv)], Time(0));
    }
    reader.join().unwrap();
}

/// A slot that is given to another key shows nobody a stranger, and hides nothing.
fn slots_change_hands_unnoticed() {
    let (mut writer, cache) = cache(1);
    let reader = thread::spawn(move || {
        for _ in 0..3 {
            let snapshot = cache.snapshot();
            let names: Vec<String> =
                snapshot.iter().map(|object| object.key().name().to_owned()).collect();
            for name in ["a", "b", "c"] {
                let found = snapshot.get_str(&format!("ns/{name}"));
                assert_eq!(
                    found.is_some(),
                    names.iter().any(|it| it == name),
                    "{name} of {names:?}"
                );
                assert!(found.is_none_or(|object| object.key().name() == name), "a stranger");
            }
        }
    });
    let delete =
        Mutation::Delete { revision: Revision(2), key: pod("b", 1).key().clone(), last: None };
    writer.apply([delete], Time(0));
    writer.apply([put("a", 3)], Time(0));
    writer.apply([put("c", 4)], Time(0));
    reader.join().unwrap();
}

/// Pods by the node that they are on.
fn on_nodes(changes: usize) -> (Writer, Cache) {
    let node = Resource::pods().field_index("spec.nodeName").unwrap();
    let by_node = Index::new("node", move |pod, values| {
        values.extend(pod.field(node));
        Ok(())
    });
    let history = HistoryLimits { changes, ..HistoryLimits::default() };
    let indexes = vec![by_node];
    let (mut writer, cache) = Cache::new(Config { history, indexes, ..Config::default() });
    let pods = ["a", "b", "c"].map(|name| pod_on(name, "x", 1)).to_vec();
    writer.replace(pods, Revision(1), Time(0)).unwrap();
    (writer, cache)
}

fn pod_on(name: &str, node: &str, rv: u64) -> Object {
    let body = format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"ns","uid":"{name}","resourceVersion":"{rv}"}},"spec":{{"nodeName":"{node}"}}}}"#
    );
    Object::parse(&Resource::pods(), body.into()).unwrap()
}

fn moved(name: &str, node: &str, rv: u64) -> Mutation {
    Mutation::Put { revision: Revision(rv), object: pod_on(name, node, rv) }
}

/// Each pod stands under its own node, and under no other, in an index and in all objects.
fn look_by_node(snapshot: &Snapshot) -> Vec<(String, String)> {
    let node = Resource::pods().field_index("spec.nodeName").unwrap();
    let pair = |pod: Object| (pod.field(node).unwrap().to_owned(), pod.key().name().to_owned());
    let mut listed: Vec<_> = snapshot.iter().map(pair).collect();
    listed.sort();
    let mut found = Vec::new();
    for node in ["x", "y", "z"] {
        found.extend(snapshot.by_index("node", node).unwrap().map(pair));
    }
    found.sort();
    assert_eq!(found, listed, "the index says something else than the objects");
    found
}

/// An index says of a snapshot what its objects say, while pods move from node to node, nodes come and
/// go and give their numbers to others, and what is under a node grows and shrinks.
fn indexes_are_of_their_snapshots_time() {
    let (mut writer, cache) = on_nodes(1);
    let reader = thread::spawn(move || {
        let held = cache.snapshot();
        let first = look_by_node(&held);
        look_by_node(&cache.snapshot());
        assert_eq!(look_by_node(&held), first, "one snapshot, two states");
    });
    writer.apply([moved("a", "y", 2), moved("b", "y", 3)], Time(0));
    writer.apply([moved("d", "x", 4), moved("a", "z", 5), moved("b", "z", 6)], Time(0));
    writer.apply([moved("c", "z", 7)], Time(0));
    writer.apply([moved("a", "y", 8)], Time(0));
    reader.join().unwrap();
}

/// The same for an exact snapshot, while the window moves past it.
fn indexes_of_exact_snapshots_are_pinned() {
    let (mut writer, cache) = on_nodes(2);
    writer.apply([moved("a", "y", 2)], Time(0));
    let reader = thread::spawn(move || {
        let Ok(snapshot) = cache.snapshot_at(Revision(2)) else { return };
        for _ in 0..2 {
            let there = [("x", "b"), ("x", "c"), ("y", "a")];
            assert_eq!(look_by_node(&snapshot), there.map(|(n, p)| (n.to_owned(), p.to_owned())));
            thread::yield_now();
        }
    });
    writer.apply([moved("a", "x", 3), moved("b", "z", 4)], Time(0));
    writer.apply([moved("a", "z", 5)], Time(0));
    writer.apply([moved("c", "z", 6), moved("b", "x", 7)], Time(0));
    reader.join().unwrap();
}

/// Waiting for a revision ends when it is there.
fn no_wait_is_forgotten() {
    let (mut writer, cache) = cache(100);
    let readers: Vec<_> = [2, 3]
        .map(|rv| {
            let cache = cache.clone();
            thread::spawn(move || block_on(cache.wait_for(Revision(rv))))
        })
        .into();
    writer.apply([put("a", 2)], Time(0));
    writer.bookmark(Revision(3), Time(0));
    for reader in readers {
        reader.join().unwrap();
    }
}

/// A reader that comes before the first list gets the state and all that follows.
fn the_first_list_reaches_those_who_wait() {
    let (mut writer, cache) = Cache::new(Config::default());
    let reader = thread::spawn(move || {
        let mut cursor = cache.subscribe(Interest::all(), From::State, Gaps::End).unwrap();
        let mut batch = Batch::default();
        let mut seen = Vec::new();
        while seen.last() != Some(&4) {
            block_on(cursor.read(&mut batch, 8)).unwrap();
            seen.extend(batch.events.iter().map(|event| event.revision.0));
        }
        let whole: [&[u64]; 3] = [&[1, 3, 4], &[3, 4], &[4]];
        assert!(whole.contains(&&*seen), "{seen:?}");
    });
    writer.replace(vec![pod("a", 1)], Revision(2), Time(0)).unwrap();
    writer.apply([put("a", 3)], Time(0));
    writer.apply([put("a", 4)], Time(0));
    reader.join().unwrap();
}

/// Readers come and go while changes are handed out.
fn coming_and_going_disturbs_nobody() {
    let (mut writer, cache) = cache(100);
    let cache = Arc::new(cache);
    let others: Vec<_> = (0..2)
        .map(|_| {
            let cache = cache.clone();
            thread::spawn(move || {
                let from = From::After(cache.revision());
                let mut cursor = cache.subscribe(Interest::all(), from, Gaps::End).unwrap();
                let mut batch = Batch::default();
                let _ = cursor.try_read(&mut batch, 8).unwrap();
            })
        })
        .collect();
    writer.apply([put("a", 2)], Time(0));
    writer.apply([put("b", 3)], Time(0));
    for other in others {
        other.join().unwrap();
    }
    assert_eq!(cache.cursors(), 0);
}

macro_rules! under_all_interleavings {
    ($($name:ident),* $(,)?) => {
        mod interleaved {
            $(#[test]
            fn $name() {
                super::everywhere(super::$name);
            })*
        }
    };
}

under_all_interleavings! {
    no_wakeup_is_lost,
    no_read_is_torn,
    no_bookmark_runs_ahead,
    the_overtaken_are_told,
    exact_snapshots_are_pinned,
    held_snapshots_outlive_the_window,
    growth_disturbs_nobody,
    slots_change_hands_unnoticed,
    indexes_are_of_their_snapshots_time,
    indexes_of_exact_snapshots_are_pinned,
    no_wait_is_forgotten,
    the_first_list_reaches_those_who_wait,
    coming_and_going_disturbs_nobody,
}

/// Planted races are found.
#[cfg(planted)]
#[test]
fn planted_races_are_caught() {
    use masthead_core::planted;
    let races: [(&'static str, fn()); 7] = [
        ("lost_wakeup", no_wakeup_is_lost),
        ("torn_publish", no_read_is_torn),
        ("bookmark_before_mark", no_bookmark_runs_ahead),
        ("shown_before_sealed", held_snapshots_outlive_the_window),
        ("kept_too_late", held_snapshots_outlive_the_window),
        ("posting_leaves_early", indexes_are_of_their_snapshots_time),
        ("posting_grows_late", indexes_are_of_their_snapshots_time),
    ];
    for (bug, body) in races {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let caught = planted::with(bug, || {
            let caught = std::panic::catch_unwind(|| everywhere(body));
            assert!(planted::reached(), "{bug}: its line was never executed");
            caught
        });
        std::panic::set_hook(hook);
        let panic = caught.expect_err(bug);
        let text = panic.downcast_ref::<String>().map_or("", String::as_str);
        println!("{bug}: caught: {}", text.lines().next().unwrap_or_default());
    }
}
