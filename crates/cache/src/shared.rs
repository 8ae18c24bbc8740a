//! What the writer and all readers share.

use std::sync::Arc;

use masthead_core::Revision;

use crate::interest::InterestIndex;
use crate::memory::Gauges;
use crate::progress::{Lane, Progress, promise};
use crate::sync::{self, ArcCell, AtomicU64, Mutex, Ordering, fence};
use crate::view::{Snapshot, View};
use crate::window::State;

/// Lock order: `state` before `interests` before the waiters of `progress`. Readers take none of them,
/// but for a subscription's beginning and end, which takes `interests` for a moment.
#[derive(Debug)]
pub(crate) struct Shared {
    view: ArcCell<View>,
    /// Every reader that a change up to here concerns has been marked.
    settled: AtomicU64,
    pub(crate) interests: Mutex<InterestIndex>,
    pub(crate) state: Mutex<State>,
    pub(crate) gauges: Gauges,
    pub(crate) progress: Arc<Progress>,
    pub(crate) lane: Option<Arc<Lane>>,
}

impl Shared {
    pub(crate) fn new(state: State, view: View, lane: Option<Arc<Lane>>, seed: u64) -> Self {
        Self {
            settled: AtomicU64::new(0),
            view: ArcCell::new(Some(sync::Arc::new(view))),
            interests: Mutex::new(InterestIndex::new(seed)),
            state: Mutex::new(state),
            gauges: Gauges::default(),
            progress: lane.as_ref().map_or_else(Progress::new, |lane| lane.progress().clone()),
            lane,
        }
    }

    pub(crate) fn view(&self) -> sync::Arc<View> {
        self.view.get().expect("a view is always published")
    }

    /// The same for a look: without a count that all readers on all cores take turns at.
    pub(crate) fn look(&self) -> sync::Loaded<sync::Arc<View>> {
        self.view.load()
    }

    /// Publishes a view and gives back the one before.
    pub(crate) fn publish(&self, view: View) -> sync::Arc<View> {
        let before =
            self.view.swap(Some(sync::Arc::new(view))).expect("a view is always published");
        // Against readers that claim or pin and then look: one of the two sees the other.
        fence(Ordering::SeqCst);
        before
    }

    pub(crate) fn settle(&self, revision: Revision) {
        self.settled.store(revision.0, Ordering::SeqCst);
    }

    /// Up to where every concerned reader has been marked, or nothing can concern it.
    pub(crate) fn settled(&self) -> Revision {
        self.promise(|| Revision(self.settled.load(Ordering::SeqCst)))
    }

    /// Up to where the cache has everything.
    pub(crate) fn revision(&self) -> Revision {
        self.promise(|| {
            let view = self.view.load();
            view.as_ref().map_or(Revision::ZERO, |view| view.revision)
        })
    }

    fn promise(&self, own: impl FnOnce() -> Revision) -> Revision {
        let Some(lane) = &self.lane else { return own() };
        let ahead = lane.ahead();
        let own = own();
        // Before the first list nothing is promised.
        if own.is_zero() { own } else { promise(ahead, own) }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let ahead = self.lane.as_ref().map(|lane| lane.ahead());
        let view = self.view();
        let revision = match ahead {
            Some(ahead) if view.epoch > 0 => promise(ahead, view.revision),
            _ => view.revision,
        };
        Snapshot { seq: view.seq, revision, view }
    }
}
