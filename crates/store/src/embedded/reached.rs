//! The file `REACHED`: a revision that the log has reached, and the files that the log had then.
//!
//! A log whose last file is missing, empty or cut short ends earlier and looks whole all the same. This file
//! says that it was longer. It stands beside the directory of the log, so that it is not lost with it.
//!
//! **Invariant:** the revision it names was on disk before it was written.
//!
//! **Invariant:** while the log has changes that the base does not have, the revision is later than that of
//! the base. So a log that lost its last file ends before it, and the store is not opened. For this the file
//! is written again when the first group of a new file of the log is on disk, and before a fold, or by the first
//! group after a fold, if the base would otherwise have got to the revision that it names.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use masthead_core::Revision;
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use super::directory::OpenError;
use super::failure::WriteError;
use super::log::{Disk, Segments, file_name, first_revision};
use crate::limits::{REACHED_BYTES_MAX, REACHED_FILES_MAX};

pub(crate) const REACHED: &str = "REACHED";
const TITLE: &str = "masthead-store reached ";
const CHECKSUM: &str = "xxh3 ";

/// What the file says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Milestone {
    pub(crate) revision: Revision,
    /// The first revisions of the newest files of the log, oldest first.
    pub(crate) files: Vec<Revision>,
}

impl Milestone {
    /// Reads the file of a store. None if it has none: a program from before this file made it.
    pub(crate) fn read(dir: &Path) -> Result<Option<Self>, OpenError> {
        let io = |source| OpenError::Io { dir: dir.to_owned(), source };
        let path = dir.join(REACHED);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io(error)),
        };
        let mut content = Vec::new();
        file.take(REACHED_BYTES_MAX).read_to_end(&mut content).map_err(io)?;
        match Self::parse(&content) {
            Some(milestone) => Ok(Some(milestone)),
            None => Err(OpenError::Damaged {
                dir: dir.to_owned(),
                what: format!("{} is not what was written", path.display()),
                remedy: format!(
                    "restore it from a backup, or, if nothing else was damaged with it, remove {REACHED}: \
                     the store is then opened without checking that its log is whole"
                ),
            }),
        }
    }

    fn parse(content: &[u8]) -> Option<Self> {
        let text = str::from_utf8(content).ok()?;
        let (said, checksum) = text.strip_suffix('\n')?.rsplit_once('\n')?;
        let checksum = u64::from_str_radix(checksum.strip_prefix(CHECKSUM)?, 16).ok()?;
        if xxh3_64(said.as_bytes()) != checksum {
            return None;
        }
        let mut lines = said.lines();
        let revision = lines.next()?.strip_prefix(TITLE)?.parse().ok()?;
        let files = lines.map(first_revision).collect::<Option<_>>()?;
        Some(Self { revision, files })
    }

    fn text(&self) -> String {
        let mut text = format!("{TITLE}{}", self.revision);
        for first in &self.files {
            text.push('\n');
            text.push_str(&file_name(*first));
        }
        let checksum = xxh3_64(text.as_bytes());
        format!("{text}\n{CHECKSUM}{checksum:016x}\n")
    }

    /// The file of the log that a revision was in.
    pub(crate) fn file_of(&self, revision: Revision) -> Option<Revision> {
        self.files.iter().rev().find(|first| **first <= revision).copied()
    }
}

/// Keeps the file in step with the log.
pub(crate) struct Reached {
    dir: PathBuf,
    segments: Arc<Segments>,
    disk: Arc<dyn Disk>,
    /// Locked while the file is written.
    state: Mutex<State>,
}

struct State {
    /// The newest revision that is on disk. It may not be shown yet.
    newest: Revision,
    /// What the file names.
    written: Revision,
    /// What the base has, or will have when the fold that is under way is done.
    base: Revision,
}

impl Reached {
    /// The file of a log that was read up to `newest`, and whose base is at `base`.
    pub(crate) fn new(
        dir: &Path,
        segments: Arc<Segments>,
        disk: Arc<dyn Disk>,
        written: Option<&Milestone>,
        base: Revision,
        newest: Revision,
    ) -> Self {
        let written = written.map_or(Revision::ZERO, |milestone| milestone.revision);
        let state = Mutex::new(State { newest, written, base });
        Self { dir: dir.to_owned(), segments, disk, state }
    }

    /// Takes note of a group that is on disk, before anyone is answered. After an error the group must not be
    /// answered.
    pub(crate) fn advance(&self, newest: Revision, begins_file: bool) -> Result<(), WriteError> {
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut state.newest, newest);
        if !begins_file && state.written > state.base {
            return Ok(());
        }
        let written = self.write(&mut state);
        if written.is_err() {
            state.newest = before;
        }
        written
    }

    /// Takes note of a fold, before it begins.
    pub(crate) fn fold(&self, base: Revision) -> Result<(), WriteError> {
        let mut state = self.state.lock();
        if state.written <= base && state.newest > state.written {
            self.write(&mut state)?;
        }
        state.base = base;
        Ok(())
    }

    /// Names the newest revision that there is.
    pub(crate) fn settle(&self) -> Result<(), WriteError> {
        let mut state = self.state.lock();
        if state.written == state.newest { Ok(()) } else { self.write(&mut state) }
    }

    fn write(&self, state: &mut State) -> Result<(), WriteError> {
        let milestone =
            Milestone { revision: state.newest, files: self.segments.newest(REACHED_FILES_MAX) };
        self.disk.replace(&self.dir, REACHED, milestone.text().as_bytes())?;
        state.written = state.newest;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milestone() -> Milestone {
        Milestone { revision: Revision(150), files: vec![Revision(51), Revision(101)] }
    }

    #[test]
    fn a_milestone_comes_back() {
        assert_eq!(Milestone::parse(milestone().text().as_bytes()), Some(milestone()));
        let without = Milestone { revision: Revision(1), files: Vec::new() };
        assert_eq!(Milestone::parse(without.text().as_bytes()), Some(without));
    }

    #[test]
    fn a_milestone_with_any_bit_changed_or_cut_anywhere_is_none() {
        let text = milestone().text().into_bytes();
        for at in 0..text.len() {
            assert_eq!(Milestone::parse(&text[..at]), None, "cut at {at}");
            for bit in 0..8 {
                let mut bad = text.clone();
                bad[at] ^= 1 << bit;
                // A digit of the checksum may be written in another way.
                let same = Milestone::parse(&bad) == Some(milestone());
                assert!(same || Milestone::parse(&bad).is_none(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_milestone_of_the_most_files_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let most = u64::try_from(REACHED_FILES_MAX).unwrap();
        let files = (0..most).map(|n| Revision(u64::MAX - n)).rev().collect();
        let largest = Milestone { revision: Revision(u64::MAX), files };
        let text = largest.text();
        assert!((text.len() as u64) <= REACHED_BYTES_MAX, "{}", text.len());
        std::fs::write(dir.path().join(REACHED), text).unwrap();
        assert_eq!(Milestone::read(dir.path()).unwrap(), Some(largest));
    }

    #[test]
    fn the_file_of_a_revision_is_the_last_that_begins_before_it() {
        let file_of = |revision| milestone().file_of(Revision(revision));
        assert_eq!(file_of(50), None);
        assert_eq!((file_of(51), file_of(100)), (Some(Revision(51)), Some(Revision(51))));
        assert_eq!((file_of(101), file_of(200)), (Some(Revision(101)), Some(Revision(101))));
    }
}
