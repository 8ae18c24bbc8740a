//! How fresh reads are, and what they cost.

use masthead_lab::{Etcd, EtcdOptions, Version};
use masthead_store::{Condition, EtcdSettings, EtcdStore, Store};

use crate::lab::{commit, next, open, put, run};

#[test]
fn a_revision_of_somebody_elses_key_holds_nobody_up() {
    for version in [Version::Current, Version::Debian34] {
        run(async move {
            let etcd = Etcd::start_with(&EtcdOptions { version, ..EtcdOptions::default() });
            let store = open([etcd.endpoint()]).await;
            let settings = EtcdSettings::new([etcd.endpoint()]).prefix("somebody");
            let other = EtcdStore::open(settings).await.unwrap();
            commit(&store, put("a", "", Condition::Absent)).await;
            let mut watch = store.watch(store.current().await.unwrap()).unwrap();
            for at in 0..5 {
                commit(&other, put("a", &at.to_string(), Condition::Any)).await;
                let current = store.current().await.unwrap();
                loop {
                    let batch = next(&mut watch).await.unwrap();
                    assert!(batch.events.is_empty(), "it is not ours");
                    if batch.reached >= current {
                        break;
                    }
                }
            }
            assert_eq!(commit(&store, put("b", "", Condition::Absent)).await.0, 8);
            let batch = next(&mut watch).await.unwrap();
            assert_eq!((batch.events.len(), batch.reached.0), (1, 8), "nothing was passed over");
        });
    }
}

#[test]
fn one_question_answers_all_who_waited_when_it_was_asked() {
    run(async {
        let etcd = Etcd::start();
        let store = open([etcd.endpoint()]).await;
        let asked = || etcd.metric("etcd_debugging_mvcc_range_total");
        let before = asked();
        let questions: Vec<_> = (0..1000).map(|_| tokio::spawn(store.current())).collect();
        for question in questions {
            assert_eq!(question.await.unwrap().unwrap().0, 1);
        }
        let took = asked() - before;
        assert!(took <= 100.0, "{took} questions for 1000 answers");
    });
}

#[test]
fn a_range_of_large_objects_comes_in_pages_that_memory_can_hold() {
    run(async {
        let etcd = Etcd::start();
        let store = open([etcd.endpoint()]).await;
        for at in 0..12 {
            commit(&store, put(&format!("n{at:02}"), &"x".repeat(1_000_000), Condition::Absent))
                .await;
        }
        let at = store.current().await.unwrap();
        let (mut after, mut sizes) = (None, Vec::new());
        loop {
            let range =
                masthead_store::Range { resource: crate::lab::pods(), after, limit: 500, at };
            let page = store.range(range).await.unwrap();
            sizes.push(page.values.len());
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(sizes.iter().sum::<usize>(), 12);
        assert!(sizes[1..].iter().all(|size| *size <= 4), "{sizes:?}");
    });
}
