//! The files of the base, looked at before the tree opens them.
//!
//! The tree takes a keyspace without its file `current` for one that was never finished, and removes it. It
//! takes a directory without its file `version` for a new one. So these are looked for first, and of the others
//! those are named that are missing or empty, which the tree does not do.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The keyspace with the names of the others.
const NAMES: &str = "0";

/// Returns `true` if there is nothing of a base.
pub(crate) fn is_absent(base: &Path) -> io::Result<bool> {
    match fs::read_dir(base) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// What is missing of a base that was finished once and may have been written to; none if nothing is. A lock
/// that is missing is put back, as it holds nothing.
pub(crate) fn missing(base: &Path) -> io::Result<Option<String>> {
    let version = base.join("version");
    if length(&version)? == 0 {
        return Ok(Some(named(&version)));
    }
    let keyspaces = keyspaces(base)?;
    if keyspaces.len() < 2 {
        return Ok(Some(format!("a directory in {} is missing", base.join("keyspaces").display())));
    }
    for keyspace in keyspaces {
        let current = keyspace.join("current");
        let Some(id) = current_version(&current)? else { return Ok(Some(named(&current))) };
        let file = keyspace.join(format!("v{id}"));
        if length(&file)? == 0 {
            return Ok(Some(named(&file)));
        }
    }
    if journals(base)?.is_empty() {
        return Ok(Some(format!("the journal, {}, is missing", base.join("0.jnl").display())));
    }
    OpenOptions::new().create(true).truncate(false).write(true).open(base.join("lock"))?;
    Ok(None)
}

/// A file of objects that is empty, if there is one. A journal may be, after nothing was written to it.
pub(crate) fn empty(base: &Path) -> Option<PathBuf> {
    let keyspaces = keyspaces(base).unwrap_or_default();
    let folders = keyspaces.iter().flat_map(|it| [it.join("tables"), it.join("blobs")]);
    let files = folders.flat_map(|folder| files(&folder).unwrap_or_default());
    let mut all = files.chain(journals(base).unwrap_or_default());
    all.find(|path| length(path).is_ok_and(|bytes| bytes == 0))
}

fn journals(base: &Path) -> io::Result<Vec<PathBuf>> {
    let is_journal = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "jnl");
    Ok(files(base)?.into_iter().filter(is_journal).collect())
}

/// The directories of the keyspaces, those that have to be there first.
fn keyspaces(base: &Path) -> io::Result<Vec<PathBuf>> {
    let folder = base.join("keyspaces");
    let names = folder.join(NAMES);
    let found = match files(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        found => found?,
    };
    let others = found.into_iter().filter(|path| path.is_dir() && *path != names);
    Ok(std::iter::once(names.clone()).chain(others).collect())
}

fn named(path: &Path) -> String {
    let what = if path.exists() { "empty or cut short" } else { "missing" };
    format!("{} is {what}", path.display())
}

/// Length of a file; zero if it is not there.
fn length(path: &Path) -> io::Result<u64> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// The number of the version that is current; none if the file is missing or too short.
fn current_version(path: &Path) -> io::Result<Option<u64>> {
    let mut bytes = [0; 8];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
    match read {
        Ok(()) => Ok(Some(u64::from_le_bytes(bytes))),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect()
}
