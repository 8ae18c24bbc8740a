//! One kind of objects, followed.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use masthead_cache::{AddIndexError, Interest};
use masthead_core::{Labels, ObjectKey, Resource, Revision, Selectors};
use masthead_reflector::Report;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::connector::Wanted;
use crate::factory::Factory;
use crate::filter::Sees;
use crate::handler::{Handler, HandlerHandle};
use crate::limits::HANDLERS_MAX;
use crate::part::Part;
use crate::report::{SyncError, SyncReport};
use crate::subscriber::Subscriber;
use crate::subscription::Subscription;
use crate::{Entry, Index, Lister, TaskEnded};

/// A cache that follows a server, and those who listen to it.
///
/// Cheap to clone; the cache lives as long as somebody holds the informer, a handler or a stream of it.
pub struct Informer<K> {
    factory: Factory,
    parts: Arc<[Arc<Part>]>,
    kind: PhantomData<fn() -> K>,
}

/// What a handler or a stream hears.
pub struct HandlerOptions<K> {
    name: String,
    interest: Interest,
    selective: bool,
    filter: Option<Sees<K>>,
    resync: Option<Duration>,
}

impl<K> Default for HandlerOptions<K> {
    fn default() -> Self {
        Self {
            name: "handler".to_owned(),
            interest: Interest::all(),
            selective: false,
            filter: None,
            resync: None,
        }
    }
}

impl<K> HandlerOptions<K> {
    /// What reports and metrics call it.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Only what these match. What comes to match is added, what no longer does is deleted, and changes
    /// that concern neither do not wake it.
    #[must_use]
    pub fn select(mut self, selectors: Selectors) -> Self {
        self.selective = true;
        self.interest = self.interest.with(selectors);
        self
    }

    /// Only what a function of the object alone chooses, with the same transitions. A function that panics
    /// chooses the object, and is logged and counted: see
    /// [`HandlerReport::filter_panics`](crate::HandlerReport::filter_panics).
    #[must_use]
    pub fn filter(mut self, filter: impl Fn(&Entry<K>) -> bool + Send + Sync + 'static) -> Self {
        self.filter = Some(Arc::new(filter));
        self
    }

    /// All objects once more, as updates that change nothing, every so often: at least a second (R22).
    #[must_use]
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = (!period.is_zero()).then_some(period);
        self
    }
}

/// More handlers than an informer has room for.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an informer has at most {HANDLERS_MAX} handlers and streams")]
pub struct TooManyHandlers;

/// The cache did not get there in time (R33).
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the cache is at revision {current}, {asked} was waited for")]
pub struct NotThereYet {
    /// Where it is.
    pub current: Revision,
    /// What was waited for.
    pub asked: Revision,
}

impl<K: DeserializeOwned + Send + Sync + 'static> Informer<K> {
    pub(crate) fn new(factory: Factory, parts: Vec<Arc<Part>>) -> Self {
        Self { factory, parts: parts.into(), kind: PhantomData }
    }

    /// The resource.
    pub fn resource(&self) -> &Resource {
        self.parts[0].resource()
    }

    /// The objects as they are now.
    pub fn lister(&self) -> Lister<K> {
        Lister::new(&self.parts)
    }

    /// One object as it is now.
    pub fn get(&self, key: &ObjectKey) -> Option<Entry<K>> {
        self.lister().get(key)
    }

    /// Returns `true` once the first list was applied whole (R24).
    pub fn has_synced(&self) -> bool {
        self.parts.iter().all(|part| part.cache.is_ready())
    }

    /// Waits until it was, within its own time-out.
    pub async fn wait_for_sync(&self) -> Result<SyncReport, SyncError> {
        self.factory.wait_for(&self.parts).await
    }

    /// Waits until nothing fills its cache any more although nothing stopped that: because of a bug, see
    /// [`Factory::task_ended`].
    pub async fn task_ended(&self) -> TaskEnded {
        let all = self.parts.iter().map(|part| Box::pin(part.ended()));
        futures_util::future::select_all(all).await.0
    }

    /// How far it is; of several namespaces, each.
    pub fn reports(&self) -> Vec<Report> {
        self.parts.iter().map(|part| part.report().borrow().clone()).collect()
    }

    /// Adds an index, which is there for every lister from now on.
    pub fn add_index(&self, index: &Index<K>) -> Result<(), AddIndexError> {
        self.parts.iter().try_for_each(|part| {
            let index = index.cached(&part.wanted.held_resource(), &part.reading);
            part.cache.add_index(index)
        })
    }

    /// Adds an index unless there is one of its name.
    pub(crate) fn ensure_index(&self, index: &Index<K>) -> Result<(), AddIndexError> {
        match self.add_index(index) {
            Err(AddIndexError::Exists(_)) => Ok(()),
            other => other,
        }
    }

    /// The events from the present state on, as a stream.
    pub fn events(&self, options: &HandlerOptions<K>) -> Result<Subscription<K>, TooManyHandlers> {
        if self.parts[0].readers().len() >= HANDLERS_MAX {
            return Err(TooManyHandlers);
        }
        let HandlerOptions { name, interest, selective, filter, resync } = options;
        let subscriber = Subscriber::new(name);
        let (parts, filter) = (&self.parts, filter.as_ref());
        Ok(Subscription::new(parts, interest, *selective, filter, *resync, subscriber))
    }

    /// Has a handler called for every event from the present state on (R18, R19). It may be added before
    /// or after the start, and is called on a task of its own until it is removed.
    pub fn add_handler(
        &self,
        options: &HandlerOptions<K>,
        handler: impl Handler<K>,
    ) -> Result<HandlerHandle, TooManyHandlers> {
        let (events, tasks) = (self.events(options)?, &self.parts[0].tasks);
        Ok(HandlerHandle::spawn(events, handler, tasks, self.resource()))
    }

    /// Waits until the cache has everything up to a revision, for example that of one's own write.
    /// Bookmarks count, so that a write outside of the informer's scope is not waited for in vain, but
    /// those may take a minute.
    pub async fn wait_for(
        &self,
        revision: Revision,
        deadline: Duration,
    ) -> Result<(), NotThereYet> {
        self.wait_where(|_| true, revision, deadline).await
    }

    /// The same for what was written to one object, with the labels that it has since: only where the
    /// object can be is anything waited for. In other namespaces it cannot, nor where its labels are not
    /// selected, unless it is cached, because then the write took it out of the selection. Selected fields
    /// are not looked at.
    pub async fn wait_for_write(
        &self,
        key: &ObjectKey,
        labels: &(impl Labels + Sync),
        revision: Revision,
        deadline: Duration,
    ) -> Result<(), NotThereYet> {
        let is_cached = self.get(key).is_some();
        let can_be = |part: &Part| {
            let Wanted { namespace, selectors, .. } = &part.wanted;
            namespace.as_deref().is_none_or(|namespace| namespace == key.namespace())
                && (is_cached || selectors.labels.matches(labels))
        };
        self.wait_where(can_be, revision, deadline).await
    }

    async fn wait_where(
        &self,
        waits: impl Fn(&Part) -> bool,
        revision: Revision,
        deadline: Duration,
    ) -> Result<(), NotThereYet> {
        let parts = self.parts.iter().filter(|part| waits(part));
        let all = parts.map(|part| part.cache.wait_for(revision));
        let waited = timeout(deadline, futures_util::future::join_all(all)).await;
        waited
            .map(|_| ())
            .map_err(|_| NotThereYet { current: self.lister().revision(), asked: revision })
    }

    /// One object, not before the cache has everything up to a revision. Does not wait if what is cached
    /// is that new already.
    pub async fn get_at_least(
        &self,
        key: &ObjectKey,
        revision: Revision,
        deadline: Duration,
    ) -> Result<Option<Entry<K>>, NotThereYet> {
        if let Some(entry) = self.get(key).filter(|entry| entry.revision() >= revision) {
            return Ok(Some(entry));
        }
        self.wait_for(revision, deadline).await?;
        Ok(self.get(key))
    }
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        let (factory, parts) = (self.factory.clone(), self.parts.clone());
        Self { factory, parts, kind: PhantomData }
    }
}

impl<K> fmt::Debug for Informer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer").field("parts", &self.parts).finish_non_exhaustive()
    }
}

impl<K> fmt::Debug for HandlerOptions<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerOptions").field("name", &self.name).finish_non_exhaustive()
    }
}
