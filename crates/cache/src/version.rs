//! The states of one key over time.

use std::sync::Arc;

use masthead_core::{Cause, Object, ObjectKey, Revision};

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

/// One state of one key. The same node is the slot's newest version, the history's entry at its
/// sequence number, and what the next change's entry says was before.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) seq: Seq,
    pub(crate) slot: SlotId,
    /// The object was deleted here.
    pub(crate) gone: bool,
    pub(crate) cause: Cause,
    /// The state; the last one if `gone`.
    pub(crate) object: Object,
    pub(crate) revision: Revision,
    /// The number of the history's segment with this change. What was visible right before stands
    /// there and not here: it goes when the segment goes, and no version need be touched for it.
    pub(crate) segment: u64,
    /// The object's sizes, here because reading them there would fetch another line of memory.
    body_bytes: u32,
    head_bytes: u32,
    pub(crate) terms: Terms,
}

/// Bytes of a version on the heap, with its count.
pub(crate) const VERSION_BYTES: usize = size_of::<Version>() + size_of::<usize>();

/// Where a change stands: in the order of all, in the history, and among the keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) seq: Seq,
    pub(crate) segment: u64,
    pub(crate) slot: SlotId,
}

/// What a change is, besides the object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) revision: Revision,
    pub(crate) gone: bool,
    pub(crate) cause: Cause,
}

impl Version {
    pub(crate) fn new(place: Place, object: Object, terms: Terms, step: Step) -> Self {
        let Place { seq, segment, slot } = place;
        let Step { revision, gone, cause } = step;
        let size = |bytes: usize| u32::try_from(bytes).expect("objects are limited to 64 MiB");
        let (body_bytes, head_bytes) = (size(object.body_bytes()), size(object.head_bytes()));
        Self { seq, slot, gone, cause, object, revision, segment, body_bytes, head_bytes, terms }
    }

    /// The same version with other index values.
    pub(crate) fn with_terms(&self, terms: Terms) -> Self {
        let Self { seq, segment, slot, revision, gone, cause, .. } = *self;
        let step = Step { revision, gone, cause };
        Self::new(Place { seq, segment, slot }, self.object.clone(), terms, step)
    }

    pub(crate) fn key(&self) -> &ObjectKey {
        self.object.key()
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
