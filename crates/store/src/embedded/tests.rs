//! Disks that fail, and bounds that only the inside can reach.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use masthead_core::{EventType, Object, ObjectKey, Resource, Revision, Time};
use tempfile::TempDir;

use super::failure::WriteError;
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
    /// Appending, and then taking back what was appended.
    AppendAndCut,
    /// Writing a file anew.
    Replace,
}

/// A disk that fails with an error when it is switched to.
struct BrokenDisk {
    broken: Broken,
    error: io::ErrorKind,
    on: Arc<AtomicBool>,
}

impl BrokenDisk {
    fn check(&self, parts: &[Broken]) -> io::Result<()> {
        if parts.contains(&self.broken) && self.on.load(Ordering::Acquire) {
            return Err(io::Error::new(self.error, "no more room"));
        }
        Ok(())
    }
}

impl Disk for BrokenDisk {
    fn media(&self, file: File) -> Box<dyn Media> {
        let Self { broken, error, on } = self;
        let disk = Self { broken: *broken, error: *error, on: on.clone() };
        Box::new(BrokenMedia { file, disk })
    }

    fn replace(&self, dir: &Path, name: &str, content: &[u8]) -> Result<(), WriteError> {
        self.check(&[Broken::Replace]).map_err(WriteError::before_sync)?;
        directory::replace(dir, name, content)
    }

    fn probe(&self, _: &Path) -> Result<(), WriteError> {
        let parts = [Broken::Append, Broken::AppendAndCut, Broken::Replace];
        self.check(&parts).map_err(WriteError::before_sync)
    }
}

struct BrokenMedia {
    file: File,
    disk: BrokenDisk,
}

impl Media for BrokenMedia {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let failed = self.disk.check(&[Broken::Append, Broken::AppendAndCut]);
        // A full disk takes what it can.
        let room = if failed.is_err() { bytes.len() / 2 } else { bytes.len() };
        self.file.append(&bytes[..room])?;
        failed
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.check(&[Broken::Sync])?;
        self.file.sync()
    }

    fn cut(&mut self, end: u64) -> io::Result<()> {
        self.disk.check(&[Broken::AppendAndCut])?;
        self.file.cut(end)
    }
}

fn open_breakable(
    dir: &TempDir,
    broken: Broken,
    error: io::ErrorKind,
) -> (EmbeddedStore, Arc<AtomicBool>) {
    let on = Arc::new(AtomicBool::new(false));
    let disk = Arc::new(BrokenDisk { broken, error, on: on.clone() });
    (EmbeddedStore::open_with(dir.path(), Settings::default(), disk).unwrap(), on)
}

/// The text of the error of a write that was not tried, or failed, and says so in the store's health.
fn refused(store: &EmbeddedStore, name: &str) -> CommitError {
    let error = commit(store, name).unwrap_err();
    let (CommitError::ReadOnly { why } | CommitError::Full { why }) = &error else {
        panic!("{error}")
    };
    assert_eq!(store.health(), Health::ReadOnly { why: why.clone() });
    assert!(why.contains("no more room"), "{why}");
    assert!(why.contains(&store.shared.dir().display().to_string()), "{why}");
    error
}

fn a_failing_disk_makes_the_store_read_only(broken: Broken, error: io::ErrorKind) {
    let dir = tempfile::tempdir().unwrap();
    let (store, switch) = open_breakable(&dir, broken, error);
    commit(&store, "before").unwrap();
    let mut watch = store.watch(Revision(1)).unwrap();
    switch.store(true, Ordering::Release);
    assert!(matches!(refused(&store, "lost"), CommitError::ReadOnly { .. }));
    // Also when the disk works again: what it has of the lost write is not known.
    switch.store(false, Ordering::Release);
    let later = refused(&store, "later");
    assert!(matches!(later, CommitError::ReadOnly { .. }));
    assert!(later.to_string().contains("restart the server"), "{later}");
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
    a_failing_disk_makes_the_store_read_only(Broken::Sync, io::ErrorKind::Other);
}

#[test]
fn a_failed_sync_makes_the_store_read_only_until_a_restart_also_for_lack_of_room() {
    a_failing_disk_makes_the_store_read_only(Broken::Sync, io::ErrorKind::StorageFull);
}

#[test]
fn a_failed_write_makes_the_store_read_only_until_a_restart() {
    a_failing_disk_makes_the_store_read_only(Broken::Append, io::ErrorKind::Other);
}

#[test]
fn a_log_that_cannot_be_cut_back_makes_the_store_read_only_until_a_restart() {
    a_failing_disk_makes_the_store_read_only(Broken::AppendAndCut, io::ErrorKind::StorageFull);
}

#[test]
fn the_milestone_names_the_newest_files_of_the_log_and_no_more() {
    let most = u64::try_from(crate::limits::REACHED_FILES_MAX).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings::default().segment_bytes(1);
    let store = EmbeddedStore::open(dir.path(), settings).unwrap();
    for at in 0..most {
        commit(&store, &at.to_string()).unwrap();
    }
    let files = || Milestone::read(dir.path()).unwrap().unwrap().files;
    assert_eq!(files(), (2..2 + most).map(Revision).collect::<Vec<_>>());
    commit(&store, "one more").unwrap();
    assert_eq!(files(), (3..3 + most).map(Revision).collect::<Vec<_>>());
}

#[test]
fn a_group_whose_milestone_has_no_room_is_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings::default().segment_bytes(1);
    let on = Arc::new(AtomicBool::new(false));
    let (broken, error) = (Broken::Replace, io::ErrorKind::StorageFull);
    let disk = Arc::new(BrokenDisk { broken, error, on: on.clone() });
    let store = EmbeddedStore::open_with(dir.path(), settings.clone(), disk).unwrap();
    commit(&store, "before").unwrap();
    on.store(true, Ordering::Release);
    assert!(matches!(refused(&store, "lost"), CommitError::Full { .. }));
    on.store(false, Ordering::Release);
    drop(store);
    let store = EmbeddedStore::open(dir.path(), settings).unwrap();
    assert_eq!(block_on(store.current()).unwrap(), Revision(2));
    assert!(get(&store, "before").is_some() && get(&store, "lost").is_none());
    assert_eq!(commit(&store, "next").unwrap().revision, Revision(3));
}

#[test]
fn a_milestone_that_cannot_be_written_makes_the_store_read_only_until_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings::default().segment_bytes(1);
    let store = EmbeddedStore::open(dir.path(), settings).unwrap();
    commit(&store, "before").unwrap();
    std::fs::create_dir(dir.path().join("REACHED.new")).unwrap();
    let error = commit(&store, "lost").unwrap_err();
    assert!(matches!(error, CommitError::ReadOnly { .. }), "{error}");
    assert_eq!(block_on(store.current()).unwrap(), Revision(2), "it is not shown");
}

fn a_full_disk_takes_writes_again_when_there_is_room(error: io::ErrorKind) {
    let dir = tempfile::tempdir().unwrap();
    let (store, switch) = open_breakable(&dir, Broken::Append, error);
    commit(&store, "before").unwrap();
    let mut watch = store.watch(Revision(1)).unwrap();
    switch.store(true, Ordering::Release);
    for name in ["first", "second", "before"] {
        let refusal = refused(&store, name);
        assert!(matches!(refusal, CommitError::Full { .. }), "{refusal}");
        assert!(refusal.to_string().contains("free space"), "{refusal}");
    }
    settle(&store);
    assert!(matches!(store.health(), Health::ReadOnly { .. }), "there is no room yet");
    assert!(get(&store, "before").is_some() && get(&store, "first").is_none());
    assert_eq!(block_on(store.current()).unwrap(), Revision(2));
    assert!(block_on(store.compact(Revision(2))).is_err(), "nothing is folded");

    switch.store(false, Ordering::Release);
    settle(&store);
    assert_eq!(store.health(), Health::Writable);
    assert_eq!(commit(&store, "second").unwrap().revision, Revision(3));
    assert!(matches!(commit(&store, "second"), Err(CommitError::Conflict { .. })));
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let next = std::future::poll_fn(|cx| watch.as_mut().poll_next(cx));
        seen.extend(block_on(next).unwrap().unwrap().events);
    }
    let seen: Vec<_> = seen.iter().map(|it| (it.key.name(), it.revision.0)).collect();
    assert_eq!(seen, [("before", 2), ("second", 3)]);

    drop(store);
    let store = EmbeddedStore::open(dir.path(), Settings::default()).unwrap();
    assert_eq!(block_on(store.current()).unwrap(), Revision(3));
    assert!(get(&store, "first").is_none() && get(&store, "second").is_some());
}

#[test]
fn a_disk_without_room_takes_writes_again_when_there_is_some() {
    a_full_disk_takes_writes_again_when_there_is_room(io::ErrorKind::StorageFull);
}

#[test]
fn a_quota_that_is_used_up_is_a_full_disk() {
    a_full_disk_takes_writes_again_when_there_is_room(io::ErrorKind::QuotaExceeded);
}

#[test]
fn what_was_decided_on_top_of_a_group_without_room_is_not_written_either() {
    let dir = tempfile::tempdir().unwrap();
    let (store, switch) = open_breakable(&dir, Broken::Append, io::ErrorKind::StorageFull);
    commit(&store, "kept").unwrap();
    let delete = |name: &str, condition| {
        Write::delete(pods(), ObjectKey::new("shop", name).unwrap(), condition)
    };
    switch.store(true, Ordering::Release);
    // All are under way at once, in groups as they come. Each is decided on top of those before it.
    let mut answers = Vec::new();
    for n in 0..50 {
        let (name, revision) = (format!("lost-{n}"), Revision(3 + 3 * n));
        answers.push(store.commit(vec![put(&name)]));
        answers.push(store.commit(vec![delete(&name, Condition::At(revision)), put(&name)]));
    }
    answers.push(store.commit(vec![delete("kept", Condition::Present)]));
    answers.push(store.commit(vec![put("lost-0"), put("kept")]));
    for answer in answers {
        let answer = block_on(answer);
        assert!(answer.iter().all(|it| matches!(it, Err(CommitError::Full { .. }))), "{answer:?}");
    }
    switch.store(false, Ordering::Release);
    settle(&store);
    let result = block_on(store.commit(vec![delete("lost-0", Condition::Any), put("kept")]));
    assert!(
        result.iter().all(|it| matches!(it, Err(CommitError::Conflict { .. }))),
        "decided by what is there: {result:?}"
    );
    assert_eq!(commit(&store, "lost-0").unwrap().revision, Revision(3));
    drop(store);
    let store = EmbeddedStore::open(dir.path(), Settings::default()).unwrap();
    assert_eq!(block_on(store.current()).unwrap(), Revision(3));
    assert!(get(&store, "kept").is_some() && get(&store, "lost-1").is_none());
}

/// Fills up and has room again, at each append and probe as a seed has it.
struct MoodyDisk(Arc<AtomicU64>);

impl MoodyDisk {
    fn is_full(moods: &AtomicU64) -> bool {
        let next = |seed: u64| Some(seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        let seed = moods.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).unwrap();
        (seed >> 33).is_multiple_of(4)
    }
}

impl Disk for MoodyDisk {
    fn media(&self, file: File) -> Box<dyn Media> {
        Box::new(MoodyMedia { file, moods: self.0.clone() })
    }

    fn replace(&self, dir: &Path, name: &str, content: &[u8]) -> Result<(), WriteError> {
        self.probe(dir)?;
        directory::replace(dir, name, content)
    }

    fn probe(&self, _: &Path) -> Result<(), WriteError> {
        let full = WriteError::NoRoom(io::ErrorKind::StorageFull.into());
        if Self::is_full(&self.0) { Err(full) } else { Ok(()) }
    }
}

struct MoodyMedia {
    file: File,
    moods: Arc<AtomicU64>,
}

impl Media for MoodyMedia {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if MoodyDisk::is_full(&self.moods) {
            self.file.append(&bytes[..bytes.len() * 2 / 3])?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    fn cut(&mut self, end: u64) -> io::Result<()> {
        self.file.cut(end)
    }
}

/// What became of one object, as its writer was told.
fn write_on_a_moody_disk(store: &EmbeddedStore, writer: usize) -> (usize, Option<Revision>) {
    let key = ObjectKey::new("shop", &format!("pod-{writer}")).unwrap();
    let (mut now, mut full, mut n) = (None, 0, 0);
    let deadline = Instant::now() + Duration::from_secs(60);
    while n < 40 {
        assert!(Instant::now() < deadline, "it was always full");
        let condition = now.map_or(Condition::Absent, Condition::At);
        let write = if n % 5 == 4 {
            Write::delete(pods(), key.clone(), condition)
        } else {
            Write { condition, ..put(key.name()) }
        };
        let deletes = matches!(write.op, crate::Op::Delete);
        match block_on(store.commit(vec![write])).remove(0) {
            Ok(_) if deletes => now = None,
            Ok(committed) => now = Some(committed.revision),
            Err(CommitError::Full { .. }) => {
                full += 1;
                store.keeper.ring();
                std::thread::yield_now();
                continue;
            }
            // Nobody else writes it, so only a delete of nothing may lose.
            Err(CommitError::Conflict { current: None }) if deletes && now.is_none() => {}
            Err(error) => panic!("{error:?}"),
        }
        n += 1;
    }
    (full, now)
}

#[test]
fn on_a_disk_that_fills_up_now_and_then_writers_are_told_what_happened_and_nothing_else_did() {
    for seed in 0..2 {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings::default().segment_bytes(2000).keep_bytes(10_000).tail_bytes(2000);
        let disk = Arc::new(MoodyDisk(Arc::new(AtomicU64::new(seed))));
        let store = EmbeddedStore::open_with(dir.path(), settings.clone(), disk).unwrap();
        let told: Vec<_> = std::thread::scope(|scope| {
            let run = |writer| {
                scope.spawn({
                    let store = &store;
                    move || write_on_a_moody_disk(store, writer)
                })
            };
            let writers: Vec<_> = (0..4).map(run).collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        assert!(told.iter().any(|(full, _)| *full > 0), "seed {seed}: it was never full");
        let current = block_on(store.current()).unwrap();
        drop(store);
        let store = EmbeddedStore::open(dir.path(), settings).unwrap();
        assert_eq!(block_on(store.current()).unwrap(), current, "seed {seed}");
        for (writer, (_, now)) in told.into_iter().enumerate() {
            let stored = get(&store, &format!("pod-{writer}"));
            assert_eq!(stored.map(|value| value.revision()), now, "seed {seed}, writer {writer}");
        }
    }
}

#[test]
fn a_conflict_with_a_write_that_was_lost_is_not_called_one() {
    let dir = tempfile::tempdir().unwrap();
    let (store, switch) = open_breakable(&dir, Broken::Sync, io::ErrorKind::Other);
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

/// The files of a store as they are now, as a crash would leave them.
fn crashed(store: &TempDir) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    copy_into(store.path(), copy.path());
    copy
}

fn copy_into(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if from.is_dir() {
            std::fs::create_dir(&to).unwrap();
            copy_into(&from, &to);
        } else {
            std::fs::copy(from, to).unwrap();
        }
    }
}

/// The last file of a store that crashed, with two records from two groups, with a byte of one changed.
fn damaged_last_file(record: usize) -> (TempDir, Result<EmbeddedStore, OpenError>) {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path(), Settings::default()).unwrap();
    commit(&store, "a").unwrap();
    commit(&store, "b").unwrap();
    let dir = crashed(&dir);
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
