//! Ranges and compaction beyond what small random scripts reach.

use masthead_core::Revision;
use masthead_store::limits::RANGE_BYTES_MAX;
use masthead_store::{Condition, Range};

use crate::lab::{Lab, commit, delete, on_every_store, pods, put};

on_every_store! {
    a_range_at_an_older_revision_is_not_disturbed_by_later_writes
    many_deleted_objects_are_passed_over
    compacting_backwards_or_into_the_future_is_harmless
    |
    a_page_of_large_objects_ends_early
}

async fn a_range_at_an_older_revision_is_not_disturbed_by_later_writes(lab: Lab) {
    for at in 0..300 {
        commit(&*lab.store, put(&format!("n{at:03}"), "old", Condition::Absent)).await;
    }
    let at = lab.store.current().await.unwrap();
    let (mut after, mut count) = (None, 0);
    loop {
        let range = Range { resource: pods(), after, limit: 70, at };
        let page = lab.store.range(range).await.unwrap();
        count += page.values.len();
        assert!(page.values.iter().all(|value| value.revision() <= at));
        after = page.next;
        if after.is_none() {
            break;
        }
        let writes = (0..300).map(|it| put(&format!("n{it:03}"), "new", Condition::Any));
        lab.store
            .commit(writes.chain([put(&format!("m{count}"), "", Condition::Absent)]).collect())
            .await;
    }
    assert_eq!(count, 300);
}

async fn a_page_of_large_objects_ends_early(lab: Lab) {
    let size = 7 * 1024 * 1024;
    for at in 0..10 {
        commit(&*lab.store, put(&format!("n{at}"), &"x".repeat(size), Condition::Absent)).await;
    }
    let at = lab.store.current().await.unwrap();
    let first = Range { resource: pods(), after: None, limit: 100, at };
    let page = lab.store.range(first.clone()).await.unwrap();
    assert_eq!(page.values.len(), RANGE_BYTES_MAX / size);
    let page = lab.store.range(Range { after: page.next, ..first }).await.unwrap();
    assert_eq!((page.values.len(), page.next), (10 - RANGE_BYTES_MAX / size, None));
}

async fn many_deleted_objects_are_passed_over(mut lab: Lab) {
    let name = |at: usize| format!("n{at:03}");
    lab.store.commit((0..200).map(|at| put(&name(at), "", Condition::Absent)).collect()).await;
    lab.store.compact(lab.store.current().await.unwrap()).await.unwrap();
    lab.store.commit((1..199).map(|at| delete(&name(at), Condition::Present)).collect()).await;
    for _ in 0..2 {
        let at = lab.store.current().await.unwrap();
        let range = Range { resource: pods(), after: None, limit: 2, at };
        let page = lab.store.range(range).await.unwrap();
        assert_eq!((page.values.len(), page.next), (2, None));
        lab.reopen().await;
    }
}

async fn compacting_backwards_or_into_the_future_is_harmless(lab: Lab) {
    for at in 0..5 {
        commit(&*lab.store, put("a", &at.to_string(), Condition::Any)).await;
    }
    assert_eq!(lab.store.compact(Revision(4)).await.unwrap(), Revision(4));
    assert_eq!(lab.store.compact(Revision(2)).await.unwrap(), Revision(4));
    assert_eq!(lab.store.compact(Revision(100)).await.unwrap(), Revision(6));
    assert_eq!(lab.store.oldest(), Revision(6));
    assert_eq!(commit(&*lab.store, put("a", "", Condition::At(Revision(6)))).await, Revision(7));
}
