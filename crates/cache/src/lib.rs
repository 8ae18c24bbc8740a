//! An indexed, versioned cache of objects with a window of history.
//!
//! One [`Writer`] changes it; any number of readers look at it through [`Cache`] without waiting: at
//! the present ([`Cache::snapshot`]), at a past revision ([`Cache::snapshot_at`]), or change by change
//! ([`Cache::subscribe`]). An informer's store and an API server's watch cache are both this.
//!
//! ```
//! use masthead_cache::{Batch, Cache, Config, From, Gaps, Interest};
//! use masthead_core::{Mutation, Object, Resource, Revision, Time};
//!
//! let pod = |rv: u64| {
//!     let body = format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":
//!         {{"name":"web","namespace":"shop","resourceVersion":"{rv}"}}}}"#);
//!     Object::parse(&Resource::pods(), body.into()).unwrap()
//! };
//! let (mut writer, cache) = Cache::new(Config::default());
//! writer.replace(vec![pod(3)], Revision(5), Time(0)).unwrap();
//!
//! let mut cursor = cache.subscribe(Interest::all(), From::After(Revision(5)), Gaps::End).unwrap();
//! writer.apply([Mutation::Put { revision: Revision(6), object: pod(6) }], Time(1));
//!
//! let mut batch = Batch::default();
//! assert!(cursor.try_read(&mut batch, 100).unwrap());
//! assert_eq!(batch.events[0].revision, Revision(6));
//! assert_eq!(cache.snapshot_at(Revision(5)).unwrap().get_str("shop/web").unwrap().revision(), Revision(3));
//! ```

mod chunks;
mod cursor;
mod history;
mod index;
mod interest;
pub mod limits;
mod memory;
mod past;
mod postings;
mod progress;
mod shared;
mod slots;
mod sync;
mod table;
mod version;
mod view;
mod window;
mod writer;

use std::sync::Arc;

use masthead_core::{Object, ObjectKey, Revision};

pub use cursor::{Batch, Cursor, Event, From, Gaps, Lag, Overtaken, SubscribeError};
pub use index::{Index, IndexError, IndexValues, NAMESPACE_INDEX, OWNER_INDEX};
pub use interest::Interest;
pub use memory::Memory;
pub use progress::{Lane, Progress, WaitFor};
pub use view::{Query, Snapshot, UnknownIndex};
pub use window::HistoryLimits;
pub use writer::{Applied, OlderThanCache, Writer};

use crate::limits::INDEXES_MAX;
use crate::shared::Shared;
use crate::sync::{Ordering, fence};
use crate::window::State;

/// How a cache is set up.
#[derive(Debug)]
pub struct Config {
    /// How much history to keep.
    pub history: HistoryLimits,
    /// Indexes from the start; the one by namespace is always there and costs nothing.
    pub indexes: Vec<Index>,
    /// Seed of all hashing. Names are chosen by users: give each process its own.
    pub seed: u64,
    /// The cache's part of a progress that it shares with others.
    pub lane: Option<Arc<Lane>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            history: HistoryLimits::default(),
            indexes: vec![Index::owner()],
            seed: 0,
            lane: None,
        }
    }
}

/// Why there is no snapshot at a revision.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The history no longer reaches back that far.
    #[error("history before revision {oldest} is gone, {asked} was asked for")]
    Expired {
        /// What was asked for.
        asked: Revision,
        /// From where history is kept.
        oldest: Revision,
    },
    /// The cache is not there yet.
    #[error("revision {asked} is not there yet, the cache is at {current}")]
    Future {
        /// What was asked for.
        asked: Revision,
        /// Where the cache is.
        current: Revision,
    },
    /// The cache has not been filled yet.
    #[error("the cache has not been filled yet")]
    NotReady,
}

/// An index that cannot be added.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddIndexError {
    /// There is one of that name.
    #[error("there is an index named {0:?} already")]
    Exists(String),
    /// There are as many as there may be.
    #[error("a cache has at most {INDEXES_MAX} indexes")]
    TooMany,
}

/// The readers' side of a cache. Cheap to clone; no read waits for the writer or for other readers.
#[derive(Clone, Debug)]
pub struct Cache {
    shared: Arc<Shared>,
}

impl Cache {
    /// An empty cache and its one writer. It is not ready until the first [`Writer::replace`].
    pub fn new(config: Config) -> (Writer, Self) {
        let mut state = State::new(config.history, config.indexes, config.seed);
        let view = state.view();
        let shared = Arc::new(Shared::new(state, view, config.lane, config.seed));
        (Writer::new(shared.clone()), Self { shared })
    }

    /// Returns `true` once the first list has been applied.
    pub fn is_ready(&self) -> bool {
        self.shared.view().epoch > 0
    }

    /// Up to where the cache has everything.
    pub fn revision(&self) -> Revision {
        self.shared.revision()
    }

    /// Every change after this revision is kept.
    pub fn oldest(&self) -> Revision {
        self.shared.view().oldest
    }

    /// The object with this key, now.
    pub fn get(&self, key: &ObjectKey) -> Option<Object> {
        self.snapshot().get(key)
    }

    /// The present state, at one revision for as long as it is held.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.snapshot()
    }

    /// The state at a revision within the window.
    pub fn snapshot_at(&self, revision: Revision) -> Result<Snapshot, SnapshotError> {
        loop {
            let Snapshot { view, revision: current, seq } = self.shared.snapshot();
            if view.epoch == 0 {
                return Err(SnapshotError::NotReady);
            }
            let expired = |oldest| SnapshotError::Expired { asked: revision, oldest };
            if revision < view.oldest {
                return Err(expired(view.oldest));
            }
            if revision > current {
                return Err(SnapshotError::Future { asked: revision, current });
            }
            if revision >= view.revision || masthead_core::planted::on("exact_reads_newer") {
                return Ok(Snapshot { view, seq, revision });
            }
            let Some(next) = view.first_after(revision) else { continue };
            view.pin(next - 1);
            // Pinned before the history is looked at once more: if it still reaches back, the writer
            // sees the pin before it cuts.
            fence(Ordering::SeqCst);
            let now = self.shared.view();
            if now.epoch != view.epoch || revision < now.oldest {
                return Err(expired(now.oldest));
            }
            return Ok(Snapshot { view, seq: next - 1, revision });
        }
    }

    /// Follows what concerns an interest.
    ///
    /// Takes a lock for a moment, here and when the cursor is dropped; reading takes none.
    pub fn subscribe(
        &self,
        interest: Interest,
        from: From,
        gaps: Gaps,
    ) -> Result<Cursor, SubscribeError> {
        Cursor::subscribe(&self.shared, interest, from, gaps)
    }

    /// How many cursors there are.
    pub fn cursors(&self) -> usize {
        self.shared.interests.lock().len()
    }

    /// Resolves when the cache has everything up to `revision`.
    pub fn wait_for(&self, revision: Revision) -> WaitFor {
        WaitFor { cache: self.clone(), revision, ticket: None }
    }

    /// Adds an index and fills it from what is there. Snapshots taken before do not have it.
    pub fn add_index(&self, index: Index) -> Result<(), AddIndexError> {
        let mut result = Ok(());
        writer::update(&self.shared, None, |state, _| {
            let exists = index.name() == NAMESPACE_INDEX
                || state.indexes.iter().any(|other| &*other.view.name == index.name());
            if exists {
                result = Err(AddIndexError::Exists(index.name().to_owned()));
            } else if state.indexes.len() == INDEXES_MAX {
                result = Err(AddIndexError::TooMany);
            } else {
                state.add_index(index);
            }
            false
        });
        result
    }

    /// How often the function of an index failed or panicked; none if there is no such index.
    pub fn index_failures(&self, name: &str) -> Option<u64> {
        let state = self.shared.state.lock();
        state.indexes.iter().find(|index| &*index.view.name == name).map(|index| index.failures)
    }

    /// What it costs.
    pub fn memory(&self) -> Memory {
        self.shared.gauges.read()
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.shared.progress
    }
}
