//! What handlers hear.

use masthead_core::ObjectKey;

use crate::Entry;

/// One step in the life of one object, as one handler sees it.
///
/// For each key a handler hears `(Added Updated* Deleted)*`, in order, whatever happened to the
/// connection, the server or the handler's own pace in between.
#[derive(Debug)]
pub enum Event<K> {
    /// The object came into view.
    Added {
        /// What it is.
        object: Entry<K>,
        /// It was there when the handler began (R19).
        initial: bool,
    },
    /// The object changed in view.
    Updated {
        /// What this handler was told before. None only after it was so slow that its place could not be
        /// kept any more (R20).
        old: Option<Entry<K>>,
        /// What it is now.
        new: Entry<K>,
        /// Nothing changed: the cache is gone through once more (R22).
        resync: bool,
    },
    /// The object left the view.
    Deleted {
        /// Which one.
        key: ObjectKey,
        /// What is known of it.
        last: LastState<K>,
        /// Why it left.
        cause: DeleteCause,
    },
}

/// What is known of an object that is gone.
#[derive(Debug)]
pub enum LastState<K> {
    /// The state in which it was deleted, as the server told it.
    Final(Entry<K>),
    /// The state last seen. It may have changed after that.
    LastSeen(Entry<K>),
    /// Nothing but its name: the handler was so slow that its place could not be kept.
    Unknown,
}

impl<K> LastState<K> {
    /// The object, as far as it is known.
    pub fn entry(&self) -> Option<&Entry<K>> {
        match self {
            Self::Final(entry) | Self::LastSeen(entry) => Some(entry),
            Self::Unknown => None,
        }
    }
}

/// Why an object left the view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeleteCause {
    /// It was deleted.
    Deleted,
    /// It is still there, and this handler's selectors no longer match it.
    LeftView,
    /// It was in one list and not in the next: it was deleted somewhere between.
    Relist,
    /// It was deleted, or left the view, while the handler was busy with something else (R20).
    Missed,
}

impl<K> Event<K> {
    /// Which object.
    pub fn key(&self) -> &ObjectKey {
        match self {
            Self::Added { object, .. } => object.key(),
            Self::Updated { new, .. } => new.key(),
            Self::Deleted { key, .. } => key,
        }
    }

    /// The object as it is now, or as it was last known.
    pub fn entry(&self) -> Option<&Entry<K>> {
        match self {
            Self::Added { object, .. } => Some(object),
            Self::Updated { new, .. } => Some(new),
            Self::Deleted { last, .. } => last.entry(),
        }
    }
}

impl<K> Clone for Event<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added { object, initial } => {
                Self::Added { object: object.clone(), initial: *initial }
            }
            Self::Updated { old, new, resync } => {
                Self::Updated { old: old.clone(), new: new.clone(), resync: *resync }
            }
            Self::Deleted { key, last, cause } => {
                Self::Deleted { key: key.clone(), last: last.clone(), cause: *cause }
            }
        }
    }
}

impl<K> Clone for LastState<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Final(entry) => Self::Final(entry.clone()),
            Self::LastSeen(entry) => Self::LastSeen(entry.clone()),
            Self::Unknown => Self::Unknown,
        }
    }
}
