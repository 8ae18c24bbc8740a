//! Whose a directory is.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use masthead_core::{Object, Resource};
use masthead_store::{Condition, EmbeddedStore, OpenError, Settings, Store as _, Write};

fn open(dir: &Path) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(dir, Settings::default())
}

#[test]
fn a_store_is_open_once_also_within_a_process() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path()).unwrap();
    let refusal = open(dir.path()).unwrap_err();
    assert!(matches!(refusal, OpenError::InUse { .. }), "{refusal}");
    let text = refusal.to_string();
    assert!(text.contains(&dir.path().display().to_string()), "{text}");
    assert!(text.contains("stop that one first"), "{text}");
    drop(first);
    open(dir.path()).unwrap();
}

#[test]
fn a_watch_that_outlives_its_store_does_not_keep_the_directory() {
    use masthead_core::Revision;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    let _watch = store.watch(Revision(1)).unwrap();
    drop(store);
    open(dir.path()).unwrap();
}

#[test]
fn a_directory_with_something_else_in_it_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.tex"), "years of work").unwrap();
    let refusal = open(dir.path()).unwrap_err();
    assert!(matches!(refusal, OpenError::Foreign { .. }), "{refusal}");
    assert!(refusal.to_string().contains("thesis.tex"), "{refusal}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was added");
}

#[test]
fn a_format_from_the_future_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()).unwrap());
    fs::write(dir.path().join("FORMAT"), "masthead-store 2\n").unwrap();
    let refusal = open(dir.path()).unwrap_err();
    assert!(matches!(refusal, OpenError::Newer { found: 2, known: 1, .. }), "{refusal}");
}

#[test]
fn a_format_that_is_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()).unwrap());
    for text in ["", "masthead-store", "masthead-store one", "etcd 1", "masthead-store 0"] {
        fs::write(dir.path().join("FORMAT"), text).unwrap();
        let refusal = open(dir.path()).unwrap_err();
        assert!(matches!(refusal, OpenError::Foreign { .. }), "{text:?}: {refusal}");
    }
    fs::write(dir.path().join("FORMAT"), [0xff, 0xfe]).unwrap();
    assert!(matches!(open(dir.path()), Err(OpenError::Foreign { .. })));
}

#[test]
fn what_was_cut_short_while_it_was_made_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("LOCK"), "").unwrap();
    fs::write(dir.path().join("FORMAT.new"), "masthe").unwrap();
    open(dir.path()).unwrap();
}

#[test]
fn a_directory_that_is_a_file_is_said_to_be_unusable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "").unwrap();
    let refusal = open(&path).unwrap_err();
    assert!(matches!(refusal, OpenError::Io { .. }), "{refusal}");
}

/// What others may do with a file or directory.
fn rights_of_others(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o077
}

/// The directories and files of a store that are reached without passing its base.
fn own(dir: &Path) -> Vec<PathBuf> {
    let (log, mut own) = (dir.join("log"), vec![dir.to_owned(), dir.join("base")]);
    for folder in [dir, &log] {
        own.extend(fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    }
    own
}

fn open_and_write(dir: &Path) -> EmbeddedStore {
    let store = open(dir).unwrap();
    let body = r#"{"metadata":{"namespace":"shop","name":"password"}}"#;
    let object = Object::parse(&Resource::pods(), body.into()).unwrap();
    let write = Write::put((&Resource::pods()).into(), object, Condition::Any);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.commit(vec![write])).remove(0).unwrap();
    store
}

#[test]
fn others_can_read_nothing_of_a_new_store() {
    let place = tempfile::tempdir().unwrap();
    // Those above it are made as others are, but for the last.
    let dir = place.path().join("above").join("store");
    drop(open_and_write(&dir));
    let own = own(&dir);
    for name in ["FORMAT", "LOCK", "REACHED", "log/00000000000000000002.log"] {
        assert!(own.contains(&dir.join(name)), "{own:?}");
    }
    for path in own {
        assert_eq!(rights_of_others(&path), 0, "{}", path.display());
    }
}

#[test]
fn the_rights_that_others_have_to_an_older_store_are_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    drop(open_and_write(dir.path()));
    for path in own(dir.path()) {
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let _store = open(dir.path()).unwrap();
    for path in own(dir.path()) {
        assert_eq!(rights_of_others(&path), 0, "{}", path.display());
        let owner = fs::metadata(&path).unwrap().permissions().mode() & 0o700;
        assert_eq!(owner, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    }
}

#[test]
fn the_rights_to_a_directory_with_something_else_in_it_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(dir.path().join("thesis.tex"), "years of work").unwrap();
    assert!(open(dir.path()).is_err());
    assert_eq!(rights_of_others(dir.path()), 0o055);
}
