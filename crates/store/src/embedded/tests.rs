//! Disks that fail, and bounds that only the inside can reach.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use masthead_core::{EventType, Object, ObjectKey, Resource, Revision, Time};
use tempfile::TempDir;

use super::log::Media;
use super::*;
use crate::{Condition, EventKind};

fn pods() -> ResourceName {
    (&Resource::pods()).into()
}

fn put(name: &str) -> Write {
    let body = format!(r#"{{"metadata":{{"namespace":"shop","name":"{name}"}}}}"#);
    let object = Object::parse(&Resource::pods(), body.into()).unwrap();
    Write::put(pods(), object, Condition::Absent)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn commit(store: &EmbeddedStore, name: &str) -> Result<Committed, CommitError> {
    block_on(store.commit(vec![put(name)])).remove(0)
}

fn get(store: &EmbeddedStore, name: &str) -> Option<Value> {
    block_on(store.get(&pods(), &ObjectKey::new("shop", name).unwrap())).unwrap()
}

/// Which part of a write fails, once the switch is on.
#[derive(Clone, Copy, PartialEq)]
enum Broken {
    Append,
    Sync,
}

struct BrokenMedia {
    file: File,
    broken: Broken,
    on: Arc<AtomicBool>,
}

impl BrokenMedia {
    fn check(&self, part: Broken) -> io::Result<()> {
        if self.broken == part && self.on.load(Ordering::Acquire) {
            return Err(io::Error::other("no more room"));
        }
        Ok(())
    }
}

impl Media for BrokenMedia {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        // A full disk takes what it can.
        let room = if self.check(Broken::Append).is_err() { bytes.len() / 2 } else { bytes.len() };
        self.file.append(&bytes[..room])?;
        self.check(Broken::Append)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.check(Broken::Sync)?;
        self.file.sync()
    }
}

fn open_breakable(dir: &TempDir, broken: Broken) -> (EmbeddedStore, Arc<AtomicBool>) {
    let on = Arc::new(AtomicBool::new(false));
    let switch = on.clone();
    let media: MakeMedia =
        Arc::new(move |file| Box::new(BrokenMedia { file, broken, on: switch.clone() }));
    (EmbeddedStore::open_with(dir.path(), Settings::default(), media).unwrap(), on)
}

fn a_failing_disk_makes_the_store_read_only(broken: Broken) {
    let dir = tempfile::tempdir().unwrap();
    let (store, switch) = open_breakable(&dir, broken);
    commit(&store, "before").unwrap();
    let mut watch = store.watch(Revision(1)).unwrap();
    switch.store(true, Ordering::Release);
    let lost = commit(&store, "lost").unwrap_err();
    assert!(
        matches!(&lost, CommitError::ReadOnly { why } if why.contains("no more room")),
        "{lost}"
    );
    // Also when the disk works again: what it has of the lost write is not known.
    switch.store(false, Ordering::Release);
    assert!(matches!(commit(&store, "later"), Err(CommitError::ReadOnly { .. })));
    assert!(matches!(store.health(), Health::ReadOnly { why } if why.contains("no more room")));
    assert_eq!(block_on(store.current()).unwrap(), Revision(2));
    assert!(get(&store, "before").is_some() && get(&store, "lost").is_none());
    let batch = block_on(std::future::poll_fn(|cx| watch.as_mut().poll_next(cx))).unwrap().unwrap();
    assert_eq!(batch.events.iter().map(|event| event.revision.0).collect::<Vec<_>>(), [2]);
    assert!(block_on(store.compact(Revision(2))).is_err(), "nothing is written any more");

    drop(store);
    let store = EmbeddedStore::open(dir.path(), Settings::default()).unwrap();
    assert_eq!(store.health(), Health::Writable);
    assert!(get(&store, "before").is_some() && get(&store, "later").is_none());
    let current = block_on(store.current()).unwrap();
    assert_eq!(commit(&store, "again").unwrap().revision, current.next());
}

#[test]
fn a_failed_sync_makes_the_store_read_only_until_a_restart() {
    a_failing_disk_makes_the_store_read_only(Broken::Sync);
}

#[test]
fn a_full_disk_makes_the_store_read_only_until_a_restart() {
    a_failing_disk_makes_the_store_read_only(Broken::Append);
}

#[test]
fn a_conflict_with_a_write_that_was_lost_is_not_called_one() {
    let dir = tempfile::tempdir().unwrap();
    let (store, switch) = open_breakable(&dir, Broken::Sync);
    switch.store(true, Ordering::Release);
    let results = block_on(store.commit(vec![put("a"), put("a")]));
    assert!(
        results.iter().all(|it| matches!(it, Err(CommitError::ReadOnly { .. }))),
        "{results:?}"
    );
}

#[test]
fn writes_that_wait_when_the_store_is_dropped_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path(), Settings::default()).unwrap();
    let answers: Vec<_> = (0..200).map(|at| store.commit(vec![put(&at.to_string())])).collect();
    drop(store);
    let mut committed = 0;
    for answer in answers {
        match block_on(answer).remove(0) {
            Ok(_) => committed += 1,
            Err(error) => assert!(matches!(error, CommitError::Closed), "{error}"),
        }
    }
    let store = EmbeddedStore::open(dir.path(), Settings::default()).unwrap();
    assert_eq!(block_on(store.current()).unwrap(), Revision(1 + committed));
}

/// A clock that stands until it is set.
fn clock() -> (Arc<AtomicU64>, Clock) {
    let now = Arc::new(AtomicU64::new(1_000_000));
    let shown = now.clone();
    (now, Clock::new(move || Time(shown.load(Ordering::Acquire))))
}

/// Lets the keeper finish: it answers in order.
fn settle(store: &EmbeddedStore) {
    store.keeper.ring();
    for _ in 0..2 {
        block_on(store.compact(Revision(1))).unwrap();
    }
}

#[test]
fn history_goes_when_it_is_too_old_also_if_it_became_so_while_the_store_was_closed() {
    let dir = tempfile::tempdir().unwrap();
    let (now, clock) = clock();
    let settings = Settings::default().keep_age(Duration::from_secs(60)).clock(clock);
    let store = EmbeddedStore::open(dir.path(), settings.clone()).unwrap();
    commit(&store, "a").unwrap();
    now.fetch_add(30_000, Ordering::AcqRel);
    commit(&store, "b").unwrap();
    now.fetch_add(29_999, Ordering::AcqRel);
    settle(&store);
    assert_eq!(store.oldest(), Revision(1), "59.999 s are kept");
    now.fetch_add(1, Ordering::AcqRel);
    settle(&store);
    assert_eq!(store.oldest(), Revision(2), "60 s are not");
    drop(store);
    now.fetch_add(30_000, Ordering::AcqRel);
    let store = EmbeddedStore::open(dir.path(), settings).unwrap();
    settle(&store);
    assert_eq!((store.oldest(), block_on(store.current()).unwrap()), (Revision(3), Revision(3)));
    assert!(get(&store, "a").is_some() && get(&store, "b").is_some());
}

#[test]
fn a_clock_that_is_set_back_does_not_confuse_ages() {
    let dir = tempfile::tempdir().unwrap();
    let (now, clock) = clock();
    let settings = Settings::default().keep_age(Duration::from_secs(60)).clock(clock);
    let store = EmbeddedStore::open(dir.path(), settings).unwrap();
    commit(&store, "a").unwrap();
    now.fetch_sub(500_000, Ordering::AcqRel);
    commit(&store, "b").unwrap();
    settle(&store);
    assert_eq!(store.oldest(), Revision(1));
    now.fetch_add(500_000 + 60_000, Ordering::AcqRel);
    settle(&store);
    assert_eq!(store.oldest(), Revision(3));
}

#[test]
fn superseded_bytes_are_kept_up_to_the_limit_and_not_above_it() {
    let entry = crate::limits::LOG_ENTRY_BYTES as u64;
    let dir = tempfile::tempdir().unwrap();
    // Creations supersede nothing: an entry each.
    let settings = Settings::default().keep_bytes(8 * entry);
    let store = EmbeddedStore::open(dir.path(), settings).unwrap();
    for at in 0..8 {
        commit(&store, &at.to_string()).unwrap();
    }
    settle(&store);
    assert_eq!(store.oldest(), Revision(1), "at the limit");
    commit(&store, "one more").unwrap();
    settle(&store);
    assert_eq!(store.oldest(), Revision(3), "an eighth below it");
}

#[test]
fn files_of_the_log_go_when_all_of_them_is_in_the_base() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path(), Settings::default().segment_bytes(1)).unwrap();
    let files = || std::fs::read_dir(dir.path().join("log")).unwrap().count();
    for at in 0..5 {
        commit(&store, &at.to_string()).unwrap();
    }
    assert_eq!(files(), 5);
    block_on(store.compact(Revision(4))).unwrap();
    assert_eq!(files(), 2);
    block_on(store.compact(Revision(6))).unwrap();
    assert_eq!(files(), 1, "the last one is written to");
}

#[test]
fn damage_to_a_record_that_was_synced_is_reported_and_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings::default().segment_bytes(1);
    let store = EmbeddedStore::open(dir.path(), settings.clone()).unwrap();
    commit(&store, "a").unwrap();
    commit(&store, "b").unwrap();
    drop(store);
    let path = dir.path().join("log").join(format!("{:020}.log", 2));
    let mut content = std::fs::read(&path).unwrap();
    *content.last_mut().unwrap() ^= 1;
    std::fs::write(&path, content).unwrap();
    let store = EmbeddedStore::open(dir.path(), settings).unwrap();
    let key = ObjectKey::new("shop", "a").unwrap();
    assert!(matches!(block_on(store.get(&pods(), &key)), Err(StoreError::Damaged { .. })));
    assert!(get(&store, "b").is_some());
}

/// The last file of a store with two records from two groups, with a byte of one changed.
fn damaged_last_file(record: usize) -> (TempDir, Result<EmbeddedStore, OpenError>) {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path(), Settings::default()).unwrap();
    commit(&store, "a").unwrap();
    commit(&store, "b").unwrap();
    drop(store);
    let path = dir.path().join("log").join(format!("{:020}.log", 2));
    let mut content = std::fs::read(&path).unwrap();
    let middle = content.len() / 2;
    content[middle * record + 20] ^= 1;
    std::fs::write(&path, content).unwrap();
    let opened = EmbeddedStore::open(dir.path(), Settings::default());
    (dir, opened)
}

#[test]
fn damage_before_a_record_that_knows_it_was_whole_is_not_taken_for_a_crash() {
    let (dir, opened) = damaged_last_file(0);
    let refusal = opened.unwrap_err();
    assert!(matches!(refusal, OpenError::Damaged { .. }), "{refusal}");
    assert!(refusal.to_string().contains(&dir.path().display().to_string()), "{refusal}");
}

#[test]
fn a_last_record_that_is_not_whole_is_taken_for_a_crash() {
    let (dir, opened) = damaged_last_file(1);
    let store = opened.unwrap();
    assert_eq!(block_on(store.current()).unwrap(), Revision(2));
    assert!(get(&store, "a").is_some() && get(&store, "b").is_none());
    assert_eq!(commit(&store, "c").unwrap().revision, Revision(3));
    drop(store);
    let store = EmbeddedStore::open(dir.path(), Settings::default()).unwrap();
    assert!(get(&store, "a").is_some() && get(&store, "c").is_some(), "it was really cut off");
}

#[test]
fn so_many_reads_may_wait_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path(), Settings::default()).unwrap();
    // All readers are held, one after the other.
    let (gate, begun) = (Arc::new(parking_lot::Mutex::new(())), std::sync::mpsc::channel());
    let guard = gate.lock();
    for _ in 0..crate::limits::READERS {
        let (gate, begins) = (gate.clone(), begun.0.clone());
        drop(store.readers.read(move |_| {
            let _ = begins.send(());
            drop(gate.lock());
            Ok(())
        }));
        begun.1.recv().unwrap();
    }
    let waiting: Vec<_> =
        (0..crate::limits::READS_WAITING_MAX).map(|_| store.readers.read(|_| Ok(()))).collect();
    assert!(matches!(block_on(store.readers.read(|_| Ok(()))), Err(StoreError::Busy)));
    drop(guard);
    for read in waiting {
        block_on(read).unwrap();
    }
}

#[test]
fn kinds_are_those_of_the_wire() {
    assert_eq!(EventType::from(EventKind::Added), EventType::Added);
    assert_eq!(EventType::from(EventKind::Modified), EventType::Modified);
    assert_eq!(EventType::from(EventKind::Deleted), EventType::Deleted);
}
