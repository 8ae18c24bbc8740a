//! The log on disk: segments of records.
//!
//! **Invariant:** only the last segment is written to, and only at its end. What is taken back from there was
//! never answered.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use masthead_core::Revision;
use parking_lot::Mutex;

use super::directory::{self, private, sync};
use super::failure::WriteError;
use super::reached::Reached;
use super::room;
use crate::limits::READ_BUFFER_BYTES;

thread_local! {
    /// What [`Segment::look`] reads into.
    static READ: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What a segment is written through.
pub(crate) trait Media: Send {
    /// Writes at the end.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns when everything is on disk that was written.
    fn sync(&mut self) -> io::Result<()>;

    /// Takes back what was written from a position on, and returns when that is on disk.
    fn cut(&mut self, end: u64) -> io::Result<()>;
}

impl Media for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&mut self, end: u64) -> io::Result<()> {
        self.set_len(end)?;
        self.sync_all()
    }
}

/// The disk that a store is on. Tests put one there that fails.
pub(crate) trait Disk: Send + Sync {
    /// What a new segment is written through.
    fn media(&self, file: File) -> Box<dyn Media> {
        Box::new(file)
    }

    /// Puts a file of the store there, or another one in its place, whole and durable.
    fn replace(&self, dir: &Path, name: &str, content: &[u8]) -> Result<(), WriteError> {
        directory::replace(dir, name, content)
    }

    /// Finds out whether there is room by writing to a store's directory.
    fn probe(&self, dir: &Path) -> Result<(), WriteError> {
        room::probe(dir)
    }
}

/// The disk as it is.
pub(crate) struct RealDisk;

impl Disk for RealDisk {}

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

    /// A new last file, which is durable.
    fn begin(&self, first: Revision) -> Result<Arc<Segment>, WriteError> {
        let segment = Segment::open(&self.dir.join(file_name(first)), first);
        let segment = Arc::new(segment.map_err(WriteError::before_sync)?);
        sync(&self.dir).map_err(WriteError::Broken)?;
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

    /// The first revisions of the newest files, oldest first.
    pub(crate) fn newest(&self, most: usize) -> Vec<Revision> {
        let files = self.files.lock();
        files.range(files.len().saturating_sub(most)..).map(|segment| segment.first).collect()
    }

    fn last(&self) -> Option<Arc<Segment>> {
        self.files.lock().back().cloned()
    }
}

/// The name of the file with a first revision. Its width is fixed, so that names sort as revisions do.
pub(crate) fn file_name(first: Revision) -> String {
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
    reached: Arc<Reached>,
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    active: Option<Active>,
}

struct Active {
    segment: Arc<Segment>,
    media: Box<dyn Media>,
    end: u64,
}

impl LogWriter {
    /// Goes on behind the last record if `resumes`, else in a new file.
    pub(crate) fn new(
        segments: Arc<Segments>,
        reached: Arc<Reached>,
        disk: Arc<dyn Disk>,
        segment_bytes: u64,
        resumes: bool,
    ) -> io::Result<Self> {
        let active = match segments.last().filter(|_| resumes) {
            Some(segment) => Some(Active::new(segment, &*disk)?),
            None => None,
        };
        Ok(Self { segments, reached, disk, segment_bytes, active })
    }

    /// Writes records of the revisions from `first` to `last`, and returns when they are on disk: the segment
    /// they are in, and where. If there is no room, the log is what it was before.
    pub(crate) fn append<'a>(
        &mut self,
        (first, last): (Revision, Revision),
        records: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(Arc<Segment>, u64), WriteError> {
        let is_full = |active: &Active| active.end > 0 && active.end >= self.segment_bytes;
        if self.active.as_ref().is_none_or(is_full) {
            let segment = self.segments.begin(first)?;
            let active = Active::new(segment, &*self.disk);
            self.active = Some(active.map_err(WriteError::before_sync)?);
        }
        let active = self.active.as_mut().expect("there is an active segment now");
        let at = active.end;
        let written = active.write(records).and_then(|()| self.reached.advance(last, at == 0));
        match written {
            Ok(()) => Ok((active.segment.clone(), at)),
            Err(WriteError::NoRoom(error)) => {
                active.cut(at).map_err(WriteError::Broken)?;
                Err(WriteError::NoRoom(error))
            }
            Err(broken) => Err(broken),
        }
    }
}

impl Active {
    fn new(segment: Arc<Segment>, disk: &dyn Disk) -> io::Result<Self> {
        let file = segment.file.try_clone()?;
        let end = file.metadata()?.len();
        Ok(Self { segment, media: disk.media(file), end })
    }

    fn write<'a>(&mut self, records: impl Iterator<Item = &'a [u8]>) -> Result<(), WriteError> {
        for records in records {
            self.media.append(records).map_err(WriteError::before_sync)?;
            self.end += records.len() as u64;
        }
        self.media.sync().map_err(WriteError::Broken)
    }

    fn cut(&mut self, end: u64) -> io::Result<()> {
        self.media.cut(end)?;
        self.end = end;
        Ok(())
    }
}
