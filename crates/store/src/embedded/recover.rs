//! Reading the log when a store is opened.
//!
//! Of the last segment every record is checked, and what a crash left behind the last whole one is
//! cut off: it was never acknowledged, since what is acknowledged was synced with everything before
//! it. If a later record knows otherwise, the disk has lost something, and the store is not opened.
//! The other segments were synced whole; of them only the heads are read, and records are checked
//! when somebody reads them.
//!
//! A log that has a gap, or that ends before the revision which it had reached, has lost files or parts of
//! them. The store is then not opened, nothing is changed, and the error names the files.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use masthead_core::Revision;

use super::base_files;
use super::directory::{Directory, OpenError, make_private_directory, sync};
use super::log::{Segment, Segments, file_name, first_revision};
use super::reached::{Milestone, REACHED};
use super::record::{self, HEAD_BYTES_MAX, HEAD_BYTES_USUAL, Head};
use super::window::{Line, Window};

/// A log that was read.
pub(crate) struct Recovered {
    pub(crate) segments: Segments,
    /// Whether the log goes on in its last file. If that was empty or does not end at the newest revision, it
    /// goes on in a new one.
    pub(crate) resumes: bool,
}

/// The files of a log as they were found, oldest first, before the base was opened.
pub(crate) struct Found {
    dir: PathBuf,
    is_there: bool,
    files: VecDeque<Arc<Segment>>,
    /// A file of the base that had nothing in it.
    empty_base_file: Option<PathBuf>,
}

/// The end of the last segment.
#[derive(Default)]
struct Ending {
    /// Where the records end that count.
    records: u64,
    /// Where the file ends.
    file: u64,
    /// The revision of the last record.
    newest: Option<Revision>,
}

impl Found {
    /// Looks which files there are.
    pub(crate) fn look(directory: &Directory) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io { dir: directory.path().to_owned(), source };
        let dir = directory.log();
        let is_there = dir.is_dir();
        let files = if is_there { segments(&dir).map_err(io)? } else { VecDeque::new() };
        Ok(Self { dir, is_there, files, empty_base_file: base_files::empty(&directory.base()) })
    }

    /// The first revision of the oldest file; none if there is no file.
    pub(crate) fn first(&self) -> Option<Revision> {
        self.files.front().map(|segment| segment.first())
    }
}

/// Reads everything after the base into its window.
pub(crate) fn recover(
    directory: &Directory,
    found: Found,
    milestone: Option<&Milestone>,
    window: &mut Window,
) -> Result<Recovered, OpenError> {
    let io = |source| OpenError::Io { dir: directory.path().to_owned(), source };
    let mut reader = Reader { directory, found: &found, milestone, window };
    let ending = reader.read()?;
    reader.check_end()?;
    let Found { dir, mut files, .. } = found;
    make_private_directory(&dir).map_err(io)?;
    sync(directory.path()).and_then(|()| sync(&dir)).map_err(io)?;
    if let Some(last) = files.back() {
        if ending.records < ending.file {
            let bytes = ending.file - ending.records;
            tracing::info!(bytes, "cut off what a crash left unfinished");
            last.file().set_len(ending.records).map_err(io)?;
        }
        // A process that was killed may not have got so far, and nothing is shown before it is on
        // disk.
        last.file().sync_all().map_err(io)?;
    }
    if ending.records == 0 {
        files.pop_back();
    }
    let resumes = ending.newest == Some(window.current());
    Ok(Recovered { segments: Segments::new(dir, files), resumes })
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
    found: &'a Found,
    milestone: Option<&'a Milestone>,
    window: &'a mut Window,
}

impl Reader<'_> {
    /// Reads all files that are needed. What is behind the records of the last one is left there.
    fn read(&mut self) -> Result<Ending, OpenError> {
        let files = &self.found.files;
        let mut ending = Ending::default();
        for (at, segment) in files.iter().enumerate() {
            let next = files.get(at + 1).map(|next| next.first());
            // What the base has already is still there if a crash came before it was removed.
            let wanted = next.is_none_or(|next| next > self.window.oldest().next());
            if !wanted {
                continue;
            }
            if segment.first() > self.window.current().next() {
                return Err(self.gap(at));
            }
            match next {
                Some(next) => self.read_whole(segment, next)?,
                None => ending = self.read_last(segment)?,
            }
        }
        Ok(ending)
    }

    /// The heads of a segment that was synced whole.
    fn read_whole(&mut self, segment: &Arc<Segment>, next: Revision) -> Result<(), OpenError> {
        let (mut at, end) = (0, self.length(segment)?);
        while at < end {
            let head = self.head(segment, at, end)?.ok_or_else(|| self.damaged(segment, at))?;
            if head.revision >= next {
                return Err(self.misplaced(segment, at, head.revision));
            }
            at = self.take(head, segment, at)?;
        }
        Ok(())
    }

    /// The records of the last segment, up to the first that is not whole.
    fn read_last(&mut self, segment: &Arc<Segment>) -> Result<Ending, OpenError> {
        let mut ending = Ending { file: self.length(segment)?, ..Ending::default() };
        while let Some(head) = self.head(segment, ending.records, ending.file)? {
            let record =
                segment.read(ending.records, head.bytes).map_err(|error| self.io(error))?;
            if record::verified(&record).is_none() {
                break;
            }
            ending.newest = Some(head.revision);
            ending.records = self.take(head, segment, ending.records)?;
        }
        if ending.records < ending.file {
            self.check_nothing_is_lost(segment, ending.records, ending.file)?;
        }
        Ok(ending)
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
        if head.revision < segment.first() {
            return Err(self.misplaced(segment, at, head.revision));
        }
        if head.revision <= self.window.oldest() {
            return Ok(next_at);
        }
        if head.revision != self.window.current().next() {
            return Err(self.misplaced(segment, at, head.revision));
        }
        self.window.push(Line { head, segment: segment.clone(), at });
        Ok(next_at)
    }

    /// Fails if the log ends before the revision that it had reached.
    fn check_end(&self) -> Result<(), OpenError> {
        let Some(milestone) = self.milestone else { return Ok(()) };
        let (ends, reached) = (self.window.current(), milestone.revision);
        if ends >= reached {
            return Ok(());
        }
        let suspect = self.suspect(reached);
        let dir = self.directory.path();
        Err(OpenError::Damaged {
            dir: dir.to_owned(),
            what: format!("its log ends at revision {ends} and had reached {reached}: {suspect}"),
            remedy: format!(
                "bring the file back, or restore the store from a backup, or, to go on at revision {ends} \
                 without the changes after it, remove {}",
                dir.join(REACHED).display()
            ),
        })
    }

    /// What has become of the file that a revision was in.
    fn suspect(&self, revision: Revision) -> String {
        let Found { dir, is_there, files, .. } = self.found;
        if !is_there {
            return format!("the directory {} is missing", dir.display());
        }
        let listed = self.milestone.and_then(|milestone| milestone.file_of(revision));
        if let Some(first) = listed
            && files.iter().all(|segment| segment.first() != first)
        {
            return format!("{} is missing", dir.join(file_name(first)).display());
        }
        match files.iter().rev().find(|segment| segment.first() <= revision) {
            Some(segment) if segment.file().metadata().is_ok_and(|found| found.len() == 0) => {
                format!("{} is empty", segment.path().display())
            }
            Some(segment) if listed == Some(segment.first()) => {
                format!("{} is cut short", segment.path().display())
            }
            Some(segment) => {
                let path = segment.path().display();
                format!("{path} is cut short, or the file behind it is missing")
            }
            None => format!("the file of it in {} is missing", dir.display()),
        }
    }

    fn io(&self, source: io::Error) -> OpenError {
        OpenError::Io { dir: self.directory.path().to_owned(), source }
    }

    fn damaged(&self, segment: &Segment, at: u64) -> OpenError {
        let what = format!("no record at byte {at} of {}", segment.path().display());
        OpenError::damaged(self.directory.path(), what)
    }

    /// A record that belongs into another file, or at another place of its file.
    fn misplaced(&self, segment: &Segment, at: u64, found: Revision) -> OpenError {
        let (path, expected) = (segment.path().display(), self.window.current().next());
        let what = format!(
            "the record at byte {at} of {path} is of revision {found} where {expected} is expected: the file was \
             exchanged for another one, or changed"
        );
        OpenError::damaged(self.directory.path(), what)
    }

    /// Revisions are missing before a file.
    fn gap(&self, at: usize) -> OpenError {
        let segment = &self.found.files[at];
        let (expected, found) = (self.window.current().next(), segment.first());
        let suspect = if at == 0 { self.suspect_before(segment) } else { self.suspect(expected) };
        let what = format!(
            "its log goes on with revision {found} where {expected} is expected: {suspect}"
        );
        OpenError::damaged(self.directory.path(), what)
    }

    /// What has become of the changes between the base and the first file of the log.
    fn suspect_before(&self, first: &Segment) -> String {
        let (base, first) = (self.directory.base(), first.path().display());
        let base = match &self.found.empty_base_file {
            Some(path) => format!("{} is empty", path.display()),
            None => format!("the base in {} is not whole", base.display()),
        };
        let expected = self.window.current().next();
        let listed = self.milestone.and_then(|milestone| milestone.file_of(expected));
        match listed {
            Some(file) => {
                format!("{} is missing, or {base}", self.found.dir.join(file_name(file)).display())
            }
            None => format!("the file before {first} is missing, or {base}"),
        }
    }
}
