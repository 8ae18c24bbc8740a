//! Files of a store that are missing, empty, cut short or exchanged: the store is refused and they are named, or
//! it is what it was. It never goes back to an earlier revision in silence.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use masthead_core::{Object, Resource, Revision};
use masthead_store::{
    Condition, EmbeddedStore, OpenError, Range, ResourceName, Settings, Store, Write,
};
use tempfile::TempDir;

/// Everything that can be read of a store: its revision, and its objects by their keys.
type Content = (Revision, BTreeMap<String, Vec<u8>>);

fn settings() -> Settings {
    Settings::default().segment_bytes(60_000).keep_bytes(150_000)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn pods() -> ResourceName {
    (&Resource::pods()).into()
}

fn write(store: &EmbeddedStore, name: &str, bytes: usize) -> Revision {
    let text = "x".repeat(bytes);
    let body = format!(r#"{{"metadata":{{"namespace":"shop","name":"{name}"}},"text":"{text}"}}"#);
    let object = Object::parse(&Resource::pods(), body.into()).unwrap();
    let write = Write::put(pods(), object, Condition::Any);
    block_on(store.commit(vec![write])).remove(0).unwrap().revision
}

/// A store with files of every kind: a base with tables, blobs and a journal, and several files of the log.
fn fill(dir: &Path) -> EmbeddedStore {
    let store = EmbeddedStore::open(dir, settings()).unwrap();
    for n in 0..900 {
        let bytes = if n % 2 == 0 { 3000 } else { 300 };
        let at = write(&store, &format!("pod-{}", n % 700), bytes);
        if n % 100 == 0 {
            block_on(store.compact(Revision(at.0.saturating_sub(60)))).unwrap();
        }
    }
    store
}

fn content(store: &EmbeddedStore) -> Content {
    let at = block_on(store.current()).unwrap();
    let (mut after, mut all) = (None, BTreeMap::new());
    loop {
        let range = Range { resource: pods(), after, limit: 100, at };
        let page = block_on(store.range(range)).unwrap();
        for value in page.values {
            let object = value.object(&Resource::pods()).unwrap();
            all.insert(object.key().to_string(), value.body().to_vec());
        }
        after = page.next;
        if after.is_none() {
            return (at, all);
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

/// All files below a directory, by their paths in it.
fn files(dir: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(dir).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// A store that was filled, and what it holds.
struct Original {
    place: TempDir,
    content: Content,
}

impl Original {
    /// A store that was closed.
    fn closed() -> Self {
        let place = tempfile::tempdir().unwrap();
        let content = content(&fill(place.path()));
        // The tree makes its journal 64 MiB long, and cuts it to what is in it when it is opened again.
        drop(EmbeddedStore::open(place.path(), settings()).unwrap());
        Self { place, content }
    }

    /// A store as a crash leaves it: without what is noted when it is closed.
    fn crashed() -> Self {
        let original = Self::closed();
        let reached = original.place.path().join("REACHED");
        let store = EmbeddedStore::open(original.place.path(), settings()).unwrap();
        let place = original.place;
        for n in 0..50 {
            write(&store, &format!("pod-{n}"), 3000);
        }
        // They are answered one after the other: what was to be folded is.
        for _ in 0..2 {
            block_on(store.compact(Revision(1))).unwrap();
        }
        let (noted, content) = (fs::read(&reached).unwrap(), content(&store));
        drop(store);
        assert_ne!(noted, fs::read(&reached).unwrap(), "a file of the log has more than one group");
        fs::write(reached, noted).unwrap();
        Self { place, content }
    }

    /// A copy to be damaged.
    fn copy(&self) -> TempDir {
        let place = tempfile::tempdir().unwrap();
        copy(self.place.path(), place.path());
        place
    }

    fn log(&self) -> Vec<PathBuf> {
        let all = files(self.place.path()).into_iter();
        all.filter(|path| path.starts_with("log")).collect()
    }

    /// Opens a damaged copy. Why it was refused, or nothing if it is what the original was.
    fn open(&self, place: &TempDir) -> Option<String> {
        match EmbeddedStore::open(place.path(), settings()) {
            Ok(store) => {
                assert!(content(&store) == self.content, "opened at {:?}", store.oldest());
                None
            }
            Err(refusal) => {
                assert!(
                    matches!(refusal, OpenError::Damaged { .. } | OpenError::Foreign { .. }),
                    "{refusal}"
                );
                Some(refusal.to_string())
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Damage {
    Removed,
    Emptied,
    CutInHalf,
    CutByAByte,
}

const DAMAGES: [Damage; 4] =
    [Damage::Removed, Damage::Emptied, Damage::CutInHalf, Damage::CutByAByte];

impl Damage {
    fn inflict(self, path: &Path) {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        let bytes = file.metadata().unwrap().len();
        match self {
            Self::Removed => fs::remove_file(path).unwrap(),
            Self::Emptied => file.set_len(0).unwrap(),
            Self::CutInHalf => file.set_len(bytes / 2).unwrap(),
            Self::CutByAByte => file.set_len(bytes.saturating_sub(1)).unwrap(),
        }
    }
}

/// The tree does not say which of the files that it makes and removes is missing or cut short.
fn is_named_by_its_directory(path: &Path, damage: Damage) -> bool {
    path.starts_with("base") && !(path.ends_with("current") || damage == Damage::Emptied)
}

fn every_file_is_missed(original: &Original, may_be_cut: bool) {
    let all = files(original.place.path());
    let last = original.log().pop().unwrap();
    assert!(original.log().len() >= 3, "{all:?}");
    let mut refused = 0;
    for path in all {
        for damage in DAMAGES {
            let is_cut = matches!(damage, Damage::CutInHalf | Damage::CutByAByte);
            if may_be_cut && path == last && is_cut {
                continue;
            }
            let place = original.copy();
            let damaged = place.path().join(&path);
            let case = format!("{} {damage:?}", path.display());
            damage.inflict(&damaged);
            let Some(refusal) = original.open(&place) else { continue };
            refused += 1;
            let named = if is_named_by_its_directory(&path, damage) {
                place.path().join("base").display().to_string()
            } else {
                path.file_name().unwrap().display().to_string()
            };
            assert!(refusal.contains(&named), "{case}: {refusal}");
            assert!(refusal.contains(&place.path().display().to_string()), "{refusal}");
            // Nothing was changed for the worse.
            fs::copy(original.place.path().join(&path), damaged).unwrap();
            assert_eq!(original.open(&place), None, "{case}: {refusal}");
        }
    }
    assert!(refused >= 4 * 3, "{refused} damages were noticed");
}

#[test]
fn every_file_of_a_store_that_was_closed_is_missed_if_it_is_needed() {
    every_file_is_missed(&Original::closed(), false);
}

#[test]
fn every_file_of_a_store_that_crashed_is_missed_if_it_is_needed() {
    // Of the last file a crash may have cut off what nobody was told of.
    every_file_is_missed(&Original::crashed(), true);
}

#[test]
fn a_last_file_of_the_log_that_is_missing_or_empty_is_named_with_the_revisions_and_what_to_do() {
    for original in [Original::closed(), Original::crashed()] {
        let path = original.log().pop().unwrap();
        for (damage, what) in [(Damage::Removed, "is missing"), (Damage::Emptied, "is empty")] {
            let place = original.copy();
            damage.inflict(&place.path().join(&path));
            let refusal = original.open(&place).unwrap();
            let named = format!("{} {what}", place.path().join(&path).display());
            assert!(refusal.contains(&named), "{refusal}");
            let first = path.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap();
            assert!(refusal.contains(&format!("ends at revision {} ", first - 1)), "{refusal}");
            assert!(refusal.contains("had reached") && refusal.contains("backup"), "{refusal}");
            // What it says can be done.
            fs::remove_file(place.path().join("REACHED")).unwrap();
            let store = EmbeddedStore::open(place.path(), settings()).unwrap();
            assert_eq!(block_on(store.current()).unwrap(), Revision(first - 1));
        }
    }
}

#[test]
fn a_last_record_that_a_crash_has_cut_is_dropped_and_no_more() {
    let original = Original::crashed();
    let place = original.copy();
    Damage::CutByAByte.inflict(&place.path().join(original.log().pop().unwrap()));
    let store = EmbeddedStore::open(place.path(), settings()).unwrap();
    assert_eq!(block_on(store.current()).unwrap(), Revision(original.content.0.0 - 1));
}

#[test]
fn directories_that_are_missing_or_empty_are_named() {
    let original = Original::closed();
    for name in ["log", "base"] {
        for is_there in [false, true] {
            let place = original.copy();
            let path = place.path().join(name);
            fs::remove_dir_all(&path).unwrap();
            if is_there {
                fs::create_dir(&path).unwrap();
            }
            let refusal = original.open(&place).unwrap();
            assert!(refusal.contains(&path.display().to_string()), "{refusal}");
            fs::remove_dir_all(&path).unwrap_or_default();
            copy(&original.place.path().join(name), &path);
            assert_eq!(original.open(&place), None, "nothing else was changed");
        }
    }
    let place = original.copy();
    fs::remove_dir_all(place.path().join("base")).unwrap();
    fs::remove_dir_all(place.path().join("log")).unwrap();
    let refusal = original.open(&place).unwrap();
    assert!(refusal.contains("base is missing"), "{refusal}");
}

#[test]
fn a_base_that_is_missing_is_not_missed_while_the_log_has_everything() {
    let place = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(place.path(), settings()).unwrap();
    for n in 0..50 {
        write(&store, &format!("pod-{n}"), 3000);
    }
    let original = Original { content: content(&store), place };
    drop(store);
    assert!(original.log().len() > 1);
    let place = original.copy();
    fs::remove_dir_all(place.path().join("base")).unwrap();
    assert_eq!(original.open(&place), None);
}

#[test]
fn files_of_the_log_that_were_exchanged_are_named() {
    let original = Original::closed();
    let log = original.log();
    for (n, one) in log.iter().enumerate() {
        for other in &log[n + 1..] {
            let place = original.copy();
            let (one, other) = (place.path().join(one), place.path().join(other));
            let aside = place.path().join("aside");
            fs::rename(&one, &aside).unwrap();
            fs::rename(&other, &one).unwrap();
            fs::rename(&aside, &other).unwrap();
            let refusal = original.open(&place).unwrap();
            let names_one = [one, other].iter().any(|it| refusal.contains(it.to_str().unwrap()));
            assert!(names_one && refusal.contains("exchanged"), "{refusal}");
        }
    }
}

#[test]
fn a_file_that_the_base_has_and_that_was_exchanged_for_the_last_is_named() {
    let original = Original::closed();
    let old = original.place.path().join(&original.log()[0]);
    let kept = fs::read(&old).unwrap();
    let store = EmbeddedStore::open(original.place.path(), settings()).unwrap();
    block_on(store.compact(original.content.0)).unwrap();
    write(&store, "last", 10);
    drop(store);
    // A crash may come before it is removed.
    let last = original.place.path().join(original.log().pop().unwrap());
    fs::rename(&last, &old).unwrap();
    fs::write(&last, kept).unwrap();
    let refusal = original.open(&original.place).unwrap();
    assert!(refusal.contains(last.to_str().unwrap()) && refusal.contains("exchanged"), "{refusal}");
}

#[test]
fn the_last_file_is_missed_also_when_it_was_begun_before_all_that_is_folded() {
    // Whether the fold ends before, at or behind the newest revision that was noted, and what comes before and
    // after it.
    for (folded, more, later) in [1, 2, 3]
        .into_iter()
        .flat_map(|folded| [(folded, 1, 0), (folded, 2, 0), (folded, 0, 1), (folded, 0, 2)])
    {
        let (running, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = EmbeddedStore::open(running.path(), settings()).unwrap();
        for n in 0..folded + more {
            write(&store, &format!("pod-{n}"), 10);
        }
        block_on(store.compact(Revision(1 + folded))).unwrap();
        for n in 0..later {
            write(&store, &format!("later-{n}"), 10);
        }
        // The base is too small to be written to but for its journal.
        copy(running.path(), place.path());
        let original = Original { content: content(&store), place };
        let place = original.copy();
        fs::remove_file(place.path().join(original.log().pop().unwrap())).unwrap();
        let refusal = original.open(&place).unwrap();
        assert!(refusal.contains("00000000000000000002.log is missing"), "{refusal}");
    }
}

#[test]
fn a_last_file_that_the_base_has_is_not_missed_and_the_next_one_is() {
    for damage in DAMAGES {
        let original = Original::closed();
        let store = EmbeddedStore::open(original.place.path(), settings()).unwrap();
        block_on(store.compact(original.content.0)).unwrap();
        drop(store);
        let log = original.log();
        assert_eq!(log.len(), 1);
        damage.inflict(&original.place.path().join(&log[0]));
        assert_eq!(original.open(&original.place), None, "{damage:?}");
        let store = EmbeddedStore::open(original.place.path(), settings()).unwrap();
        let next = write(&store, "next", 10);
        let crashed = tempfile::tempdir().unwrap();
        copy(original.place.path(), crashed.path());
        let next = crashed.path().join("log").join(format!("{next:020}.log"));
        fs::remove_file(&next).unwrap();
        let refusal = EmbeddedStore::open(crashed.path(), settings()).unwrap_err().to_string();
        assert!(refusal.contains(&next.display().to_string()), "{damage:?}: {refusal}");
        drop(store);
        let store = EmbeddedStore::open(original.place.path(), settings()).unwrap();
        assert_eq!(content(&store).1.len(), original.content.1.len() + 1);
    }
}

#[test]
fn a_store_from_before_the_milestone_opens_and_gets_one() {
    let original = Original::closed();
    let place = original.copy();
    let reached = place.path().join("REACHED");
    fs::remove_file(&reached).unwrap();
    assert_eq!(original.open(&place), None);
    assert!(reached.exists());
    Damage::Removed.inflict(&place.path().join(original.log().pop().unwrap()));
    assert!(original.open(&place).unwrap().contains("had reached"));
}

#[test]
fn what_a_crash_left_of_a_milestone_is_no_harm() {
    let original = Original::closed();
    let place = original.copy();
    fs::write(place.path().join("REACHED.new"), "masthead-store rea").unwrap();
    assert_eq!(original.open(&place), None);
}
