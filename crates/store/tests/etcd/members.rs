//! Members that go, and come back.

use masthead_lab::{EtcdCluster, EtcdOptions};
use masthead_store::{CommitError, Condition, EtcdStore, Store};

use crate::lab::{commit, open, put, revisions_up_to, run, try_commit};

/// A write that is made again while its outcome is unknown; its name is new each time.
async fn commit_surely(store: &EtcdStore, name: &str) -> u64 {
    for attempt in 0.. {
        match try_commit(store, put(&format!("{name}-{attempt}"), "", Condition::Absent)).await {
            Ok(committed) => return committed.revision.0,
            Err(CommitError::Unknown { .. } | CommitError::Unavailable { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    unreachable!("it goes on for ever")
}

#[test]
fn writes_and_watches_go_on_when_the_member_they_use_is_killed_or_hangs() {
    run(async {
        let mut cluster = EtcdCluster::start(3, &EtcdOptions::default());
        let store = open(cluster.endpoints()).await;
        let from = store.current().await.unwrap();
        let mut watch = store.watch(from).unwrap();
        let first = commit(&store, put("first", "", Condition::Absent)).await;
        assert_eq!(revisions_up_to(&mut watch, first).await, [first.0]);
        let mut seen = first.0;
        for round in 0..3 {
            // The one that is asked first, then the one that is asked after it, and so on.
            if round == 1 {
                cluster.members[round].pause();
            } else {
                cluster.members[round].kill();
            }
            let made = commit_surely(&store, &format!("round-{round}")).await;
            let revisions = revisions_up_to(&mut watch, masthead_core::Revision(made)).await;
            assert!(revisions.is_sorted() && revisions[0] > seen, "{revisions:?} after {seen}");
            assert_eq!(revisions.last(), Some(&made));
            seen = made;
            if round == 1 {
                cluster.members[round].resume();
            } else {
                cluster.members[round].restart();
            }
        }
    });
}
