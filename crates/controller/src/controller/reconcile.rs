//! What a reconcile is given, and what it gives back.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use masthead_core::{ObjectKey, Resource, Revision};
use masthead_informer::{Entry, Informer, Kind, SyncError, TaskEnded};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use crate::leader::Term;
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
    pub(super) term: Option<Term>,
    pub(super) reads: Arc<[Arc<dyn Reads>]>,
    pub(super) writes: Writes,
}

/// What the caches have to have before the key's turn comes again.
pub(super) type Writes = Arc<Mutex<Vec<Write>>>;

/// Something that was written.
#[derive(Clone, Debug)]
pub(super) struct Write {
    /// The place of the cache that is to have it.
    pub(super) cache: usize,
    pub(super) revision: Revision,
    /// If they are known.
    object: Option<Named>,
}

/// An object and its labels.
type Named = (ObjectKey, BTreeMap<String, String>);

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

    /// The term of the leader that this began in; none if nobody is elected. A reconcile is cancelled where
    /// it waits when its term is over, but a request that it has sent by then may still arrive: give the
    /// number of the term to those who have to know that it is late.
    pub fn term(&self) -> Option<Term> {
        self.term
    }

    /// Says that an object was written, as the server answered: this key's next reconcile begins when the
    /// controller's caches have it (R33). Where it cannot be nothing is waited for: in caches of other kinds,
    /// of other namespaces and of other labels.
    pub fn wrote<T: Kind + kube_core::Resource>(&self, written: &T) {
        let meta = written.meta();
        let version = meta.resource_version.as_deref();
        let Some(revision) = version.and_then(|it| it.parse().ok()) else { return };
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let key = ObjectKey::new(namespace, meta.name.as_deref().unwrap_or_default());
        let object = key.ok().map(|key| (key, meta.labels.clone().unwrap_or_default()));
        self.note(&T::resource(), Revision(revision), object.as_ref());
    }

    /// The same for an object of which only the revision is known: all caches of its kind are waited for.
    pub fn wrote_at(&self, resource: &Resource, revision: Revision) {
        self.note(resource, revision, None);
    }

    fn note(&self, resource: &Resource, revision: Revision, object: Option<&Named>) {
        let mut writes = self.writes.lock();
        for (cache, it) in self.reads.iter().enumerate() {
            let it = it.resource();
            if (it.group(), it.plural()) == (resource.group(), resource.plural()) {
                writes.push(Write { cache, revision, object: object.cloned() });
            }
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
    fn wait_for(&self, write: Write, deadline: Duration) -> BoxFuture<'_, bool>;
    fn synced(&self) -> BoxFuture<'_, Result<(), SyncError>>;
    /// Waits until nothing fills the cache any more.
    fn ended(&self) -> BoxFuture<'_, TaskEnded>;
}

impl<K: DeserializeOwned + Send + Sync + 'static> Reads for Informer<K> {
    fn resource(&self) -> &Resource {
        Self::resource(self)
    }

    fn wait_for(&self, write: Write, deadline: Duration) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let Write { revision, object, .. } = write;
            let there = match object {
                None => Self::wait_for(self, revision, deadline).await,
                Some((key, labels)) => self.wait_for_write(&key, &labels, revision, deadline).await,
            };
            there.is_ok()
        })
    }

    fn synced(&self) -> BoxFuture<'_, Result<(), SyncError>> {
        Box::pin(async move { self.wait_for_sync().await.map(drop) })
    }

    fn ended(&self) -> BoxFuture<'_, TaskEnded> {
        Box::pin(self.task_ended())
    }
}

/// Waits until the caches have what was written; says whether they got there in time.
pub(super) async fn caught_up(
    reads: Arc<[Arc<dyn Reads>]>,
    writes: Vec<Write>,
    deadline: Duration,
) -> bool {
    let waits = writes.into_iter().map(|write| reads[write.cache].wait_for(write, deadline));
    join_all(waits).await.into_iter().all(|in_time| in_time)
}
