//! What a reconcile is given, and what it gives back.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use masthead_core::{ObjectKey, Resource, Revision};
use masthead_informer::{Entry, Informer, Kind, SyncError};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use crate::queue::Trigger;

/// What follows a reconcile that went well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Nothing, until something happens.
    Done,
    /// Another one after this time, or before if something happens.
    RequeueAfter(Duration),
}

/// Why a reconcile did not go well. Any error becomes one that is tried again; see also
/// [`ReconcileError::terminal`].
#[derive(Debug)]
pub enum ReconcileError {
    /// May go well the next time: tried again with backoff.
    Retry(Box<dyn Error + Send + Sync>),
    /// Will not go well until the object changes: it is quarantined until then.
    Terminal(Box<dyn Error + Send + Sync>),
}

impl ReconcileError {
    /// Not to be tried again until the object changes or somebody releases it.
    pub fn terminal(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Terminal(error.into())
    }

    /// To be tried again.
    pub fn retry(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Retry(error.into())
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for ReconcileError {
    fn from(error: E) -> Self {
        Self::Retry(Box::new(error))
    }
}

/// One reconcile.
pub struct Context<K> {
    pub(super) key: ObjectKey,
    pub(super) object: Option<Entry<K>>,
    pub(super) trigger: Trigger,
    pub(super) attempt: u32,
    pub(super) reads: Arc<[Arc<dyn Reads>]>,
    pub(super) writes: Writes,
}

/// Where the caches have to be before the key's turn comes again: for each, by its place.
pub(super) type Writes = Arc<Mutex<Vec<(usize, Revision)>>>;

impl<K> Context<K> {
    /// Which object.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// The object as it was cached when this began; none if it is not there.
    pub fn object(&self) -> Option<&Entry<K>> {
        self.object.as_ref()
    }

    /// Why.
    pub fn trigger(&self) -> Trigger {
        self.trigger
    }

    /// The how manieth try since the last that went well, from 1 on.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Says that an object was written, as the server answered: this key's next reconcile begins when the
    /// controller's cache has it (R33). Of kinds that the controller does not read nothing is waited for.
    pub fn wrote<T: Kind + kube_core::Resource>(&self, written: &T) {
        let version = written.meta().resource_version.as_deref();
        if let Some(revision) = version.and_then(|it| it.parse().ok()) {
            self.wrote_at(&T::resource(), Revision(revision));
        }
    }

    /// The same for an object of which only the revision is known.
    pub fn wrote_at(&self, resource: &Resource, revision: Revision) {
        let same = |it: &Arc<dyn Reads>| {
            let it = it.resource();
            (it.group(), it.plural()) == (resource.group(), resource.plural())
        };
        if let Some(at) = self.reads.iter().position(same) {
            self.writes.lock().push((at, revision));
        }
    }
}

impl<K> fmt::Debug for Context<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, trigger, attempt, .. } = self;
        let mut all = f.debug_struct("Context");
        all.field("key", key).field("trigger", trigger).field("attempt", attempt);
        all.finish_non_exhaustive()
    }
}

/// A cache that a controller reads.
pub(super) trait Reads: Send + Sync {
    fn resource(&self) -> &Resource;
    /// Says whether it got there in time.
    fn wait_for(&self, revision: Revision, deadline: Duration) -> BoxFuture<'_, bool>;
    fn synced(&self) -> BoxFuture<'_, Result<(), SyncError>>;
}

impl<K: DeserializeOwned + Send + Sync + 'static> Reads for Informer<K> {
    fn resource(&self) -> &Resource {
        Self::resource(self)
    }

    fn wait_for(&self, revision: Revision, deadline: Duration) -> BoxFuture<'_, bool> {
        Box::pin(async move { Self::wait_for(self, revision, deadline).await.is_ok() })
    }

    fn synced(&self) -> BoxFuture<'_, Result<(), SyncError>> {
        Box::pin(async move { self.wait_for_sync().await.map(drop) })
    }
}

/// Waits until the caches have what was written; says whether they got there in time.
pub(super) async fn caught_up(
    reads: Arc<[Arc<dyn Reads>]>,
    writes: Vec<(usize, Revision)>,
    deadline: Duration,
) -> bool {
    let waits = writes.into_iter().map(|(at, revision)| reads[at].wait_for(revision, deadline));
    join_all(waits).await.into_iter().all(|in_time| in_time)
}
