//! The state at the oldest kept revision, in an LSM tree.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use fjall::config::{BlockSizePolicy, CompressionPolicy};
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions,
    OwnedWriteBatch, PersistMode,
};
use masthead_core::{ObjectKey, Revision};

use super::base_files;
use super::directory::{Directory, OpenError, make_private_directory};
use crate::ledger::Slot;
use crate::limits::{BASE_BLOCK_CACHE_BYTES, BASE_JOURNAL_BYTES_MAX, BASE_MEMTABLE_BYTES_MAX};
use crate::{ResourceName, StoreError, Value};

/// Objects as they were at one revision: `resource NUL key` → revision and body.
pub(crate) struct Base {
    database: Database,
    objects: Keyspace,
}

/// Which revision the base is the state of, and how much history was made up to there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    pub(crate) revision: Revision,
    pub(crate) history: u64,
}

/// Where the mark is: before all resources, since a name does not begin with NUL.
const MARK: &[u8] = b"\0mark";
const REVISION_BYTES: usize = 8;
/// Bodies of at least this size stand beside the tree: compactions then move only pointers. Below it
/// a pointer would save nothing worth a second read.
const SEPARATED_BYTES_MIN: u32 = 1024;

/// What is known of a store before its base is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// Whether the store was opened before, so that its base was finished.
    pub(crate) was_opened: bool,
    /// Where the log begins; none if there is no log, and what there was is in the base.
    pub(crate) log: Option<Revision>,
    /// A revision that the log reached.
    pub(crate) reached: Revision,
}

impl Base {
    pub(crate) fn open(
        directory: &Directory,
        expected: Expected,
    ) -> Result<(Self, Mark), OpenError> {
        let io = |source| OpenError::Io { dir: directory.path().to_owned(), source };
        check(directory, expected)?;
        // The tree makes its files for all to read. Nobody else gets to them through this.
        make_private_directory(&directory.base()).map_err(io)?;
        let refuse = |error: fjall::Error| refusal(directory, error);
        let database = Database::builder(directory.base())
            .cache_size(BASE_BLOCK_CACHE_BYTES)
            .max_journaling_size(BASE_JOURNAL_BYTES_MAX)
            .manual_journal_persist(true)
            .worker_threads(1)
            .open()
            .map_err(refuse)?;
        let objects = database.keyspace("objects", options).map_err(refuse)?;
        let mark = objects.get(MARK).map_err(refuse)?;
        let mark = match mark {
            None => Mark { revision: Revision(1), history: 0 },
            Some(bytes) => decode_mark(&bytes).ok_or_else(|| {
                let base = directory.base();
                let what = format!("the base in {} has no readable mark", base.display());
                OpenError::damaged(directory.path(), what)
            })?,
        };
        Ok((Self { database, objects }, mark))
    }

    /// The state of an object.
    pub(crate) fn get(&self, slot: &Slot) -> Result<Option<Value>, StoreError> {
        match self.objects.get(slot_key(slot)).map_err(disk)? {
            Some(value) => Ok(Some(decode(&value.into())?)),
            None => Ok(None),
        }
    }

    /// The objects of a resource behind a key, with their keys.
    pub(crate) fn after(
        &self,
        resource: &ResourceName,
        after: Option<&ObjectKey>,
    ) -> impl Iterator<Item = Result<(Bytes, Value), StoreError>> + use<> {
        let mut start = prefix(resource);
        let skip = start.len();
        let mut end = start.clone();
        *end.last_mut().expect("the prefix has its separator") = 1;
        if let Some(key) = after {
            start.extend_from_slice(key.as_str().as_bytes());
            // The least that is greater.
            start.push(0);
        }
        self.objects.range(start..end).map(move |guard| {
            let (key, value) = guard.into_inner().map_err(disk)?;
            Ok((Bytes::from(key).slice(skip..), decode(&value.into())?))
        })
    }

    pub(crate) fn change(&self) -> BaseChange {
        BaseChange { batch: self.database.batch(), objects: self.objects.clone() }
    }

    /// Returns when all changes are on disk.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.database.persist(PersistMode::SyncAll).map_err(disk)
    }
}

/// A change of the base, all or nothing.
pub(crate) struct BaseChange {
    batch: OwnedWriteBatch,
    objects: Keyspace,
}

impl BaseChange {
    pub(crate) fn put(&mut self, slot: &Slot, revision: Revision, body: &[u8]) {
        let mut value = Vec::with_capacity(REVISION_BYTES + body.len());
        value.extend_from_slice(&revision.0.to_be_bytes());
        value.extend_from_slice(body);
        self.batch.insert(&self.objects, slot_key(slot), value);
    }

    pub(crate) fn remove(&mut self, slot: &Slot) {
        self.batch.remove(&self.objects, slot_key(slot));
    }

    /// Makes it visible, not yet durable: the state is that of the mark from here on.
    pub(crate) fn apply(mut self, mark: Mark) -> Result<(), StoreError> {
        let mut bytes = Vec::from(mark.revision.0.to_be_bytes());
        bytes.extend_from_slice(&mark.history.to_be_bytes());
        self.batch.insert(&self.objects, MARK, bytes);
        self.batch.commit().map_err(disk)
    }
}

fn options() -> KeyspaceCreateOptions {
    let separation = KvSeparationOptions::default()
        .compression(CompressionType::None)
        .separation_threshold(SEPARATED_BYTES_MIN);
    KeyspaceCreateOptions::default()
        .max_memtable_size(BASE_MEMTABLE_BYTES_MAX)
        .manual_journal_persist(true)
        .data_block_size_policy(BlockSizePolicy::all(4096))
        .data_block_compression_policy(CompressionPolicy::disabled())
        .with_kv_separation(Some(separation))
}

fn prefix(resource: &ResourceName) -> Vec<u8> {
    let mut key = Vec::from(resource.as_str());
    key.push(0);
    key
}

fn slot_key(slot: &Slot) -> Vec<u8> {
    let mut key = prefix(&slot.resource);
    key.extend_from_slice(slot.key.as_str().as_bytes());
    key
}

fn decode(value: &Bytes) -> Result<Value, StoreError> {
    let Some((revision, _)) = value.split_first_chunk::<REVISION_BYTES>() else {
        return Err(StoreError::Damaged {
            what: "an object of the base has no revision".to_owned(),
        });
    };
    let revision = Revision(u64::from_be_bytes(*revision));
    Ok(Value::stored(revision, value.slice(REVISION_BYTES..)))
}

fn decode_mark(bytes: &[u8]) -> Option<Mark> {
    let (revision, history) = bytes.split_first_chunk()?;
    let history = history.try_into().ok()?;
    let revision = Revision(u64::from_be_bytes(*revision));
    Some(Mark { revision, history: u64::from_be_bytes(history) })
}

fn disk(error: fjall::Error) -> StoreError {
    StoreError::Disk(Arc::new(error))
}

/// Refuses a base of which files are missing, before the tree makes others in their place.
fn check(directory: &Directory, expected: Expected) -> Result<(), OpenError> {
    let dir = directory.path();
    let base = directory.base();
    let io = |source| OpenError::Io { dir: dir.to_owned(), source };
    let missing = if base_files::is_absent(&base).map_err(io)? {
        let first = Revision(1);
        let needed = match expected.log {
            Some(begins) => begins > first.next(),
            None => expected.reached > first,
        };
        needed.then(|| format!("the directory {} is missing or empty", base.display()))
    } else if expected.was_opened {
        base_files::missing(&base).map_err(io)?
    } else {
        None
    };
    missing.map_or(Ok(()), |what| Err(OpenError::damaged(dir, what)))
}

/// Tells a base that is damaged from a disk that cannot be used.
fn refusal(directory: &Directory, error: fjall::Error) -> OpenError {
    let dir = directory.path().to_owned();
    match error {
        fjall::Error::Io(source) | fjall::Error::Storage(fjall::LsmError::Io(source))
            if !is_damage(&source) =>
        {
            OpenError::Io { dir, source }
        }
        other => {
            let base = directory.base();
            let suspect = match base_files::empty(&base) {
                Some(path) => format!("{} is empty", path.display()),
                None => "a file below it is missing or is not what was written".to_owned(),
            };
            let what =
                format!("the base in {} cannot be read ({other}): {suspect}", base.display());
            OpenError::damaged(&dir, what)
        }
    }
}

/// What the tree says of files that are missing or too short.
fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, InvalidData, InvalidInput, NotFound, UnexpectedEof};
    matches!(error.kind(), AlreadyExists | InvalidData | InvalidInput | NotFound | UnexpectedEof)
}
