//! Watches: gap-free, forever.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use masthead_core::Revision;
use masthead_store::limits::EVENTS_BATCH_MAX;
use masthead_store::{Condition, Event, Store, StoreError};

use crate::lab::{Lab, commit, delete, events_up_to, next, on_every_store, put};

on_every_store! {
    a_watch_replays_and_goes_on_live_without_gap_or_duplicate
    a_watch_from_the_future_waits_for_it_to_pass
    what_is_answered_can_be_seen_by_watches
    a_slow_watch_is_told_when_what_it_needs_is_gone
    a_watch_ends_when_the_store_does
    batches_are_bounded
    an_event_of_a_delete_has_the_last_state_at_the_revision_of_the_delete
}

async fn a_watch_replays_and_goes_on_live_without_gap_or_duplicate(mut lab: Lab) {
    const WRITERS: usize = 8;
    const EACH: usize = 100;
    for at in 0..300 {
        commit(&*lab.store, put(&format!("old{at}"), "", Condition::Absent)).await;
    }
    lab.reopen().await;
    let end = Revision(lab.store.current().await.unwrap().0 + (WRITERS * EACH) as u64);
    let writers: Vec<_> = (0..WRITERS).map(|it| write_in_a_thread(&lab.store, it, EACH)).collect();
    for from in [1, 150, 301, 305, 500] {
        let mut watch = lab.store.watch(Revision(from)).unwrap();
        let events = events_up_to(&mut watch, end).await;
        let revisions: Vec<_> = events.iter().map(|event| event.revision.0).collect();
        assert_eq!(revisions, (from + 1..=end.0).collect::<Vec<_>>());
    }
    for writer in writers {
        writer.join().unwrap();
    }
}

fn write_in_a_thread(
    store: &Arc<dyn Store>,
    number: usize,
    writes: usize,
) -> std::thread::JoinHandle<()> {
    let store = store.clone();
    std::thread::spawn(move || {
        crate::lab::block_on(async {
            for at in 0..writes {
                commit(&*store, put(&format!("w{number}-{}", at % 7), "text", Condition::Any))
                    .await;
            }
        });
    })
}

async fn a_watch_from_the_future_waits_for_it_to_pass(lab: Lab) {
    let mut watch = lab.store.watch(Revision(4)).unwrap();
    for at in 0..3 {
        commit(&*lab.store, put("a", &at.to_string(), Condition::Any)).await;
        assert!(nothing_yet(&mut watch), "the future has not passed");
    }
    commit(&*lab.store, put("a", "", Condition::Any)).await;
    assert_eq!(revisions(&next(&mut watch).await.unwrap().unwrap()), [5]);
}

fn nothing_yet(watch: &mut masthead_store::Events) -> bool {
    let next = pin!(next(watch));
    matches!(next.poll(&mut Context::from_waker(Waker::noop())), Poll::Pending)
}

async fn what_is_answered_can_be_seen_by_watches(lab: Lab) {
    let mut watch = lab.store.watch(Revision(1)).unwrap();
    for expected in 2..50 {
        commit(&*lab.store, put("a", "", Condition::Any)).await;
        assert_eq!(lab.store.current().await.unwrap(), Revision(expected));
        assert_eq!(revisions(&next(&mut watch).await.unwrap().unwrap()), [expected]);
    }
}

async fn a_slow_watch_is_told_when_what_it_needs_is_gone(lab: Lab) {
    let mut watch = lab.store.watch(Revision(1)).unwrap();
    // More than any tail holds.
    for _ in 0..6 {
        commit(&*lab.store, put("a", &"x".repeat(1024 * 1024), Condition::Any)).await;
    }
    lab.store.compact(Revision(4)).await.unwrap();
    let end = next(&mut watch).await.unwrap();
    assert!(matches!(end, Err(StoreError::Expired { asked: Revision(1), .. })), "{end:?}");
    assert!(next(&mut watch).await.is_none());
}

async fn a_watch_ends_when_the_store_does(lab: Lab) {
    let mut behind = lab.store.watch(Revision(1)).unwrap();
    commit(&*lab.store, put("a", "", Condition::Any)).await;
    let mut waiting = lab.store.watch(Revision(2)).unwrap();
    assert!(nothing_yet(&mut waiting));
    drop(lab);
    for watch in [&mut behind, &mut waiting] {
        assert!(matches!(next(watch).await, Some(Err(StoreError::Closed))));
        assert!(next(watch).await.is_none());
    }
}

async fn batches_are_bounded(mut lab: Lab) {
    for part in 0..2 {
        let name = |at| format!("n{part}-{at}");
        let writes =
            (0..EVENTS_BATCH_MAX).map(|at| put(&name(at), "", Condition::Absent)).collect();
        lab.store.commit(writes).await;
    }
    for _ in 0..2 {
        let mut watch = lab.store.watch(Revision(2)).unwrap();
        let (mut count, total) = (0, 2 * EVENTS_BATCH_MAX - 1);
        while count < total {
            let batch = next(&mut watch).await.unwrap().unwrap();
            assert!(batch.len() <= EVENTS_BATCH_MAX);
            count += batch.len();
        }
        assert_eq!(count, total);
        drop(watch);
        lab.reopen().await;
    }
}

async fn an_event_of_a_delete_has_the_last_state_at_the_revision_of_the_delete(mut lab: Lab) {
    commit(&*lab.store, put("a", "last words", Condition::Any)).await;
    lab.reopen().await;
    let revision = lab.store.current().await.unwrap();
    let results = lab.store.commit(vec![delete("a", Condition::At(revision))]).await;
    let committed = results[0].as_ref().unwrap();
    let mut watch = lab.store.watch(revision).unwrap();
    let event = next(&mut watch).await.unwrap().unwrap().remove(0);
    for value in [&committed.value, &event.value] {
        let text = str::from_utf8(value.body()).unwrap();
        assert!(text.contains("last words"));
        assert!(text.contains(&format!(r#""resourceVersion":"{}""#, event.revision)));
    }
}

fn revisions(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.revision.0).collect()
}
