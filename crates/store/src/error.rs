//! What can go wrong.

use std::error::Error;
use std::sync::Arc;

use masthead_core::Revision;

/// Why a write did not happen, or may not have.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The condition does not hold. Nothing was written.
    #[error("the object is {}", current.map_or("not there".to_owned(), |at| format!("at revision {at}")))]
    Conflict {
        /// The revision of what is stored; none if there is nothing.
        current: Option<Revision>,
    },
    /// An object that the write requires ([`crate::Write::requires`]) has changed or is gone. Nothing was
    /// written.
    #[error("an object that the write depends on has changed")]
    Superseded,
    /// The disk failed, or its state is not known after a failure. Of the group in which it failed the result is unknown: no watch and no read
    /// will show it before a restart, but after one it may be there. Later writes did not happen.
    #[error("the store is read-only until a restart: {why}")]
    ReadOnly {
        /// What the disk said.
        why: Arc<str>,
    },
    /// The store is out of space. Nothing was written. When there is space again, the store takes writes by itself.
    #[error("the store is out of space: {why}")]
    Full {
        /// What to do about it.
        why: Arc<str>,
    },
    /// The store cannot be reached. Nothing was written; a later try may succeed.
    #[error("the store cannot be reached: {why}")]
    Unavailable {
        /// What went wrong.
        why: Arc<str>,
    },
    /// The answer was lost, and it could not be found out whether the write happened.
    #[error("whether it was written is not known: {why}")]
    Unknown {
        /// What went wrong.
        why: Arc<str>,
    },
    /// Too much waits to be written. Nothing was written; a later try may succeed.
    #[error("too many writes are waiting")]
    Busy,
    /// More than one call may bring. Nothing was written.
    #[error("a commit may have at most {limit} {what}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// The limit that was passed.
        limit: usize,
    },
    /// The store was closed before the write's turn came. Nothing was written.
    #[error("the store is closed")]
    Closed,
    /// The object's present state could not be read. Nothing was written.
    #[error("the stored object cannot be read")]
    Unreadable(#[source] StoreError),
}

/// Why a store cannot say what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The history from there on is no longer kept. Only a new list helps.
    #[error("history before revision {oldest} was compacted, {asked} was asked for")]
    Expired {
        /// The revision that was asked for.
        asked: Revision,
        /// The oldest that can be.
        oldest: Revision,
    },
    /// There is no such revision yet.
    #[error("revision {asked} is in the future, the newest is {current}")]
    Future {
        /// The revision that was asked for.
        asked: Revision,
        /// The newest that there is.
        current: Revision,
    },
    /// Too many reads are waiting. A later try may succeed.
    #[error("too many reads are waiting")]
    Busy,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The disk failed, or has no room. A compaction that failed in the midst of its work leaves the store
    /// read-only.
    #[error("the disk failed")]
    Disk(#[source] Arc<dyn Error + Send + Sync>),
    /// The store cannot be reached, or does not answer as it should. A later try may succeed.
    #[error("the store cannot be reached: {0}")]
    Unavailable(Arc<dyn Error + Send + Sync>),
    /// The store went back to an earlier state, or is another one than before: what was read from it
    /// does not hold any more. It goes on with the state that it has now.
    #[error("the store went back to an earlier state")]
    Rewound,
    /// What is on disk is not what this program wrote.
    #[error("the stored data is damaged: {what}")]
    Damaged {
        /// What was found.
        what: String,
    },
}

impl StoreError {
    pub(crate) fn unavailable(why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unavailable(Arc::from(why.into()))
    }
}
