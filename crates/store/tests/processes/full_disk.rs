//! A disk that takes no more.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use masthead_core::{Object, Resource, Revision};
use masthead_store::{CommitError, Condition, EmbeddedStore, Health, Settings, Store, Write};

use crate::child::{Acknowledged, block_on, lines, pods, settings, start, write};
use crate::crash::{Witness, stored};

#[test]
fn when_a_file_may_not_grow_the_store_is_read_only_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    drop(EmbeddedStore::open(dir.path(), settings()).unwrap());
    // 16 blocks are 8 or 16 KiB, less than a file of the log would get. The signal would be the end.
    let mut child = start(dir.path(), 0, "trap '' XFSZ; ulimit -f 16;");
    let heard: Vec<_> = lines(&mut child).collect();
    assert!(child.wait().unwrap().success(), "{heard:?}");
    let refusals = heard.iter().filter(|line| line.starts_with("refused the store is read-only"));
    assert_eq!(refusals.count(), crate::child::WRITERS, "{heard:?}");
    assert!(heard.iter().any(|line| line.starts_with("health ReadOnly")), "{heard:?}");
    assert!(heard.iter().any(|line| line == "readable true"), "{heard:?}");
    let acknowledged: Vec<_> =
        heard.iter().filter_map(|line| Acknowledged::from_line(line)).collect();
    assert!(!acknowledged.is_empty());

    let mut witness = Witness::default();
    witness.hear(0, &acknowledged);
    witness.check(dir.path(), 0, &acknowledged);
    let store = EmbeddedStore::open(dir.path(), settings()).unwrap();
    assert_eq!(store.health(), Health::Writable);
    let current = block_on(store.current()).unwrap();
    let result = block_on(store.commit(vec![write(1, 0, 0)])).remove(0).unwrap();
    assert_eq!(result.revision, Revision(current.0 + 1));
}

/// Where the disk is that the child fills up.
const DISK: &str = "MASTHEAD_STORE_FULL_DISK";

/// Runs the test below with a disk of 96 MiB in memory, which is there for that process only.
#[test]
fn a_disk_that_was_full_takes_writes_again_and_nothing_is_lost_or_kept_that_was_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=96m masthead \"$0\"";
    let unshared = |rights: &[&str], script: &str| {
        let mut command = Command::new("unshare");
        command.args(rights).args(["--mount", "sh", "-c", script]).arg(dir.path());
        command
    };
    let ways: [&[&str]; 2] = [&[], &["--map-root-user"]];
    let can =
        |rights: &&&[&str]| unshared(rights, mount).output().is_ok_and(|it| it.status.success());
    let Some(rights) = ways.iter().find(can) else {
        println!("skipped: no file system can be mounted here");
        return;
    };
    let status = unshared(rights, &format!("{mount} && exec \"$@\""))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "full_disk::fills_a_disk", "--nocapture", "--test-threads=1"])
        .env(DISK, dir.path())
        .status();
    assert!(status.unwrap().success());
}

/// The child itself. Without its variable it is no test and does nothing.
#[test]
fn fills_a_disk() {
    let Some(disk) = std::env::var_os(DISK).map(PathBuf::from) else { return };
    let (dir, ballast) = (disk.join("store"), disk.join("ballast"));
    fs::write(&ballast, vec![1; 56 * 1024 * 1024]).unwrap();
    let settings = Settings::default().segment_bytes(200_000).keep_bytes(400_000);
    let store = EmbeddedStore::open(&dir, settings.clone()).unwrap();
    let mut acknowledged = BTreeMap::new();
    let mut n = 0;
    let why = loop {
        if let Some(why) = put_some(&store, &mut n, &mut acknowledged) {
            break why;
        }
    };
    assert!(why.contains(&dir.display().to_string()) && why.contains("free space"), "{why}");
    assert_eq!(store.health(), Health::ReadOnly { why: why.into() });
    let last = block_on(store.current()).unwrap();
    let mut watch = store.watch(last).unwrap();
    check(&store, &acknowledged);
    drop(store);
    let store = EmbeddedStore::open(&dir, settings.clone()).unwrap();
    assert_eq!(block_on(store.current()).unwrap(), last, "it can be opened and read, still full");
    check(&store, &acknowledged);
    assert!(put_until(&store, &mut n, &mut acknowledged, |why| why.is_some()), "still full");
    let full = block_on(store.current()).unwrap();
    assert!(block_on(std::future::poll_fn(|cx| watch.as_mut().poll_next(cx))).unwrap().is_err());
    let mut watch = store.watch(full).unwrap();

    fs::remove_file(&ballast).unwrap();
    assert!(put_until(&store, &mut n, &mut acknowledged, |why| why.is_none()), "room again");
    let next = block_on(std::future::poll_fn(|cx| watch.as_mut().poll_next(cx)));
    assert_eq!(next.unwrap().unwrap().events[0].revision, full.next());
    assert_eq!(store.health(), Health::Writable);
    for _ in 0..20 {
        assert_eq!(put_some(&store, &mut n, &mut acknowledged), None);
    }
    // Also the base takes writes again.
    let current = block_on(store.current()).unwrap();
    assert_eq!(block_on(store.compact(current)).unwrap(), current);
    drop(store);
    let store = EmbeddedStore::open(&dir, settings).unwrap();
    check(&store, &acknowledged);
    assert_eq!(block_on(store.current()).unwrap(), current);
}

/// Tries until it is as it should be, or for a minute.
fn put_until(
    store: &EmbeddedStore,
    n: &mut usize,
    acknowledged: &mut BTreeMap<String, Revision>,
    right: impl Fn(Option<String>) -> bool,
) -> bool {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if right(put_some(store, n, acknowledged)) {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

/// Writes a group of new objects. Why it was refused, if it was.
fn put_some(
    store: &EmbeddedStore,
    n: &mut usize,
    acknowledged: &mut BTreeMap<String, Revision>,
) -> Option<String> {
    let text = "x".repeat(3000);
    let writes: Vec<_> = (*n..*n + 32)
        .map(|at| {
            let body = format!(
                r#"{{"metadata":{{"namespace":"shop","name":"pod-{at}"}},"text":"{text}"}}"#
            );
            let object = Object::parse(&Resource::pods(), body.into()).unwrap();
            Write::put(pods(), object, Condition::Absent)
        })
        .collect();
    let names: Vec<_> = writes.iter().map(|write| write.key.name().to_owned()).collect();
    *n += writes.len();
    let mut refused = None;
    for (name, result) in names.into_iter().zip(block_on(store.commit(writes))) {
        match result {
            Ok(committed) => drop(acknowledged.insert(name, committed.revision)),
            Err(CommitError::Full { why }) => refused = Some(why.to_string()),
            Err(error) => panic!("{error}"),
        }
    }
    refused
}

/// Everything that was acknowledged is there, and nothing else.
fn check(store: &EmbeddedStore, acknowledged: &BTreeMap<String, Revision>) {
    let stored = stored(store).into_iter();
    let stored: BTreeMap<_, _> = stored.map(|(key, at)| (key.name().to_owned(), at)).collect();
    assert!(stored == *acknowledged, "{} of {}", stored.len(), acknowledged.len());
}
