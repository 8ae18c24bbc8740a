//! Answers and requests that are lost on the way.

use std::sync::Arc;
use std::time::Duration;

use masthead_lab::{Etcd, Mode, Proxy};
use masthead_store::{CommitError, Condition, EtcdSettings, EtcdStore, Store};

use crate::lab::{commit, key, open, pods, put, revisions_up_to, run, text_of, try_commit};

/// A store behind a link that can be cut, and one that sees everything.
async fn world() -> (Etcd, Proxy, Arc<EtcdStore>, EtcdStore) {
    let etcd = Etcd::start();
    let proxy = Proxy::to(etcd.client_port());
    let settings =
        EtcdSettings::new([proxy.endpoint()]).request_timeout(Duration::from_millis(1000));
    let store = Arc::new(EtcdStore::open(settings).await.unwrap());
    let direct = open([etcd.endpoint()]).await;
    (etcd, proxy, store, direct)
}

/// Waits until an object is there, as seen by a store.
async fn until_there(store: &EtcdStore, name: &str, text: &str) {
    while !text_of(store, name).await.is_some_and(|body| body.contains(text)) {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_write_that_happened_is_not_reported_as_failed() {
    run(async {
        let (_etcd, proxy, store, direct) = world().await;
        let first = commit(&*store, put("a", "old", Condition::Absent)).await;
        for (condition, text) in [(Condition::At(first), "one"), (Condition::Any, "two")] {
            proxy.set(Mode::LoseAnswers);
            let write = tokio::spawn(store.commit(vec![put("a", text, condition)]));
            until_there(&direct, "a", text).await;
            proxy.set(Mode::Pass);
            proxy.cut();
            let committed = write.await.unwrap().remove(0).unwrap();
            let stored = direct.get(&pods(), &key("a")).await.unwrap().unwrap();
            assert_eq!(committed.revision, stored.revision());
            assert_eq!(committed.value.body(), stored.body());
        }
    });
}

#[test]
fn a_write_that_happened_is_found_also_when_others_wrote_after_it() {
    run(async {
        let (_etcd, proxy, store, direct) = world().await;
        let first = commit(&*store, put("a", "old", Condition::Absent)).await;
        proxy.set(Mode::LoseAnswers);
        let write = tokio::spawn(store.commit(vec![put("a", "mine", Condition::At(first))]));
        until_there(&direct, "a", "mine").await;
        let mine = direct.get(&pods(), &key("a")).await.unwrap().unwrap().revision();
        for at in 0..3 {
            commit(&direct, put("a", &format!("theirs {at}"), Condition::Present)).await;
        }
        proxy.set(Mode::Pass);
        proxy.cut();
        assert_eq!(write.await.unwrap().remove(0).unwrap().revision, mine);
    });
}

#[test]
fn a_write_that_did_not_happen_is_made_again_once_it_cannot_happen_late() {
    run(async {
        let (_etcd, proxy, store, direct) = world().await;
        let first = commit(&*store, put("a", "old", Condition::Absent)).await;
        proxy.set(Mode::LoseRequests);
        let write = tokio::spawn(store.commit(vec![put("a", "new", Condition::At(first))]));
        // As large as the request is nothing else that goes over the link.
        while proxy.lost() < 200 {
            tokio::task::yield_now().await;
        }
        proxy.set(Mode::Pass);
        proxy.cut();
        let committed = write.await.unwrap().remove(0).unwrap();
        assert!(text_of(&direct, "a").await.unwrap().contains("new"));
        let fence = Condition::At(committed.revision);
        commit(&direct, put("a", "later", fence)).await;
    });
}

#[test]
fn what_cannot_be_found_out_is_reported_as_unknown() {
    run(async {
        let (_etcd, proxy, store, direct) = world().await;
        proxy.set(Mode::LoseAnswers);
        let write = tokio::spawn(store.commit(vec![put("a", "made", Condition::Absent)]));
        until_there(&direct, "a", "made").await;
        let made = direct.get(&pods(), &key("a")).await.unwrap().unwrap().revision();
        let delete = masthead_store::Write::delete(pods(), key("a"), Condition::At(made));
        commit(&direct, delete).await;
        proxy.set(Mode::Pass);
        proxy.cut();
        let result = write.await.unwrap().remove(0);
        assert!(matches!(result, Err(CommitError::Unknown { .. })), "{result:?}");
    });
}

#[test]
fn a_write_that_was_not_sent_is_reported_as_not_happened() {
    run(async {
        let mut etcd = Etcd::start();
        let store = open([etcd.endpoint()]).await;
        etcd.kill();
        // The first may still go out on a connection that is breaking.
        let mut result = try_commit(&store, put("a", "", Condition::Absent)).await;
        while matches!(result, Err(CommitError::Unknown { .. })) {
            result = try_commit(&store, put("a", "", Condition::Absent)).await;
        }
        assert!(matches!(result, Err(CommitError::Unavailable { .. })), "{result:?}");
        etcd.restart();
        commit(&store, put("a", "", Condition::Absent)).await;
    });
}

#[test]
fn a_watch_goes_on_without_a_gap_when_its_link_is_cut() {
    run(async {
        let (_etcd, proxy, store, direct) = world().await;
        let from = store.current().await.unwrap();
        let mut watch = store.watch(from).unwrap();
        for round in 0..5 {
            let first = commit(&direct, put(&format!("{round}-a"), "", Condition::Absent)).await;
            assert_eq!(revisions_up_to(&mut watch, first).await, [first.0]);
            proxy.cut();
            let second = commit(&direct, put(&format!("{round}-b"), "", Condition::Absent)).await;
            let third = commit(&direct, put(&format!("{round}-c"), "", Condition::Absent)).await;
            assert_eq!(revisions_up_to(&mut watch, third).await, [second.0, third.0]);
        }
    });
}
