//! The states of one key over time, and the places where the newest of them stand.

use std::sync::Arc;

use masthead_core::{Cause, Object, ObjectKey, Revision};

use crate::limits::SLOTS_PER_CHUNK;
use crate::sync::ArcCell;

/// Position of a change in the order in which this cache took them in, from 1.
///
/// Revisions are the source's and may jump back when a source is restored from a backup; sequence
/// numbers never do, so all visibility is decided by them.
pub(crate) type Seq = u64;

pub(crate) type SlotId = u32;

/// A value that an object has in an index: the numbers of both.
pub(crate) type Term = (u32, u32);

/// The index values of a version, sorted. Two fit without an allocation.
#[derive(Clone, Debug)]
pub(crate) enum Terms {
    Few { count: u8, terms: [Term; 2] },
    Many(Arc<[Term]>),
}

impl Terms {
    pub(crate) const NONE: Self = Self::Few { count: 0, terms: [(0, 0); 2] };

    pub(crate) fn new(terms: &[Term]) -> Self {
        match *terms {
            [] => Self::NONE,
            [one] => Self::Few { count: 1, terms: [one, (0, 0)] },
            [one, two] => Self::Few { count: 2, terms: [one, two] },
            _ => Self::Many(terms.into()),
        }
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Few { .. } => 0,
            Self::Many(terms) => 2 * size_of::<usize>() + size_of_val(&**terms),
        }
    }
}

impl std::ops::Deref for Terms {
    type Target = [Term];

    fn deref(&self) -> &[Term] {
        match self {
            Self::Few { count, terms } => &terms[..usize::from(*count)],
            Self::Many(terms) => terms,
        }
    }
}

/// One state of one key. The same node is the slot's newest version, the next one's `older`, and the
/// history's entry at its sequence number.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) seq: Seq,
    pub(crate) revision: Revision,
    /// The state; the last one if `gone`.
    pub(crate) object: Object,
    /// The object's key and sizes, here because reading them there would fetch another line of memory.
    key_head: [u8; KEY_HEAD],
    key_len: u8,
    body_bytes: u32,
    head_bytes: u32,
    /// What was visible right before. Cut when this change leaves the history window and no snapshot
    /// needs it.
    pub(crate) older: ArcCell<Version>,
    pub(crate) terms: Terms,
    pub(crate) slot: SlotId,
    /// The object was deleted here.
    pub(crate) gone: bool,
    pub(crate) cause: Cause,
}

/// Bytes of the key that a version holds itself: most keys are not longer, and with these a version
/// fills two lines of memory.
const KEY_HEAD: usize = 41;

/// Bytes of a version on the heap, with its counts.
pub(crate) const VERSION_BYTES: usize = size_of::<Version>() + 2 * size_of::<usize>();

/// What a change is, besides the object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) revision: Revision,
    pub(crate) gone: bool,
    pub(crate) cause: Cause,
}

impl Version {
    pub(crate) fn new(
        seq: Seq,
        slot: SlotId,
        object: Object,
        older: Option<Arc<Version>>,
        terms: Terms,
        step: Step,
    ) -> Self {
        let Step { revision, gone, cause } = step;
        let size = |bytes: usize| u32::try_from(bytes).expect("objects are limited to 64 MiB");
        let key = object.key().as_str().as_bytes();
        let mut key_head = [0; KEY_HEAD];
        let held = key.len().min(KEY_HEAD);
        key_head[..held].copy_from_slice(&key[..held]);
        // Longer keys than a byte can count are compared in the object.
        let key_len = u8::try_from(key.len()).unwrap_or(u8::MAX);
        let (body_bytes, head_bytes) = (size(object.body_bytes()), size(object.head_bytes()));
        let older = ArcCell::new(older);
        Self {
            seq,
            revision,
            object,
            key_head,
            key_len,
            body_bytes,
            head_bytes,
            older,
            terms,
            slot,
            gone,
            cause,
        }
    }

    /// The same version with other index values and another past.
    pub(crate) fn with_terms(&self, terms: Terms, older: Option<Arc<Version>>) -> Self {
        let Self { seq, revision, gone, cause, .. } = *self;
        let step = Step { revision, gone, cause };
        Self::new(seq, self.slot, self.object.clone(), older, terms, step)
    }

    pub(crate) fn key(&self) -> &ObjectKey {
        self.object.key()
    }

    /// Is this its key?
    pub(crate) fn has_key(&self, key: &str) -> bool {
        let held = key.len().min(KEY_HEAD);
        usize::from(self.key_len) == key.len().min(usize::from(u8::MAX))
            && self.key_head[..held] == key.as_bytes()[..held]
            && (key.len() <= KEY_HEAD || self.key().as_str() == key)
    }

    /// The state as readers see it: none if the object is gone.
    pub(crate) fn live(&self) -> Option<&Object> {
        (!self.gone).then_some(&self.object)
    }

    /// Bytes of the body.
    pub(crate) fn body_bytes(&self) -> usize {
        self.body_bytes as usize
    }

    /// Bytes besides the body.
    pub(crate) fn head_bytes(&self) -> usize {
        VERSION_BYTES + self.head_bytes as usize + self.terms.heap_bytes()
    }
}

/// Where the newest version of each key stands, by [`SlotId`]. Chunks are shared by all views; only
/// the list of chunks is copied when it grows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots(Arc<Vec<Arc<[ArcCell<Version>]>>>);

impl Slots {
    pub(crate) fn cell(&self, id: SlotId) -> &ArcCell<Version> {
        let id = id as usize;
        &self.0[id / SLOTS_PER_CHUNK][id % SLOTS_PER_CHUNK]
    }

    pub(crate) fn capacity(&self) -> usize {
        self.0.len() * SLOTS_PER_CHUNK
    }

    pub(crate) fn grow(&mut self) {
        let chunk = (0..SLOTS_PER_CHUNK).map(|_| ArcCell::new(None)).collect();
        Arc::make_mut(&mut self.0).push(chunk);
    }

    /// Shows the version of a slot that is visible at `seq`, if any.
    pub(crate) fn with_version_at<T>(
        &self,
        id: SlotId,
        seq: Seq,
        look: impl FnOnce(&Version) -> T,
    ) -> Option<T> {
        // The table is shared with later views: it may name slots that this one does not have.
        let chunk = self.0.get(id as usize / SLOTS_PER_CHUNK)?;
        let head = chunk[id as usize % SLOTS_PER_CHUNK].load();
        let head = head.as_ref()?;
        if head.seq <= seq {
            return Some(look(head));
        }
        let mut version = head.older.get()?;
        while version.seq > seq {
            let older = version.older.get()?;
            version = older;
        }
        Some(look(&version))
    }
}
