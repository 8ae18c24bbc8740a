//! What one call of `commit` means.

use masthead_core::Revision;
use masthead_store::limits::{COMMIT_BYTES_MAX, COMMIT_WRITES_MAX};
use masthead_store::{CommitError, Condition, Requirement};

use crate::lab::{Lab, commit, delete, key, on_every_store, pods, put};

on_every_store! {
    an_empty_store_is_at_revision_1
    conditions_see_the_earlier_writes_of_their_call
    a_write_that_fails_does_not_hold_up_the_next
    deleting_what_is_not_there_is_a_conflict_whatever_the_condition
    a_write_happens_only_if_what_it_requires_has_not_changed
    a_call_may_have_so_many_writes_and_no_more
    |
    calls_get_their_revisions_in_the_order_they_were_made
    a_dropped_answer_does_not_take_the_write_back
    a_call_may_have_so_many_bytes_and_no_more
}

async fn an_empty_store_is_at_revision_1(mut lab: Lab) {
    assert_eq!(lab.store.current().await.unwrap(), Revision(1));
    assert_eq!(lab.store.oldest(), Revision(1));
    lab.reopen().await;
    assert_eq!(lab.store.current().await.unwrap(), Revision(1));
    assert_eq!(commit(&*lab.store, put("a", "", Condition::Absent)).await, Revision(2));
}

async fn conditions_see_the_earlier_writes_of_their_call(lab: Lab) {
    let calls = vec![
        put("a", "1", Condition::Absent),
        put("a", "2", Condition::Absent),
        put("a", "3", Condition::At(Revision(2))),
        delete("a", Condition::At(Revision(3))),
        put("a", "4", Condition::Present),
        put("a", "5", Condition::Absent),
    ];
    let results = lab.store.commit(calls).await;
    let revisions: Vec<_> =
        results.iter().map(|it| it.as_ref().ok().map(|it| it.revision.0)).collect();
    assert_eq!(revisions, [Some(2), None, Some(3), Some(4), None, Some(5)]);
    assert!(matches!(results[1], Err(CommitError::Conflict { current: Some(Revision(2)) })));
    assert!(matches!(results[4], Err(CommitError::Conflict { current: None })));
}

async fn a_write_happens_only_if_what_it_requires_has_not_changed(lab: Lab) {
    let store = &*lab.store;
    let parent = commit(store, put("parent", "1", Condition::Absent)).await;
    let child = |name: &str, revision| {
        let requires = vec![Requirement { resource: pods(), key: key("parent"), revision }];
        put(name, "", Condition::Absent).with_requirements(requires)
    };
    commit(store, child("a", parent)).await;
    let taken = store.commit(vec![child("a", parent)]).await;
    assert!(matches!(taken[0], Err(CommitError::Conflict { current: Some(_) })), "{taken:?}");
    let changed = commit(store, put("parent", "2", Condition::At(parent))).await;
    let stale = store.commit(vec![child("b", parent)]).await;
    assert!(matches!(stale[0], Err(CommitError::Superseded)), "{stale:?}");
    commit(store, child("b", changed)).await;
    // Within a call the earlier writes count.
    let calls = vec![delete("parent", Condition::Any), child("c", changed)];
    let gone = store.commit(calls).await;
    assert!(matches!(gone[1], Err(CommitError::Superseded)), "{gone:?}");
    let never = store.commit(vec![child("c", changed)]).await;
    assert!(matches!(never[0], Err(CommitError::Superseded)), "{never:?}");
}

async fn a_write_that_fails_does_not_hold_up_the_next(lab: Lab) {
    let calls = vec![delete("none", Condition::Any), put("a", "", Condition::Any)];
    let results = lab.store.commit(calls).await;
    assert!(results[0].is_err());
    assert_eq!(results[1].as_ref().unwrap().revision, Revision(2), "no revision is left out");
}

async fn calls_get_their_revisions_in_the_order_they_were_made(lab: Lab) {
    let answers: Vec<_> = (0..50)
        .map(|at| lab.store.commit(vec![put(&format!("n{at}"), "", Condition::Absent)]))
        .collect();
    for (at, answer) in answers.into_iter().enumerate().rev() {
        assert_eq!(answer.await[0].as_ref().unwrap().revision, Revision(2 + at as u64));
    }
}

async fn deleting_what_is_not_there_is_a_conflict_whatever_the_condition(lab: Lab) {
    for condition in
        [Condition::Any, Condition::Absent, Condition::Present, Condition::At(Revision(1))]
    {
        let result = lab.store.commit(vec![delete("none", condition)]).await.remove(0);
        assert!(matches!(result, Err(CommitError::Conflict { current: None })), "{condition:?}");
    }
    assert_eq!(lab.store.current().await.unwrap(), Revision(1));
}

async fn a_dropped_answer_does_not_take_the_write_back(lab: Lab) {
    drop(lab.store.commit(vec![put("a", "", Condition::Absent)]));
    assert_eq!(commit(&*lab.store, put("b", "", Condition::Absent)).await, Revision(3));
    assert!(lab.store.get(&pods(), &key("a")).await.unwrap().is_some());
}

async fn a_call_may_have_so_many_writes_and_no_more(lab: Lab) {
    let writes = |count: usize| -> Vec<_> {
        (0..count).map(|at| put(&format!("n{at}"), "", Condition::Any)).collect()
    };
    let results = lab.store.commit(writes(COMMIT_WRITES_MAX)).await;
    assert!(results.iter().all(Result::is_ok));
    let results = lab.store.commit(writes(COMMIT_WRITES_MAX + 1)).await;
    assert_eq!(results.len(), COMMIT_WRITES_MAX + 1);
    assert!(results.iter().all(|it| matches!(it, Err(CommitError::TooLarge { .. }))));
}

async fn a_call_may_have_so_many_bytes_and_no_more(lab: Lab) {
    let empty = put("a", "", Condition::Any);
    let masthead_store::Op::Put(object) = &empty.op else { unreachable!() };
    let room = COMMIT_BYTES_MAX - object.body_bytes();
    let result =
        lab.store.commit(vec![put("a", &"x".repeat(room), Condition::Any)]).await.remove(0);
    assert!(result.is_ok());
    let result =
        lab.store.commit(vec![put("a", &"x".repeat(room + 1), Condition::Any)]).await.remove(0);
    assert!(matches!(result, Err(CommitError::TooLarge { .. })));
}
