//! Reading the log when a store is opened.
//!
//! Of the last segment every record is checked, and what a crash left behind the last whole one is
//! cut off: it was never acknowledged, since what is acknowledged was synced with everything before
//! it. The other segments were synced whole; of them only the heads are read, and records are checked
//! when somebody reads them.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use masthead_core::Revision;

use super::directory::{Directory, OpenError, sync};
use super::log::{Segment, Segments, first_revision};
use super::record::{self, HEAD_BYTES_MAX, Head};
use super::window::{Line, Window};

/// Reads everything after the base into its window.
pub(crate) fn recover(directory: &Directory, window: &mut Window) -> Result<Segments, OpenError> {
    let io = |source| OpenError::Io { dir: directory.path().to_owned(), source };
    let dir = directory.log();
    fs::create_dir_all(&dir).map_err(io)?;
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
    /// The heads of a segment that is whole.
    fn read_whole(&mut self, segment: &Arc<Segment>) -> Result<(), OpenError> {
        let file = segment.file();
        let end = file.metadata().map_err(|error| self.io(error))?.len();
        let (mut at, mut buffer) = (0, vec![0; HEAD_BYTES_MAX]);
        while at < end {
            let want = HEAD_BYTES_MAX.min(usize::try_from(end - at).unwrap_or(usize::MAX));
            file.read_exact_at(&mut buffer[..want], at).map_err(|error| self.io(error))?;
            let head = record::head(&buffer[..want])
                .filter(|head| at + head.bytes as u64 <= end)
                .ok_or_else(|| self.damaged(segment, at))?;
            let bytes = head.bytes as u64;
            self.take(head, segment, at)?;
            at += bytes;
        }
        Ok(())
    }

    /// The records of the last segment, up to the first that is not whole.
    fn read_last(&mut self, segment: &Arc<Segment>) -> Result<(), OpenError> {
        let content = fs::read(segment.path()).map_err(|error| self.io(error))?;
        let mut at = 0;
        while let Some(head) = record::verified(&content[at..]) {
            let bytes = head.bytes;
            self.take(head, segment, at as u64)?;
            at += bytes;
        }
        let file = segment.file();
        if at < content.len() {
            tracing::info!(bytes = content.len() - at, "cut off what a crash left unfinished");
            file.set_len(at as u64).map_err(|error| self.io(error))?;
        }
        // A process that was killed may not have got so far, and nothing is shown before it is on
        // disk.
        file.sync_all().map_err(|error| self.io(error))
    }

    fn take(&mut self, head: Head, segment: &Arc<Segment>, at: u64) -> Result<(), OpenError> {
        if head.revision <= self.window.oldest() {
            return Ok(());
        }
        let next = self.window.current().next();
        if head.revision != next {
            return Err(self.gap(next, head.revision));
        }
        self.window.push(Line { head, segment: segment.clone(), at });
        Ok(())
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
