//! What can happen to an object.

use serde::{Deserialize, Serialize};

use crate::{Object, ObjectKey, Revision};

/// A step that a source reports, to be applied to a cache.
#[derive(Clone, Debug)]
pub enum Mutation {
    /// The object is now this.
    Put {
        /// When it became so.
        revision: Revision,
        /// What it is now.
        object: Object,
    },
    /// The object is gone.
    Delete {
        /// When it went.
        revision: Revision,
        /// Which one.
        key: ObjectKey,
        /// Its last state if the source knows it; otherwise the state last seen counts.
        last: Option<Object>,
    },
}

impl Mutation {
    /// When it happened.
    pub fn revision(&self) -> Revision {
        match self {
            Self::Put { revision, .. } | Self::Delete { revision, .. } => *revision,
        }
    }

    /// Which object it happened to.
    pub fn key(&self) -> &ObjectKey {
        match self {
            Self::Put { object, .. } => object.key(),
            Self::Delete { key, .. } => key,
        }
    }
}

/// How a change became known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The source reported it as it happened.
    Watch,
    /// Two lists differ: it happened somewhere between them, and there may have been more in between.
    Relist,
}

/// One step in the life of one object: what it was, what it is.
///
/// At least one of `before` and `after` is there. If both are and their uids differ, the name was
/// reused: a delete and an add (R15).
#[derive(Clone, Debug)]
pub struct Change {
    /// When.
    pub revision: Revision,
    /// The state that was cached before; none if the key was new.
    pub before: Option<Object>,
    /// The state now; none if the object is gone.
    pub after: Option<Object>,
    /// How it became known.
    pub cause: Cause,
}

impl Change {
    /// Which object.
    pub fn key(&self) -> &ObjectKey {
        let either = self.after.as_ref().or(self.before.as_ref());
        either.expect("a change has a before or an after").key()
    }

    /// Returns `true` if the name passed from one object to another: the uid changed.
    pub fn replaced(&self) -> bool {
        matches!((&self.before, &self.after), (Some(old), Some(new)) if old.uid() != new.uid())
    }
}

/// The type of a watch event, as it stands on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum EventType {
    /// The object came into view.
    Added,
    /// The object changed in view.
    Modified,
    /// The object left the view.
    Deleted,
    /// Nothing happened up to this revision that has not been sent.
    Bookmark,
    /// The stream cannot go on.
    Error,
}

impl EventType {
    /// The event that a reader sees, from whether its selectors matched before and match now (W18).
    pub const fn of_transition(before: bool, now: bool) -> Option<Self> {
        match (before, now) {
            (false, true) => Some(Self::Added),
            (true, true) => Some(Self::Modified),
            (true, false) => Some(Self::Deleted),
            (false, false) => None,
        }
    }

    /// As on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }
}
