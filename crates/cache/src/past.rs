//! What all views share, and how a version of the past is found.

use imbl::OrdMap;

use crate::history::{Entry, Ring};
use crate::sync::{Arc, ArcCell};
use crate::version::{Seq, SlotId, Version};

/// Superseded versions that have left the window and that a snapshot sees, by slot and the sequence
/// number at which they were superseded.
pub(crate) type Kept = OrdMap<(SlotId, Seq), Arc<Version>>;

/// The newest ring and kept versions. A view of any age goes through them, so that an old one keeps
/// nothing in memory but what it sees.
///
/// What readers rely on: a version stands in its slot only after its change stands in the ring, unless
/// there was nothing before it; a change leaves the ring only after what a snapshot sees of it is among
/// the kept.
#[derive(Debug)]
pub(crate) struct Commons {
    pub(crate) ring: ArcCell<Ring>,
    pub(crate) kept: ArcCell<Kept>,
}

impl Commons {
    pub(crate) fn new(ring: Arc<Ring>) -> Self {
        Self { ring: ArcCell::new(Some(ring)), kept: ArcCell::new(None) }
    }

    /// Shows what is visible at `seq` of the slot whose newest version is given.
    pub(crate) fn look_at<T>(
        &self,
        newest: &Version,
        seq: Seq,
        look: impl FnOnce(&Version) -> T,
    ) -> Option<T> {
        if newest.seq <= seq {
            return Some(look(newest));
        }
        let mut version = self.before(newest, seq)?;
        while version.seq > seq {
            version = self.before(&version, seq)?;
        }
        Some(look(&version))
    }

    /// What stood before a version; once its change has left the window, what is kept for `seq`.
    fn before(&self, version: &Version, seq: Seq) -> Option<Arc<Version>> {
        // Not before the version was found: the ring has its change only since then.
        let ring = self.ring.load();
        let segment = ring.as_ref()?.get(version.segment);
        match segment.as_ref().and_then(|segment| segment.get(version.seq)) {
            Some(Entry { older, .. }) => older.clone(),
            None => self.kept_for(version.slot, seq),
        }
    }

    fn kept_for(&self, slot: SlotId, seq: Seq) -> Option<Arc<Version>> {
        let kept = self.kept.load();
        let (_, version) = kept.as_ref()?.range((slot, seq + 1)..=(slot, Seq::MAX)).next()?;
        (version.seq <= seq).then(|| version.clone())
    }
}
