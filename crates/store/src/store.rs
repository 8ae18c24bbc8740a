//! The contract of every store.

use std::pin::Pin;
use std::sync::Arc;

use futures_core::Stream;
use masthead_core::{ObjectKey, Revision};

use crate::{CommitError, Committed, Event, ResourceName, StoreError, Value, Write};

/// A future on the heap.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The events of a watch, in the order of their revisions. It ends only with an error, which is its
/// last item.
pub type Events = Pin<Box<dyn Stream<Item = Result<Batch, StoreError>> + Send>>;

/// What a watch tells at a time.
#[derive(Clone, Debug)]
pub struct Batch {
    /// What happened; nothing if only time went by.
    pub events: Vec<Event>,
    /// Everything up to here has been told.
    pub reached: Revision,
}

/// Keeps objects of all resources under one revision.
///
/// Every successful write has a revision of its own, higher than that of the write before. An empty
/// store is at revision 1.
///
/// **Nothing reaches a watch, [`current`](Store::current) or an answer before it is durable.**
///
/// Futures do their work whether they are polled or not; dropping one only drops the answer.
pub trait Store: Send + Sync + 'static {
    /// The newest revision: durable, and handed to watches. At least 1.
    fn current(&self) -> BoxFuture<Result<Revision, StoreError>>;

    /// Every change after this revision is kept, and every state from it on can be read.
    fn oldest(&self) -> Revision;

    /// The newest state of an object.
    fn get(
        &self,
        resource: &ResourceName,
        key: &ObjectKey,
    ) -> BoxFuture<Result<Option<Value>, StoreError>>;

    /// One page of the objects of a resource, as they were at one revision.
    fn range(&self, range: Range) -> BoxFuture<Result<RangePage, StoreError>>;

    /// Carries out writes in their order; one result for each.
    ///
    /// Each has its own condition, which sees the earlier writes of the call, and its own revision; one
    /// that fails does not hold up the next. The answer comes when the writes are durable and watches
    /// can see them. Dropping the future does not take the writes back.
    fn commit(&self, writes: Vec<Write>) -> BoxFuture<Vec<Result<Committed, CommitError>>>;

    /// Everything after a revision, without a gap, for as long as it is polled. From a revision in the
    /// future it waits for that one to pass.
    ///
    /// A watch is a position, not a buffer: a slow one costs nothing. When what it has not read yet is
    /// compacted away, it ends with [`StoreError::Expired`].
    fn watch(&self, from: Revision) -> Result<Events, StoreError>;

    /// Drops the history up to a revision; the state at it stays readable. Answers the oldest revision
    /// from then on, which is later than asked if more was gone already and the newest one if the
    /// revision is in the future.
    fn compact(&self, before: Revision) -> BoxFuture<Result<Revision, StoreError>>;

    /// How often it was found to have gone back to an earlier state. What was read before it changed
    /// does not hold any more; a watch from before it ends with [`StoreError::Rewound`].
    fn epoch(&self) -> u64 {
        0
    }

    /// Whether it removes objects itself when their time to live ([`Write::ttl`]) is over.
    fn removes_expired(&self) -> bool {
        false
    }

    /// Whether it can be written to.
    fn health(&self) -> Health;
}

/// Which page of a range.
#[derive(Clone, Debug)]
pub struct Range {
    /// Of which resource.
    pub resource: ResourceName,
    /// Objects whose key is after this one; none: from the first.
    pub after: Option<ObjectKey>,
    /// So many values at most. Pages of large objects may end earlier.
    pub limit: usize,
    /// As they were at this revision.
    pub at: Revision,
}

/// One page of a range.
#[derive(Clone, Debug)]
pub struct RangePage {
    /// The objects, in the order of their keys.
    pub values: Vec<Value>,
    /// If there are more objects: what to put into [`Range::after`] for the next page.
    pub next: Option<ObjectKey>,
}

impl RangePage {
    /// Returns `true` if there are more objects behind this page.
    pub fn more(&self) -> bool {
        self.next.is_some()
    }
}

/// Whether a store can be written to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Health {
    /// It can.
    Writable,
    /// It cannot: its disk failed, and only a restart can tell what is there, or it has no room, and takes writes
    /// again when there is some. Reads and watches go on.
    ReadOnly {
        /// What happened, where, and what to do about it.
        why: Arc<str>,
    },
}
