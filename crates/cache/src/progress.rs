//! How far a source has told everything, and those who wait for it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use masthead_core::Revision;

use crate::Cache;
use crate::sync::{AtomicU64, Mutex, Ordering, fence};

/// One number for many caches that are fed from one watch: up to where it has been handed out.
///
/// A write to one resource so moves what the caches of all others may promise, at the price of one
/// atomic store. Whoever hands out changes calls [`Lane::route`] for the change's cache first and
/// [`Progress::advance`] after.
#[derive(Debug, Default)]
pub struct Progress {
    revision: AtomicU64,
    waiters: Waiters,
}

impl Progress {
    /// No progress yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Everything up to here has been handed to its lane.
    pub fn advance(&self, revision: Revision) {
        self.revision.fetch_max(revision.0, Ordering::AcqRel);
        self.wake(revision);
    }

    /// Up to where everything has been handed out.
    pub fn revision(&self) -> Revision {
        Revision(self.revision.load(Ordering::Acquire))
    }

    pub(crate) fn wake(&self, revision: Revision) {
        self.waiters.wake(revision);
    }
}

/// One cache's part of a [`Progress`].
#[derive(Debug)]
pub struct Lane {
    progress: Arc<Progress>,
    routed: AtomicU64,
}

/// A lane that promises nothing beyond what its cache has applied.
const SUSPENDED: u64 = u64::MAX;

impl Lane {
    /// A lane that starts suspended: until [`Lane::route`] its cache promises only what it has.
    pub fn new(progress: &Arc<Progress>) -> Arc<Self> {
        Arc::new(Self { progress: progress.clone(), routed: AtomicU64::new(SUSPENDED) })
    }

    /// A change at this revision, or none before it, is on its way to the cache.
    pub fn route(&self, revision: Revision) {
        self.routed.store(revision.0, Ordering::Release);
    }

    /// The stream to this lane broke: promise nothing until it flows again.
    pub fn suspend(&self) {
        self.routed.store(SUSPENDED, Ordering::Release);
    }

    /// The shared number.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// What to read before the cache's own revision, to be passed to [`promise`] after it.
    pub(crate) fn ahead(&self) -> (u64, u64) {
        // The shared number first: whatever it covers had been routed before it moved.
        let shared = self.progress.revision.load(Ordering::Acquire);
        (shared, self.routed.load(Ordering::Acquire))
    }
}

/// What a cache that has applied everything up to `own` may promise, given [`Lane::ahead`] from before.
pub(crate) fn promise((shared, routed): (u64, u64), own: Revision) -> Revision {
    if own.0 >= routed { Revision(own.0.max(shared)) } else { own }
}

/// Those who wait for a revision, by revision.
#[derive(Debug)]
struct Waiters {
    waiting: Mutex<Waiting>,
    /// The lowest revision waited for, so that progress nobody waits for takes no lock.
    lowest: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    by_revision: BTreeMap<(Revision, u64), Waker>,
    next: u64,
}

impl Default for Waiters {
    fn default() -> Self {
        Self { waiting: Mutex::default(), lowest: AtomicU64::new(u64::MAX) }
    }
}

impl Waiters {
    fn add(&self, revision: Revision, ticket: Option<u64>, waker: &Waker) -> u64 {
        let mut waiting = self.waiting.lock();
        let ticket = ticket.unwrap_or(waiting.next);
        waiting.next = waiting.next.max(ticket + 1);
        waiting.by_revision.insert((revision, ticket), waker.clone());
        self.lowest.fetch_min(revision.0, Ordering::AcqRel);
        // Against the writer, which publishes and then looks at `lowest`: one of the two sees the other.
        fence(Ordering::SeqCst);
        ticket
    }

    fn remove(&self, revision: Revision, ticket: u64) {
        let mut waiting = self.waiting.lock();
        waiting.by_revision.remove(&(revision, ticket));
        self.note_lowest(&waiting);
    }

    fn wake(&self, revision: Revision) {
        fence(Ordering::SeqCst);
        if self.lowest.load(Ordering::Acquire) > revision.0 {
            return;
        }
        let woken = {
            let mut waiting = self.waiting.lock();
            let later = waiting.by_revision.split_off(&(revision.next(), 0));
            let woken = std::mem::replace(&mut waiting.by_revision, later);
            self.note_lowest(&waiting);
            woken
        };
        woken.into_values().for_each(Waker::wake);
    }

    fn note_lowest(&self, waiting: &Waiting) {
        let lowest = waiting.by_revision.first_key_value();
        self.lowest
            .store(lowest.map_or(u64::MAX, |((revision, _), _)| revision.0), Ordering::Release);
    }
}

/// Resolves when the cache has everything up to a revision: see [`Cache::wait_for`].
///
/// Give it a deadline: a revision that never comes is waited for without end.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct WaitFor {
    pub(crate) cache: Cache,
    pub(crate) revision: Revision,
    pub(crate) ticket: Option<u64>,
}

impl Future for WaitFor {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.cache.revision() >= self.revision {
            return Poll::Ready(());
        }
        let waiters = &self.cache.progress().waiters;
        let ticket = waiters.add(self.revision, self.ticket, cx.waker());
        self.ticket = Some(ticket);
        if self.cache.revision() >= self.revision { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for WaitFor {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.cache.progress().waiters.remove(self.revision, ticket);
        }
    }
}
