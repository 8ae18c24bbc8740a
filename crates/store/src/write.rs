//! What is asked of a store, and what it says has happened.

use std::time::Duration;

use masthead_core::{EventType, Object, ObjectKey, Revision};

use crate::{ResourceName, Value};

/// One conditional write.
#[derive(Clone, Debug)]
pub struct Write {
    /// What it is stored under.
    pub resource: ResourceName,
    /// Which object; that of the object in a [`Op::Put`].
    pub key: ObjectKey,
    /// What has to hold for it to happen.
    pub condition: Condition,
    /// Other objects that have to be at these revisions, whatever the condition says of this one: what
    /// was decided about this write was decided by them.
    pub requires: Vec<Requirement>,
    /// What is to happen.
    pub op: Op,
    /// How long the object is to be there after this write; for ever if none. The next write of the object replaces
    /// it. A store for which [`Store::removes_expired`](crate::Store::removes_expired) is `true` deletes the object
    /// when the time is over, or a little later. Other stores take no notice of it: whoever writes has to delete the
    /// object, as `masthead-server` does with events.
    pub ttl: Option<Duration>,
}

impl Write {
    /// Stores an object under its own key.
    pub fn put(resource: ResourceName, object: Object, condition: Condition) -> Self {
        let key = object.key().clone();
        Self { resource, key, condition, requires: Vec::new(), op: Op::Put(object), ttl: None }
    }

    /// Removes an object.
    pub fn delete(resource: ResourceName, key: ObjectKey, condition: Condition) -> Self {
        Self { resource, key, condition, requires: Vec::new(), op: Op::Delete, ttl: None }
    }

    /// Sets how long the object is to be there. See [`Write::ttl`].
    pub fn with_ttl(mut self, ttl: Option<Duration>) -> Self {
        self.ttl = ttl;
        self
    }

    /// The write happens only if these objects are at these revisions.
    pub fn with_requirements(mut self, requires: Vec<Requirement>) -> Self {
        self.requires = requires;
        self
    }

    /// Bytes that it brings along.
    pub(crate) fn bytes(&self) -> usize {
        match &self.op {
            Op::Put(object) => object.body_bytes(),
            Op::Delete => 0,
        }
    }
}

/// An object that must not have changed for a write to happen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Requirement {
    /// What it is stored under.
    pub resource: ResourceName,
    /// Which object.
    pub key: ObjectKey,
    /// The revision that it has to be at.
    pub revision: Revision,
}

/// What a write does.
#[derive(Clone, Debug)]
pub enum Op {
    /// The object is this from now on. The store gives it its revision.
    Put(Object),
    /// The object is gone. Of something that is not there it is a conflict, whatever the condition.
    Delete,
}

/// What has to hold of the stored object for a write to happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// Nothing.
    Any,
    /// There is none.
    Absent,
    /// There is one.
    Present,
    /// There is one, and this is its revision.
    At(Revision),
}

impl Condition {
    /// Returns `true` if the condition holds for an object at this revision, or for a missing one.
    pub fn holds(self, current: Option<Revision>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => current.is_none(),
            Self::Present => current.is_some(),
            Self::At(revision) => current == Some(revision),
        }
    }
}

/// A write that is durable and that watches can see.
#[derive(Clone, Debug)]
pub struct Committed {
    /// When it happened.
    pub revision: Revision,
    /// The object at that revision; of a delete, its last state.
    pub value: Value,
}

/// What a change did to its object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EventKind {
    /// It was not there before.
    Added,
    /// It was there before.
    Modified,
    /// It is gone.
    Deleted,
}

impl From<EventKind> for EventType {
    fn from(kind: EventKind) -> Self {
        match kind {
            EventKind::Added => Self::Added,
            EventKind::Modified => Self::Modified,
            EventKind::Deleted => Self::Deleted,
        }
    }
}

/// One change, as watches tell it.
#[derive(Clone, Debug)]
pub struct Event {
    /// What the object is stored under.
    pub resource: ResourceName,
    /// Which object.
    pub key: ObjectKey,
    /// When.
    pub revision: Revision,
    /// What happened to it.
    pub kind: EventKind,
    /// The object at that revision; of a deleted one, its last state.
    pub value: Value,
}
