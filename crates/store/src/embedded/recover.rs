//! Reading the log when a store is opened.
//!
//! Of the last segment every record is checked, and what a crash left behind the last whole one is
//! cut off: it was never acknowledged, since what is acknowledged was synced with everything before
//! it. If a later record knows otherwise, the disk has lost something, and the store is not opened.
//! The other segments were synced whole; of them only the heads are read, and records are checked
//! when somebody reads them.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use masthead_core::Revision;

use super::directory::{Directory, OpenError, make_private_directory, sync};
use super::log::{Segment, Segments, first_revision};
use super::record::{self, HEAD_BYTES_MAX, HEAD_BYTES_USUAL, Head};
use super::window::{Line, Window};

/// Reads everything after the base into its window.
pub(crate) fn recover(directory: &Directory, window: &mut Window) -> Result<Segments, OpenError> {
    let io = |source| OpenError::Io { dir: directory.path().to_owned(), source };
    let dir = directory.log();
    make_private_directory(&dir).map_err(io)?;
    sync(directory.path()).and_then(|()| sync(&dir)).map_err(io)?;
    let files = segments(&dir).map_err(io)?;
    let mut reader = Reader { directory, window };
    for (at, segment) in files.iter().enumerate() {
        let last = at + 1 == files.len();
        // What the base has already is still there if a crash came before it was removed.
        let wanted =
            files.get(at + 1).is_none_or(|next| next.first() > reader.window.oldest().next());
        if last {
            reader.read_last(segment)?;
        } else if wanted {
            reader.read_whole(segment)?;
        }
    }
    Ok(Segments::new(dir, files))
}

fn segments(dir: &Path) -> io::Result<VecDeque<Arc<Segment>>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if let Some(first) = entry.file_name().to_str().and_then(first_revision) {
            found.push((first, entry.path()));
        }
    }
    found.sort();
    found.into_iter().map(|(first, path)| Ok(Arc::new(Segment::open(&path, first)?))).collect()
}

struct Reader<'a> {
    directory: &'a Directory,
    window: &'a mut Window,
}

impl Reader<'_> {
    /// The heads of a segment that was synced whole.
    fn read_whole(&mut self, segment: &Arc<Segment>) -> Result<(), OpenError> {
        let (mut at, end) = (0, self.length(segment)?);
        while at < end {
            let head = self.head(segment, at, end)?.ok_or_else(|| self.damaged(segment, at))?;
            at = self.take(head, segment, at)?;
        }
        Ok(())
    }

    /// The records of the last segment, up to the first that is not whole.
    fn read_last(&mut self, segment: &Arc<Segment>) -> Result<(), OpenError> {
        let (mut at, end) = (0, self.length(segment)?);
        while let Some(head) = self.head(segment, at, end)? {
            let record = segment.read(at, head.bytes).map_err(|error| self.io(error))?;
            if record::verified(&record).is_none() {
                break;
            }
            at = self.take(head, segment, at)?;
        }
        let file = segment.file();
        if at < end {
            self.check_nothing_is_lost(segment, at, end)?;
            tracing::info!(bytes = end - at, "cut off what a crash left unfinished");
            file.set_len(at).map_err(|error| self.io(error))?;
        }
        // A process that was killed may not have got so far, and nothing is shown before it is on
        // disk.
        file.sync_all().map_err(|error| self.io(error))
    }

    /// Looks behind a record that is not whole for one that was made when it was on disk.
    fn check_nothing_is_lost(&self, segment: &Segment, at: u64, end: u64) -> Result<(), OpenError> {
        let bytes = usize::try_from(end - at).unwrap_or(usize::MAX);
        let rest = segment.read(at, bytes).map_err(|error| self.io(error))?;
        let lost = self.window.current().next();
        let witness = (1..rest.len()).find(|&behind| {
            let witness = record::head(&rest[behind..]).filter(|head| head.synced >= lost);
            witness.is_some() && record::verified(&rest[behind..]).is_some()
        });
        if witness.is_some() { Err(self.damaged(segment, at)) } else { Ok(()) }
    }

    fn length(&self, segment: &Segment) -> Result<u64, OpenError> {
        let metadata = segment.file().metadata();
        metadata.map(|it| it.len()).map_err(|error| self.io(error))
    }

    /// The head of the record at a position, if it ends in the segment.
    fn head(&self, segment: &Segment, at: u64, end: u64) -> Result<Option<Head>, OpenError> {
        let mut buffer = [0; HEAD_BYTES_MAX];
        for bytes_max in [HEAD_BYTES_USUAL, HEAD_BYTES_MAX] {
            let want = bytes_max.min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let read = segment.file().read_exact_at(&mut buffer[..want], at);
            read.map_err(|error| self.io(error))?;
            let head = record::head(&buffer[..want]);
            if let Some(head) = head.filter(|head| at + head.bytes as u64 <= end) {
                return Ok(Some(head));
            }
        }
        Ok(None)
    }

    /// Adds a line; says where the next one begins.
    fn take(&mut self, head: Head, segment: &Arc<Segment>, at: u64) -> Result<u64, OpenError> {
        let next_at = at + head.bytes as u64;
        if head.revision <= self.window.oldest() {
            return Ok(next_at);
        }
        let next = self.window.current().next();
        if head.revision != next {
            return Err(self.gap(next, head.revision));
        }
        self.window.push(Line { head, segment: segment.clone(), at });
        Ok(next_at)
    }

    fn io(&self, source: io::Error) -> OpenError {
        OpenError::Io { dir: self.directory.path().to_owned(), source }
    }

    fn damaged(&self, segment: &Segment, at: u64) -> OpenError {
        let what = format!("no record at byte {at} of {}", segment.path().display());
        OpenError::Damaged { dir: self.directory.path().to_owned(), what }
    }

    fn gap(&self, expected: Revision, found: Revision) -> OpenError {
        let what = format!("the log goes on with revision {found} where {expected} should be");
        OpenError::Damaged { dir: self.directory.path().to_owned(), what }
    }
}
