//! What is known of a reader from outside.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use masthead_cache::Lag;
use masthead_core::{Object, Revision};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::filter::FilterPanics;
use crate::place::Place;

/// The outside of a [`Subscription`](crate::Subscription): how far it is, and its places.
pub(crate) struct Subscriber {
    name: String,
    readers: Mutex<Vec<Held>>,
    synced: watch::Sender<bool>,
    /// Handed out.
    events: AtomicU64,
    panics: AtomicU64,
    filter_panics: Arc<FilterPanics>,
    /// Why its task ended unexpectedly.
    ended: OnceLock<Arc<str>>,
    /// Read and not yet handed out.
    queued: AtomicUsize,
    /// The last time at which there was nothing left.
    caught_up: Mutex<Instant>,
    /// Its place could not be kept.
    stalled: AtomicBool,
    stalls: AtomicU64,
}

/// One cache that it reads.
struct Held {
    lag: Lag,
    place: Arc<Mutex<Place>>,
    saw: Box<dyn Fn(&Object) -> bool + Send + Sync>,
}

/// How a handler or stream gets on.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HandlerReport {
    /// As it was named.
    pub name: String,
    /// Whether the handler has returned from all initial events (R24).
    pub synced: bool,
    /// Events that it was given.
    pub events: u64,
    /// Changes that it has not been given yet.
    pub lag_events: u64,
    /// Since when it has had something left to do.
    pub lag: Duration,
    /// It was so slow that its place could not be kept: what it gets next comes without `old` (R20).
    pub stalled: bool,
    /// How often that happened.
    pub stalls: u64,
    /// Calls that ended in a panic (R21).
    pub panics: u64,
    /// Calls of its filter that ended in a panic. The object was delivered.
    pub filter_panics: u64,
    /// Why it is called no more, although nothing removed it.
    pub ended: Option<Arc<str>>,
}

impl Subscriber {
    pub(crate) fn new(name: &str) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            readers: Mutex::default(),
            synced: watch::Sender::new(false),
            events: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            filter_panics: Arc::new(FilterPanics::new(name)),
            ended: OnceLock::new(),
            queued: AtomicUsize::new(0),
            caught_up: Mutex::new(Instant::now()),
            stalled: AtomicBool::new(false),
            stalls: AtomicU64::new(0),
        })
    }

    pub(crate) fn add_place(
        &self,
        lag: Lag,
        place: Arc<Mutex<Place>>,
        saw: Box<dyn Fn(&Object) -> bool + Send + Sync>,
    ) {
        self.readers.lock().push(Held { lag, place, saw });
    }

    pub(crate) fn set_synced(&self) {
        self.synced.send_if_modified(|synced| !std::mem::replace(synced, true));
    }

    pub(crate) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    pub(crate) fn hand_out(&self, left: usize) {
        self.events.fetch_add(1, Ordering::Relaxed);
        self.queued.store(left + 1, Ordering::Relaxed);
    }

    pub(crate) fn caught_up(&self) {
        self.queued.store(0, Ordering::Relaxed);
        self.stalled.store(false, Ordering::Relaxed);
        *self.caught_up.lock() = Instant::now();
    }

    pub(crate) fn panicked(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn filter_panics(&self) -> &Arc<FilterPanics> {
        &self.filter_panics
    }

    /// Its task ended although nothing removed it.
    pub(crate) fn set_ended(&self, reason: Arc<str>) {
        // A task ends once.
        let _ = self.ended.set(reason);
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The oldest state that is kept for it.
    pub(crate) fn keeps(&self) -> Option<Revision> {
        self.readers.lock().iter().filter_map(|held| held.place.lock().keeps()).min()
    }

    /// Gives up what is kept for it.
    pub(crate) fn lose_place(&self) {
        for held in &*self.readers.lock() {
            held.place.lock().lose(&held.saw);
        }
        self.stalled.store(true, Ordering::Relaxed);
        self.stalls.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn report(&self) -> HandlerReport {
        // Of what lies between two states it is only known that there is something.
        let behind = |held: &Held| held.lag.changes() + u64::from(held.place.lock().is_between());
        let unread: u64 = self.readers.lock().iter().map(behind).sum();
        let lag_events = unread + self.queued.load(Ordering::Relaxed) as u64;
        HandlerReport {
            name: self.name.clone(),
            synced: *self.synced.borrow(),
            events: self.events.load(Ordering::Relaxed),
            lag_events,
            lag: if lag_events == 0 { Duration::ZERO } else { self.caught_up.lock().elapsed() },
            stalled: self.stalled.load(Ordering::Relaxed),
            stalls: self.stalls.load(Ordering::Relaxed),
            panics: self.panics.load(Ordering::Relaxed),
            filter_panics: self.filter_panics.count(),
            ended: self.ended.get().cloned(),
        }
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Subscriber").field(&self.name).finish()
    }
}
