//! The log on disk: segments of records.
//!
//! **Invariant:** only the last segment is written to, and only at its end.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use masthead_core::Revision;
use parking_lot::Mutex;

use super::directory::{private, sync};
use crate::limits::READ_BUFFER_BYTES;

thread_local! {
    /// What [`Segment::look`] reads into.
    static READ: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What a segment is written through. Tests put one there that fails.
pub(crate) trait Media: Send {
    /// Writes at the end.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns when everything is on disk that was written.
    fn sync(&mut self) -> io::Result<()>;
}

impl Media for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Makes the media of a new segment.
pub(crate) type MakeMedia = Arc<dyn Fn(File) -> Box<dyn Media> + Send + Sync>;

/// One file of the log. Its name is its first revision.
pub(crate) struct Segment {
    first: Revision,
    path: PathBuf,
    file: File,
}

impl Segment {
    pub(crate) fn open(path: &Path, first: Revision) -> io::Result<Self> {
        let file = private().read(true).append(true).create(true).open(path)?;
        Ok(Self { first, path: path.to_owned(), file })
    }

    pub(crate) fn first(&self) -> Revision {
        self.first
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// So many bytes from a position. Works also after the segment was removed.
    pub(crate) fn read(&self, at: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; bytes];
        self.file.read_exact_at(&mut buffer, at)?;
        Ok(buffer)
    }

    /// Looks at so many bytes from a position. They are the thread's until it reads the next ones: a
    /// replay would otherwise get fresh memory from the system for every batch.
    pub(crate) fn look<T>(
        &self,
        at: u64,
        bytes: usize,
        look: impl FnOnce(&[u8]) -> T,
    ) -> io::Result<T> {
        READ.with_borrow_mut(|buffer| {
            buffer.resize(bytes.max(buffer.len().min(READ_BUFFER_BYTES)), 0);
            self.file.read_exact_at(&mut buffer[..bytes], at)?;
            let seen = look(&buffer[..bytes]);
            buffer.truncate(READ_BUFFER_BYTES);
            buffer.shrink_to(READ_BUFFER_BYTES);
            Ok(seen)
        })
    }
}

/// The files, oldest first.
pub(crate) struct Segments {
    dir: PathBuf,
    files: Mutex<VecDeque<Arc<Segment>>>,
}

impl Segments {
    pub(crate) fn new(dir: PathBuf, files: VecDeque<Arc<Segment>>) -> Self {
        Self { dir, files: Mutex::new(files) }
    }

    /// A new last one.
    fn begin(&self, first: Revision) -> io::Result<Arc<Segment>> {
        let segment = Arc::new(Segment::open(&self.dir.join(file_name(first)), first)?);
        sync(&self.dir)?;
        self.files.lock().push_back(segment.clone());
        Ok(segment)
    }

    /// Removes the files of which everything is at or before a revision.
    pub(crate) fn remove(&self, before: Revision) -> io::Result<()> {
        let mut files = self.files.lock();
        while files.get(1).is_some_and(|next| next.first <= before.next()) {
            fs::remove_file(&files[0].path)?;
            files.pop_front();
        }
        Ok(())
    }

    fn last(&self) -> Option<Arc<Segment>> {
        self.files.lock().back().cloned()
    }
}

/// Fixed width, so that names sort as revisions do.
fn file_name(first: Revision) -> String {
    format!("{:020}.log", first.0)
}

/// The first revision of a segment by its name; none if this is no segment.
pub(crate) fn first_revision(file_name: &str) -> Option<Revision> {
    let digits = file_name.strip_suffix(".log").filter(|digits| digits.len() == 20)?;
    digits.parse().ok()
}

/// The writing end of the log.
pub(crate) struct LogWriter {
    segments: Arc<Segments>,
    make: MakeMedia,
    segment_bytes: u64,
    active: Option<Active>,
}

struct Active {
    segment: Arc<Segment>,
    media: Box<dyn Media>,
    end: u64,
}

impl LogWriter {
    /// Goes on behind the last record.
    pub(crate) fn new(
        segments: Arc<Segments>,
        make: MakeMedia,
        segment_bytes: u64,
    ) -> io::Result<Self> {
        let active = match segments.last() {
            Some(segment) => Some(Active::new(segment, &make)?),
            None => None,
        };
        Ok(Self { segments, make, segment_bytes, active })
    }

    /// Writes records, the first of which has this revision, and returns when they are on disk: the
    /// segment they are in, and where. After an error nothing may be written any more.
    pub(crate) fn append<'a>(
        &mut self,
        first: Revision,
        records: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<(Arc<Segment>, u64)> {
        if self.active.as_ref().is_none_or(|active| active.end >= self.segment_bytes) {
            let segment = self.segments.begin(first)?;
            self.active = Some(Active::new(segment, &self.make)?);
        }
        let active = self.active.as_mut().expect("there is an active segment now");
        let at = active.end;
        for records in records {
            active.media.append(records)?;
            active.end += records.len() as u64;
        }
        active.media.sync()?;
        Ok((active.segment.clone(), at))
    }
}

impl Active {
    fn new(segment: Arc<Segment>, make: &MakeMedia) -> io::Result<Self> {
        let file = segment.file.try_clone()?;
        let end = file.metadata()?.len();
        Ok(Self { segment, media: make(file), end })
    }
}
