//! From the store into the caches: one store watch for all resources, one reflector for each.
//!
//! At a start the caches are read as they were at the beginning of the kept history, and what
//! happened since is replayed. So a client that was cut off by the restart may go on from where it
//! was.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use masthead_cache::{Cache, Config, HistoryLimits};
use masthead_core::{Object, ObjectKey, ParseError, Resource, Revision, Status};
use masthead_reflector::{
    BoxFuture, Driver, Failure, ListAt, ListRequest, Meter, Mux, Page, ServerMemory, Settings,
    Strategy, Upstream, UpstreamEvents, UpstreamItem, WatchItem,
};
use masthead_store::{
    Batch, Event, EventKind, Events, Range, ResourceName, Store, StoreError, Value,
};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tracing::warn;

use crate::catalog::Catalog;
use crate::limits::{KEPT_EVENTS_MAX, LANE_BATCHES_MAX, STORE_PACE};
use crate::packing::{Packer, Packing};
use crate::resources::Kind;
use crate::tasks::Tasks;
use crate::unreadable::UnreadableObjects;

/// Keeps a cache for each resource in step with the store.
pub(crate) struct Feed {
    store: Arc<dyn Store>,
    catalog: Arc<Catalog>,
    history: HistoryLimits,
    /// Bodies of so many bytes are held compressed.
    compress: Option<usize>,
    seed: u64,
    unreadable: Arc<UnreadableObjects>,
    /// How often the store was found to have gone back.
    rewound: Arc<watch::Sender<u64>>,
    life: Mutex<Arc<Life>>,
    tasks: Arc<Tasks>,
}

/// Following the store for as long as it does not go back. Ends with its last reference.
struct Life {
    mux: Mux,
    replay: Arc<Replay>,
    packing: Option<Arc<Packing>>,
    drivers: Mutex<HashMap<Resource, AbortHandle>>,
    follower: OnceLock<AbortHandle>,
}

/// What is told of the beginning.
struct Replay {
    /// Where it begins: as far back as the store remembered at the start.
    base: Revision,
    /// The caches that were there when the server started; the replay goes at their pace.
    caches: Mutex<Vec<Cache>>,
    /// Those of them that have not been read at the beginning yet. Whoever comes later, or has to
    /// read again, begins with the present.
    unread: Mutex<HashSet<Resource>>,
    /// The beginning was compacted away before it was told: everything begins with the present.
    lost: AtomicBool,
    /// Everything from before the start has reached them.
    done: AtomicBool,
}

impl Feed {
    /// Everything that follows the store. Open what is there at the start, then [`Feed::begin`].
    pub(crate) fn new(
        store: Arc<dyn Store>,
        catalog: Arc<Catalog>,
        history: HistoryLimits,
        compress: Option<usize>,
        seed: u64,
        tasks: Arc<Tasks>,
    ) -> Self {
        let rewound = Arc::new(watch::Sender::new(0));
        let unreadable = Arc::new(UnreadableObjects::default());
        let life = Life::new(&store, &catalog, &rewound, &unreadable, compress);
        let life = Mutex::new(life);
        Self { store, catalog, history, compress, seed, unreadable, rewound, life, tasks }
    }

    /// Forgets everything: the store is not what it was. Caches have to be opened anew.
    pub(crate) fn restart(&self) {
        let life =
            Life::new(&self.store, &self.catalog, &self.rewound, &self.unreadable, self.compress);
        drop(std::mem::replace(&mut *self.life.lock(), life));
    }

    /// Stored objects that are missing from the caches because they cannot be read.
    pub(crate) fn unreadable(&self) -> &Arc<UnreadableObjects> {
        &self.unreadable
    }

    /// Changes when the store was found to have gone back.
    pub(crate) fn rewound(&self) -> watch::Receiver<u64> {
        self.rewound.subscribe()
    }

    /// Starts to follow: from here on the store's history is replayed into the caches.
    pub(crate) fn begin(&self) {
        let life = self.life.lock();
        let run = life.mux.clone().run(STORE_PACE, self.seed);
        life.follower.get_or_init(|| self.tasks.spawn_abortable("the store's watch", run));
    }

    /// A cache of a resource that is kept in step until it is closed.
    pub(crate) fn open(&self, resource: &Resource) -> Cache {
        let life = self.life.lock();
        let (source, lane) = life.mux.source(resource);
        let (history, seed) = (self.history, self.seed);
        let config = Config { history, indexes: Vec::new(), seed, lane: Some(lane) };
        let (writer, cache) = Cache::new(config);
        if let Some(packing) = &life.packing {
            packing.open(resource, cache.clone());
        }
        if life.follower.get().is_none() {
            life.replay.caches.lock().push(cache.clone());
            life.replay.unread.lock().insert(resource.clone());
        }
        let settings =
            Settings { strategy: Strategy::Pages, pace: STORE_PACE, ..Settings::default() };
        let driver = Driver::new(source, writer, settings, ServerMemory::new(), seed);
        let driver = self.tasks.spawn_abortable(format!("the cache of {resource}"), driver.run());
        if let Some(old) = life.drivers.lock().insert(resource.clone(), driver) {
            old.abort();
        }
        cache
    }

    /// Lets go of a resource; its cache stays as it is.
    pub(crate) fn close(&self, resource: &Resource) {
        let life = self.life.lock();
        if let Some(driver) = life.drivers.lock().remove(resource) {
            driver.abort();
        }
        if let Some(packing) = &life.packing {
            packing.close(resource);
        }
        self.unreadable.forget(resource);
    }

    /// Returns `true` if everything from before the start has been replayed.
    pub(crate) fn is_replayed(&self) -> bool {
        self.life.lock().replay.done.load(Ordering::Acquire)
    }
}

impl Life {
    fn new(
        store: &Arc<dyn Store>,
        catalog: &Arc<Catalog>,
        rewound: &Arc<watch::Sender<u64>>,
        unreadable: &Arc<UnreadableObjects>,
        compress: Option<usize>,
    ) -> Arc<Self> {
        let replay = Arc::new(Replay {
            base: store.oldest(),
            caches: Mutex::default(),
            unread: Mutex::default(),
            lost: AtomicBool::new(false),
            done: AtomicBool::new(false),
        });
        let (store, catalog, rewound) = (store.clone(), catalog.clone(), rewound.clone());
        let epoch = store.epoch();
        let packing = compress.map(|least| Arc::new(Packing::new(least)));
        let (packs, told) = (packing.clone(), replay.clone());
        let unreadable = unreadable.clone();
        let upstream =
            FromStore { store, catalog, rewound, epoch, replay: told, packing: packs, unreadable };
        let mux = Mux::with_limits(upstream, KEPT_EVENTS_MAX, LANE_BATCHES_MAX);
        let (drivers, follower) = (Mutex::default(), OnceLock::new());
        Arc::new(Self { mux, replay, packing, drivers, follower })
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if let Some(follower) = self.follower.get() {
            follower.abort();
        }
        self.drivers.lock().values().for_each(AbortHandle::abort);
    }
}

/// The store as the reflectors see it.
struct FromStore {
    store: Arc<dyn Store>,
    catalog: Arc<Catalog>,
    rewound: Arc<watch::Sender<u64>>,
    /// Of the store, when this began.
    epoch: u64,
    replay: Arc<Replay>,
    packing: Option<Arc<Packing>>,
    unreadable: Arc<UnreadableObjects>,
}

impl Upstream for FromStore {
    /// Where following begins: as far back as the store remembers, until that has been replayed.
    fn current(&self) -> BoxFuture<Result<Revision, Failure>> {
        if self.replay.is_told() {
            let begin = self.replay.base.max(self.store.oldest());
            return Box::pin(async move { Ok(begin) });
        }
        let current = self.store.current();
        Box::pin(async move { current.await.map_err(failure) })
    }

    fn list(
        &self,
        resource: &Resource,
        request: ListRequest,
        meter: Meter,
    ) -> BoxFuture<Result<Page, Failure>> {
        let (store, replay, resource) = (self.store.clone(), self.replay.clone(), resource.clone());
        let packer = self.packing.as_ref().and_then(|it| it.packer(&resource));
        let custom = is_custom(&self.catalog, &resource);
        let unreadable = self.unreadable.clone();
        Box::pin(async move {
            let (at, after) = match &request.at {
                ListAt::Latest | ListAt::Cached => {
                    unreadable.forget(&resource);
                    let early = replay.unread.lock().remove(&resource);
                    let early = early && replay.is_told();
                    let now = store.current().await.map_err(failure)?;
                    (if early { replay.base } else { now }, None)
                }
                ListAt::Exact(version) => (version.parse().map_err(no_token)?, None),
                ListAt::Continue(token) => read_token(token)?,
            };
            let name = ResourceName::from(&resource);
            let limit = request.limit.max(1);
            let range = store.range(Range { resource: name, after, limit, at });
            let page = range.await.map_err(|error| replay.failure(error))?;
            let mut answer = Page { resource_version: at.to_string(), ..Page::default() };
            for value in &page.values {
                meter.add(value.body().len() as u64);
                match stored_object(&resource, custom, value) {
                    Ok(object) => answer.objects.push(match &packer {
                        Some(packer) => packer.pack_listed(object),
                        None => object,
                    }),
                    Err(error) => {
                        unreadable.add(&resource, &loose_key(value), &error);
                        answer.skipped += 1;
                    }
                }
            }
            if let Some(next) = page.next {
                answer.continue_token = format!("{at}:{next}");
            }
            Ok(answer)
        })
    }

    fn watch(&self, from: Revision) -> BoxFuture<Result<UpstreamEvents, Failure>> {
        let current = self.store.current();
        let (store, catalog) = (self.store.clone(), self.catalog.clone());
        let (rewound, epoch, replay) = (self.rewound.clone(), self.epoch, self.replay.clone());
        let packing = self.packing.clone();
        let unreadable = self.unreadable.clone();
        Box::pin(async move {
            let events = store.watch(from).map_err(|error| replay.failure(error))?;
            // Somebody else may have been told so, between two watches.
            if store.epoch() != epoch {
                rewound.send_modify(|times| *times += 1);
                return Err(failure(StoreError::Rewound));
            }
            let done = replay.done.load(Ordering::Acquire);
            let until = if done { None } else { Some(current.await.map_err(failure)?) };
            let pace = until.map(|until| replay.keep_pace(from, until));
            let ahead = Poll::Pending;
            let following = Following {
                events,
                catalog,
                rewound,
                replay,
                packing,
                unreadable,
                until,
                pace,
                ahead,
            };
            Ok(Box::pin(following) as UpstreamEvents)
        })
    }
}

/// The key of the last object on a page and the revision of all pages.
fn read_token(token: &str) -> Result<(Revision, Option<ObjectKey>), Failure> {
    let (at, key) = token.split_once(':').ok_or_else(|| no_token(()))?;
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let key = ObjectKey::new(namespace, name).map_err(no_token)?;
    Ok((at.parse().map_err(no_token)?, Some(key)))
}

fn no_token<E>(_: E) -> Failure {
    Status::bad_request("no continue token of this source").into()
}

fn failure(error: StoreError) -> Failure {
    match error {
        StoreError::Expired { asked, oldest } => {
            Status::too_old_resource_version(asked, oldest).into()
        }
        StoreError::Future { asked, current } => {
            Status::too_large_resource_version(asked, current).into()
        }
        StoreError::Busy => Status::too_many_requests(error, 1).into(),
        other => Status::unavailable(other).into(),
    }
}

impl Replay {
    /// Returns `true` while the kept history is replayed.
    fn is_told(&self) -> bool {
        !self.done.load(Ordering::Acquire) && !self.lost.load(Ordering::Acquire)
    }

    /// What went wrong. Whoever compacts may do so again before a second try: there is none.
    fn failure(&self, error: StoreError) -> Failure {
        if matches!(error, StoreError::Expired { .. }) && self.is_told() {
            warn!(%error, "the history is not replayed: clients from before have to list again");
            self.lost.store(true, Ordering::Release);
        }
        failure(error)
    }

    /// Resolves when the caches of the start have got to `reached`; when that is the end of the
    /// replay, says that it is done.
    fn keep_pace(self: &Arc<Self>, reached: Revision, until: Revision) -> BoxFuture<()> {
        let this = self.clone();
        Box::pin(async move {
            let caches = this.caches.lock().clone();
            for cache in caches {
                cache.wait_for(reached).await;
            }
            if reached >= until {
                this.done.store(true, Ordering::Release);
                this.caches.lock().clear();
            }
        })
    }
}

type NextEvents = Option<Result<Batch, StoreError>>;

/// The store's events in the words of the multiplexer.
struct Following {
    events: Events,
    catalog: Arc<Catalog>,
    rewound: Arc<watch::Sender<u64>>,
    replay: Arc<Replay>,
    packing: Option<Arc<Packing>>,
    unreadable: Arc<UnreadableObjects>,
    /// The last revision of the replay; none when it is over.
    until: Option<Revision>,
    pace: Option<BoxFuture<()>>,
    /// What comes next in a replay, read while the caches took in what came before.
    ahead: Poll<NextEvents>,
}

impl Following {
    /// The next events. In a replay the ones behind them are asked for before these are looked at,
    /// so that the disk and the parser work side by side.
    fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<NextEvents> {
        let next = match std::mem::replace(&mut self.ahead, Poll::Pending) {
            Poll::Ready(next) => next,
            Poll::Pending => ready!(self.events.as_mut().poll_next(cx)),
        };
        if self.until.is_some() && matches!(next, Some(Ok(_))) {
            self.ahead = self.events.as_mut().poll_next(cx);
        }
        Poll::Ready(next)
    }
}

impl Stream for Following {
    type Item = Result<Vec<UpstreamItem>, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(pace) = &mut self.pace {
            ready!(pace.as_mut().poll(cx));
            self.pace = None;
            if self.replay.done.load(Ordering::Acquire) {
                self.until = None;
            }
        }
        let Batch { events, reached } = match ready!(self.poll_events(cx)) {
            None => return Poll::Ready(None),
            Some(Err(err)) => {
                if matches!(err, StoreError::Rewound) {
                    self.rewound.send_modify(|times| *times += 1);
                }
                return Poll::Ready(Some(Err(self.replay.failure(err))));
            }
            Some(Ok(batch)) => batch,
        };
        if let Some(until) = self.until {
            self.pace = Some(self.replay.keep_pace(reached, until));
        }
        let kinds = self.catalog.now();
        let mut items: Vec<_> = Vec::with_capacity(events.len() + 1);
        for event in &events {
            for kind in kinds.versions(&event.resource) {
                let packer = self.packing.as_ref().and_then(|it| it.packer(&kind.resource));
                items.push(item(kind, event, packer.as_deref(), &self.unreadable));
            }
        }
        items.push(UpstreamItem::Progress(reached));
        Poll::Ready(Some(Ok(items)))
    }
}

/// Plural and group of a stored name.
pub(crate) fn split(name: &str) -> (&str, &str) {
    name.split_once('.').unwrap_or((name, ""))
}

/// Whether a resource is one of a CustomResourceDefinition.
fn is_custom(catalog: &Catalog, resource: &Resource) -> bool {
    let kinds = catalog.now();
    kinds.versions(&resource.into()).first().is_some_and(|kind| kind.custom)
}

/// A stored object in one version of its resource. Those of custom resources may be stored in any other
/// version: the conversion `None` changes nothing but `apiVersion`.
pub(crate) fn stored_object(
    resource: &Resource,
    custom: bool,
    value: &Value,
) -> Result<Object, ParseError> {
    if !custom {
        return value.object(resource);
    }
    // A value that was just written has the object as its writer made it, in the writer's version.
    let written = value.body().strip_prefix(b"{\"apiVersion\":\"");
    let written = written.and_then(|rest| rest.strip_prefix(resource.api_version().as_bytes()));
    if written.is_some_and(|rest| rest.starts_with(b"\"")) {
        return value.object(resource);
    }
    Object::parse_version(resource, value.body())
}

/// Namespace and name of a body that is no object of its kind, as far as they can be found.
fn loose_key(value: &Value) -> String {
    let body: serde_json::Value = serde_json::from_slice(value.body()).unwrap_or_default();
    let text = |name: &str| body["metadata"][name].as_str().unwrap_or_default();
    match (text("namespace"), text("name")) {
        (_, "") => format!("that was stored at revision {}", value.revision()),
        ("", name) => name.to_owned(),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

fn item(
    kind: &Kind,
    event: &Event,
    packer: Option<&Packer>,
    unreadable: &UnreadableObjects,
) -> UpstreamItem {
    let resource = &kind.resource;
    let revision = event.revision;
    let held = |object| match packer {
        Some(packer) => packer.pack(object),
        None => object,
    };
    let read = stored_object(resource, kind.custom, &event.value).map(held);
    match &read {
        Err(error) if event.kind != EventKind::Deleted => {
            unreadable.add(resource, &event.key.to_string(), error);
        }
        _ if unreadable.count() > 0 => unreadable.remove(resource, &event.key.to_string()),
        _ => {}
    }
    let item = match (read, event.kind) {
        (Err(_), _) => WatchItem::Skipped,
        (Ok(object), EventKind::Added) => WatchItem::Added(object),
        (Ok(object), EventKind::Modified) => WatchItem::Modified(object),
        (Ok(object), EventKind::Deleted) => WatchItem::Deleted(object),
    };
    UpstreamItem::Change { resource: resource.clone(), revision, item }
}
