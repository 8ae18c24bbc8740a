//! What the threads of an embedded store share, and reading from it.
//!
//! **Invariant:** under the window's lock, base and window together are the whole truth. The base is
//! the state at the window's oldest revision, or at a later one that is the tail's oldest by then; the
//! window still has the changes between the two and so hides the difference.
//!
//! Lock order: window, then tail.

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use masthead_core::{ObjectKey, Revision};
use parking_lot::{Mutex, RwLock};

use super::base::Base;
use super::directory::Directory;
use super::failure::{WriteError, is_no_room, root};
use super::log::{Disk, Segments};
use super::reached::Reached;
use super::record;
use super::room;
use super::window::{Line, Window};
use crate::ledger::{self, Held, Slot};
use crate::limits::{EVENTS_BATCH_BYTES_MAX, EVENTS_BATCH_MAX, RANGE_CHUNK_VALUES};
use crate::page::PageBuilder;
use crate::tail::Tail;
use crate::{CommitError, Event, Health, Range, RangePage, Settings, StoreError, Value};

pub(crate) struct Shared {
    pub(crate) window: RwLock<Window>,
    pub(crate) base: Base,
    pub(crate) segments: Arc<Segments>,
    pub(crate) tail: Arc<Tail>,
    pub(crate) settings: Settings,
    pub(crate) reached: Arc<Reached>,
    /// Groups that were synced.
    pub(crate) groups: AtomicU64,
    condition: Mutex<Condition>,
    disk: Arc<dyn Disk>,
    /// Last, so that the directory is free when everything else is closed.
    directory: Directory,
}

/// Whether anything can be written.
enum Condition {
    Writable,
    /// Nothing is written until there is room again.
    Full(Arc<str>),
    /// Nothing is written until a restart.
    Broken(Arc<str>),
}

/// An object found by a range, before its body is read.
enum Found {
    Base(Bytes, Value),
    Log(Line),
}

impl Shared {
    pub(crate) fn new(
        directory: Directory,
        base: Base,
        window: Window,
        segments: Arc<Segments>,
        reached: Arc<Reached>,
        settings: Settings,
        disk: Arc<dyn Disk>,
    ) -> Self {
        let tail = Arc::new(Tail::new(window.oldest(), window.current(), settings.tail_bytes));
        let (window, condition) = (RwLock::new(window), Mutex::new(Condition::Writable));
        let groups = AtomicU64::new(0);
        Self { window, base, segments, tail, settings, reached, groups, condition, disk, directory }
    }

    /// The store's directory.
    pub(crate) fn dir(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn health(&self) -> Health {
        match &*self.condition.lock() {
            Condition::Writable => Health::Writable,
            Condition::Full(why) | Condition::Broken(why) => Health::ReadOnly { why: why.clone() },
        }
    }

    /// Fails while nothing can be written.
    pub(crate) fn check_writable(&self) -> Result<(), CommitError> {
        match &*self.condition.lock() {
            Condition::Writable => Ok(()),
            Condition::Full(why) => Err(CommitError::Full { why: why.clone() }),
            Condition::Broken(why) => Err(CommitError::ReadOnly { why: why.clone() }),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        matches!(*self.condition.lock(), Condition::Full(_))
    }

    pub(crate) fn is_broken(&self) -> bool {
        matches!(*self.condition.lock(), Condition::Broken(_))
    }

    /// Takes note that something could not be written, and says what becomes of the writes.
    pub(crate) fn fail_write(&self, what: &str, error: &WriteError) -> CommitError {
        match error {
            WriteError::NoRoom(error) => CommitError::Full { why: self.fill(what, error) },
            WriteError::Broken(error) => CommitError::ReadOnly { why: self.fail(what, error) },
        }
    }

    /// Says why nothing is written until a restart; the first reason stays.
    pub(crate) fn fail(&self, what: &str, error: &(dyn Error + 'static)) -> Arc<str> {
        let mut condition = self.condition.lock();
        if let Condition::Broken(why) = &*condition {
            return why.clone();
        }
        let (dir, error) = (self.dir().display(), root(error));
        let says_so = error.downcast_ref::<io::Error>().is_some_and(is_no_room);
        let is_full = says_so || !room::is_enough_for_fold(self.dir());
        let remedy = if is_full { "free space on its disk" } else { "check its disk" };
        let why = format!("{what} in {dir} failed: {error}; {remedy}, then restart the server");
        tracing::error!(why, "the store is read-only until a restart");
        let why: Arc<str> = why.into();
        *condition = Condition::Broken(why.clone());
        why
    }

    /// Says why nothing is written until there is room.
    fn fill(&self, what: &str, error: &io::Error) -> Arc<str> {
        let mut condition = self.condition.lock();
        if let Condition::Full(why) | Condition::Broken(why) = &*condition {
            return why.clone();
        }
        let dir = self.dir().display();
        let why = format!(
            "{what} in {dir} failed: {error}; free space on its disk, and the store takes writes again by itself"
        );
        tracing::error!(why, "the store is out of space and takes no writes");
        let why: Arc<str> = why.into();
        *condition = Condition::Full(why.clone());
        why
    }

    /// Takes writes again if there is room by now.
    pub(crate) fn try_room(&self) {
        if !self.is_full() {
            return;
        }
        let tried = self.disk.probe(self.dir()).and_then(|()| self.reached.settle());
        match tried {
            Err(WriteError::NoRoom(_)) => {}
            Err(WriteError::Broken(error)) => {
                self.fail("trying whether there is room", &error);
            }
            Ok(()) => {
                let mut condition = self.condition.lock();
                if matches!(*condition, Condition::Full(_)) {
                    tracing::info!(dir = %self.dir().display(), "there is room: the store takes writes again");
                    *condition = Condition::Writable;
                }
            }
        }
    }

    /// The newest state of an object.
    pub(crate) fn get(&self, slot: &Slot) -> Result<Option<Value>, StoreError> {
        let line = {
            let window = self.window.read();
            match window.last(slot, Revision::MAX) {
                Some(line) => line.clone(),
                None => return self.base.get(slot),
            }
        };
        if line.live() { read(&line).map(Some) } else { Ok(None) }
    }

    /// One page of a range.
    pub(crate) fn range(&self, range: &Range) -> Result<RangePage, StoreError> {
        let mut page = PageBuilder::new(range.limit);
        let mut after = range.after.clone();
        loop {
            let found = self.chunk(range, after.as_ref())?;
            let whole = found.len() < RANGE_CHUNK_VALUES;
            for found in found {
                let key = found.key()?;
                let more = match found {
                    Found::Base(_, value) => {
                        page.push(key.clone(), value.body().len(), || Ok(value))?
                    }
                    Found::Log(line) => {
                        page.push(key.clone(), line.body_bytes(), || read(&line))?
                    }
                };
                if !more {
                    return Ok(page.finish());
                }
                after = Some(key);
            }
            if whole {
                return Ok(page.finish());
            }
        }
    }

    /// The next objects of a range. The lock is held for some of them at a time, so that commits get
    /// their turn; what they add is newer than the range.
    fn chunk(&self, range: &Range, after: Option<&ObjectKey>) -> Result<Vec<Found>, StoreError> {
        let window = self.window.read();
        self.tail.check(range.at)?;
        let mut base = self.base.after(&range.resource, after);
        let mut next_base = base.next().transpose()?;
        let mut next_line = window.next(&range.resource, after, range.at);
        let mut found = Vec::with_capacity(RANGE_CHUNK_VALUES);
        while found.len() < RANGE_CHUNK_VALUES {
            let line_first = match (&next_base, next_line) {
                (None, None) => break,
                (Some(_), None) => false,
                (None, Some(_)) => true,
                (Some((key, _)), Some(line)) => line.head.slot.key.as_str().as_bytes() <= &key[..],
            };
            if !line_first {
                let (key, value) = next_base.take().expect("there is one");
                found.push(Found::Base(key, value));
                next_base = base.next().transpose()?;
                continue;
            }
            let line = next_line.expect("there is one");
            let key = &line.head.slot.key;
            if next_base.as_ref().is_some_and(|(base, _)| base[..] == *key.as_str().as_bytes()) {
                next_base = base.next().transpose()?;
            }
            if line.live() {
                found.push(Found::Log(line.clone()));
            }
            next_line = window.next(&range.resource, Some(key), range.at);
        }
        Ok(found)
    }

    /// The first events after a revision.
    pub(crate) fn events(&self, after: Revision) -> Result<Vec<Event>, StoreError> {
        let lines = {
            let window = self.window.read();
            self.tail.check_kept(after)?;
            let mut bytes = 0;
            let lines = window.after(after).take(EVENTS_BATCH_MAX).take_while(|line| {
                let first = bytes == 0;
                bytes += line.head.bytes;
                first || bytes <= EVENTS_BATCH_BYTES_MAX
            });
            lines.cloned().collect::<Vec<_>>()
        };
        read_run(&lines)
    }
}

impl Found {
    fn key(&self) -> Result<ObjectKey, StoreError> {
        match self {
            Self::Log(line) => Ok(line.head.slot.key.clone()),
            Self::Base(key, _) => {
                let text = str::from_utf8(key).ok();
                text.and_then(record::object_key).ok_or_else(|| StoreError::Damaged {
                    what: "the base has a key that is none".to_owned(),
                })
            }
        }
    }
}

impl ledger::State for Shared {
    fn newest(&self, slot: &Slot) -> Result<Option<Held>, StoreError> {
        let window = self.window.read();
        let Some(line) = window.last(slot, Revision::MAX) else {
            return Ok(self.base.get(slot)?.map(Held::from));
        };
        let (revision, body_bytes) = (line.head.revision, line.body_bytes());
        Ok(line.live().then_some(Held { revision, body_bytes, value: None }))
    }

    fn load(&self, slot: &Slot, revision: Revision) -> Result<Value, StoreError> {
        let value = self.get(slot)?.filter(|value| value.revision() == revision);
        Ok(value.expect("only the committer changes what is newest"))
    }
}

/// The object of one line.
pub(crate) fn read(line: &Line) -> Result<Value, StoreError> {
    let record = line.segment.read(line.at, line.head.bytes).map_err(disk)?;
    checked(&record, line)?;
    let body = Bytes::from(record).slice(line.head.body_at..);
    Ok(Value::stored(line.head.revision, body))
}

/// The events of lines that follow each other: one read for each segment.
fn read_run(lines: &[Line]) -> Result<Vec<Event>, StoreError> {
    let mut events = Vec::with_capacity(lines.len());
    for run in lines.chunk_by(|a, b| Arc::ptr_eq(&a.segment, &b.segment)) {
        let (first, last) = (&run[0], &run[run.len() - 1]);
        let end = last.at + last.head.bytes as u64;
        let bytes = usize::try_from(end - first.at).unwrap_or(usize::MAX);
        let read = |records: &[u8]| take_run(run, records, &mut events);
        first.segment.look(first.at, bytes, read).map_err(disk)??;
    }
    Ok(events)
}

/// The events of lines whose records are here.
fn take_run(run: &[Line], records: &[u8], events: &mut Vec<Event>) -> Result<(), StoreError> {
    let begin = run[0].at;
    for line in run {
        let from = usize::try_from(line.at - begin).unwrap_or(usize::MAX);
        let record = &records[from..from + line.head.bytes];
        checked(record, line)?;
        // Copied, so that one event that is kept does not keep all.
        let body = Bytes::copy_from_slice(&record[line.head.body_at..]);
        events.push(event(line, body));
    }
    Ok(())
}

fn event(line: &Line, body: Bytes) -> Event {
    let Slot { resource, key } = line.head.slot.clone();
    let (revision, kind) = (line.head.revision, line.head.kind);
    Event { resource, key, revision, kind, value: Value::stored(revision, body) }
}

fn checked(record: &[u8], line: &Line) -> Result<(), StoreError> {
    if record::is_record_of(record, line.head.revision) {
        return Ok(());
    }
    let path = line.segment.path().display();
    Err(StoreError::Damaged { what: format!("the record at byte {} of {path}", line.at) })
}

fn disk(error: std::io::Error) -> StoreError {
    StoreError::Disk(Arc::new(error))
}
