//! Whose a directory is.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::path::Path;

use masthead_store::{EmbeddedStore, OpenError, Settings};

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
    use masthead_store::Store;
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
