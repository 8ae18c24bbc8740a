//! History that goes, objects that go by themselves, and a past that comes back.

use std::time::Duration;

use masthead_core::Revision;
use masthead_lab::{Etcd, EtcdOptions};
use masthead_store::limits::ETCD_OBJECT_BYTES_MAX;
use masthead_store::{
    CommitError, Condition, EtcdSettings, EtcdStore, EventKind, Health, Store, StoreError,
};
use tokio::time::timeout;

use crate::lab::{commit, next, open, put, run, text_of, try_commit};

#[test]
fn an_etcd_that_was_restored_from_a_backup_is_noticed() {
    run(async {
        let mut etcd = Etcd::start();
        let store = open([etcd.endpoint()]).await;
        commit(&store, put("kept", "", Condition::Absent)).await;
        let backup = etcd.backup();
        for at in 0..5 {
            commit(&store, put(&format!("lost-{at}"), "", Condition::Absent)).await;
        }
        let mut watch = store.watch(store.current().await.unwrap()).unwrap();
        etcd.restore(backup.path());
        let end = loop {
            match next(&mut watch).await {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(end, StoreError::Rewound), "{end:?}");
        assert_eq!(store.current().await.unwrap(), Revision(2), "it goes on with what is there");
        assert!(text_of(&store, "lost-1").await.is_none());
        let mut watch = store.watch(Revision(2)).unwrap();
        let made = commit(&store, put("new", "", Condition::Absent)).await;
        assert_eq!(next(&mut watch).await.unwrap().events[0].revision, made);
    });
}

#[test]
fn a_full_etcd_is_read_only_with_a_word_on_what_to_do_until_there_is_room() {
    run(async {
        let quota_bytes = Some(6 * 1024 * 1024);
        let mut etcd = Etcd::start_with(&EtcdOptions { quota_bytes, ..EtcdOptions::default() });
        let store = open([etcd.endpoint()]).await;
        let mut last = Revision(1);
        let error = loop {
            match try_commit(&store, put("a", &"x".repeat(1_000_000), Condition::Any)).await {
                Ok(committed) => last = committed.revision,
                Err(error) => break error,
            }
        };
        let CommitError::Full { why } = &error else { panic!("{error:?}") };
        assert!(why.contains("etcdctl alarm disarm"));
        assert!(matches!(store.health(), Health::ReadOnly { .. }));
        assert_eq!(store.current().await.unwrap(), last, "reads go on");
        etcd.restart_without_quota();
        etcd.disarm();
        // It is noticed without a write, too: who knows that it is full sends none.
        let writable = async {
            while store.health() != Health::Writable {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(60), writable).await.expect("there is room");
        try_commit(&store, put("b", "", Condition::Any)).await.unwrap();
    });
}

#[test]
fn an_object_may_be_as_large_as_etcd_takes_it_and_no_larger() {
    run(async {
        let etcd = Etcd::start();
        let store = open([etcd.endpoint()]).await;
        let empty = put("a", "", Condition::Any);
        let masthead_store::Op::Put(object) = &empty.op else { unreachable!() };
        let room = ETCD_OBJECT_BYTES_MAX - object.body().len();
        commit(&store, put("a", &"x".repeat(room), Condition::Any)).await;
        let result = try_commit(&store, put("a", &"x".repeat(room + 1), Condition::Any)).await;
        assert!(matches!(result, Err(CommitError::TooLarge { .. })), "{result:?}");
    });
}

#[test]
fn an_object_with_a_time_to_live_goes_by_itself() {
    run(async {
        let etcd = Etcd::start();
        let store = open([etcd.endpoint()]).await;
        let write = put("short", "last words", Condition::Absent);
        let made = commit(&store, write.with_ttl(Some(Duration::from_secs(1)))).await;
        commit(&store, put("long", "", Condition::Absent)).await;
        let mut watch = store.watch(made).unwrap();
        let gone = loop {
            let batch = next(&mut watch).await.unwrap();
            let gone = batch.events.into_iter().find(|event| event.kind == EventKind::Deleted);
            if let Some(gone) = gone {
                break gone;
            }
        };
        assert_eq!(gone.key.name(), "short");
        assert!(str::from_utf8(gone.value.body()).unwrap().contains("last words"));
        assert!(text_of(&store, "long").await.is_some());
    });
}

#[test]
fn history_is_compacted_by_one_of_all_and_not_before_its_time() {
    run(async {
        let etcd = Etcd::start();
        let keep = Duration::from_millis(500);
        let settings = || EtcdSettings::new([etcd.endpoint()]).keep_age(keep);
        let began = std::time::Instant::now();
        let stores = [
            EtcdStore::open(settings()).await.unwrap(),
            EtcdStore::open(settings()).await.unwrap(),
        ];
        commit(&stores[0], put("a", "1", Condition::Absent)).await;
        let compactions = || etcd.metric("etcd_debugging_mvcc_db_compaction_keys_total");
        // A compaction that has nothing to drop is not counted.
        while compactions() == 0.0 {
            assert!(stores.iter().all(|it| it.oldest() == Revision(1)) || began.elapsed() > keep);
            commit(&stores[1], put("a", "2", Condition::Any)).await;
        }
        assert!(began.elapsed() > keep, "{:?}", began.elapsed());
        let range = masthead_store::Range {
            resource: crate::lab::pods(),
            after: None,
            limit: 1,
            at: Revision(2),
        };
        let early = open([etcd.endpoint()]).await.range(range).await.map(|page| page.values.len());
        assert!(matches!(early, Err(StoreError::Expired { .. })), "{early:?}");
    });
}
