//! The one module that holds the caches.
//!
//! **Invariant:** everything that leaves here leaves against an [`Authorized`], and is what that
//! proof names.
//!
//! Single objects leave with their JSON; those of lists and cursors as the cache holds them, to be opened
//! ([`crate::packing`]) one by one when they are sent.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use masthead_cache::{Cache, Interest, Query, Snapshot, SnapshotError};
use masthead_core::{
    ContinueToken, Freshness, ListAt, ListMeta, ListOptions, Object, ObjectKey, Projection,
    Resource, Revision, Selectors, Status, WatchFrom, WatchOptions,
};
use masthead_store::{ResourceName, Store};
use tokio::time::timeout;

use crate::authn::User;
use crate::authz::Authorized;
use crate::flights::{Connection, Flights, WatchCost};
use crate::limits::{FRESH_WAIT, READY_WAIT, SELECTIVE_WATCH_BYTES, WATCH_TIMEOUT_MIN};
use crate::metrics::WatchCounters;
use crate::packing::whole;
use crate::route::Target;
use crate::unreadable::UnreadableObjects;
use crate::watching::{Start, WatchStream};

/// Reads from the caches.
pub(crate) struct Reads {
    caches: ArcSwap<HashMap<Resource, Served>>,
    store: Arc<dyn Store>,
    flights: Arc<Flights>,
    unreadable: Arc<UnreadableObjects>,
    /// Some objects of the caches are held compressed.
    compressed: bool,
    began: Instant,
    /// Caches so far.
    opened: AtomicU64,
}

#[derive(Clone)]
struct Served {
    cache: Cache,
    counters: WatchCounters,
    /// Of this cache and no other, also not of one that replaces it.
    number: u64,
}

/// What one resource looks like from outside.
pub(crate) struct Statistics {
    pub(crate) resource: ResourceName,
    pub(crate) version: String,
    pub(crate) memory: masthead_cache::Memory,
    pub(crate) revision: Revision,
    pub(crate) oldest: Revision,
    pub(crate) watches: usize,
    pub(crate) ready: bool,
    pub(crate) counters: WatchCounters,
}

/// A list that has been read and not been written yet.
pub(crate) struct List {
    pub(crate) meta: ListMeta,
    pub(crate) objects: Vec<Object>,
    /// Of the cache that it was read from: there, an object is known by its key and revision.
    pub(crate) served: u64,
    /// Some of them are held compressed.
    pub(crate) compressed: bool,
}

/// Who asks for a watch, and how it is to look.
pub(crate) struct Watcher<'a> {
    pub(crate) user: &'a Arc<User>,
    pub(crate) connection: &'a Arc<Connection>,
    pub(crate) projection: Projection,
    pub(crate) query_bytes: usize,
}

impl Reads {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        flights: Arc<Flights>,
        unreadable: Arc<UnreadableObjects>,
        compressed: bool,
    ) -> Self {
        Self {
            caches: ArcSwap::default(),
            store,
            flights,
            unreadable,
            compressed,
            began: Instant::now(),
            opened: AtomicU64::new(0),
        }
    }

    /// Serves a resource from this cache. Only one task opens and closes.
    pub(crate) fn open(&self, resource: &Resource, cache: Cache, counters: WatchCounters) {
        let mut caches = HashMap::clone(&self.caches.load());
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        caches.insert(resource.clone(), Served { cache, counters, number });
        self.caches.store(Arc::new(caches));
    }

    pub(crate) fn close(&self, resource: &Resource) {
        let mut caches = HashMap::clone(&self.caches.load());
        caches.remove(resource);
        self.caches.store(Arc::new(caches));
        self.flights.end_resource(resource);
    }

    pub(crate) fn statistics(&self) -> Vec<Statistics> {
        let caches = self.caches.load();
        let mut all: Vec<_> = caches
            .iter()
            .map(|(resource, Served { cache, counters, .. })| Statistics {
                resource: resource.into(),
                version: resource.version().to_owned(),
                memory: cache.memory(),
                revision: cache.revision(),
                oldest: cache.oldest(),
                watches: cache.cursors(),
                ready: cache.is_ready(),
                counters: counters.clone(),
            })
            .collect();
        all.sort_by(|one, other| {
            (&one.resource, &one.version).cmp(&(&other.resource, &other.version))
        });
        all
    }

    /// Returns `true` if all caches are filled.
    pub(crate) fn is_ready(&self) -> bool {
        self.caches.load().values().all(|served| served.cache.is_ready())
    }

    fn served(&self, resource: &Resource) -> Result<Served, Status> {
        let caches = self.caches.load();
        let served = caches.get(resource).ok_or_else(Status::no_such_path)?;
        if !served.cache.is_ready() {
            return Err(Status::cache_not_ready(self.began.elapsed().as_secs_f64()));
        }
        Ok(served.clone())
    }

    /// Waits until all caches have what the store has now. If the store is gone, they do not get there.
    pub(crate) async fn catch_up(&self, patience: Duration) -> Result<(), Status> {
        let behind = |_| Status::unavailable("the caches do not get what the store has");
        let all = async {
            let current = self.current().await?;
            for served in self.caches.load_full().values() {
                served.cache.wait_for(current).await;
            }
            Ok(())
        };
        timeout(patience, all).await.map_err(behind)?
    }

    /// What is wrong if the caches do not keep up with the store.
    pub(crate) async fn lag(&self) -> Option<String> {
        let lagging = self.catch_up(READY_WAIT).await.err()?;
        Some(lagging.message().to_owned())
    }

    /// The store's newest revision.
    pub(crate) async fn current(&self) -> Result<Revision, Status> {
        self.store.current().await.map_err(Status::unavailable)
    }

    /// One object as of some moment (W6); the newest if none is named.
    pub(crate) async fn get(
        &self,
        proof: &Authorized<Target>,
        at: Freshness,
    ) -> Result<Object, Status> {
        self.find(proof, at)
            .await?
            .ok_or_else(|| Status::not_found(&proof.kind.resource, &proof.name))
    }

    /// The same where it may be missing.
    pub(crate) async fn find(
        &self,
        proof: &Authorized<Target>,
        at: Freshness,
    ) -> Result<Option<Object>, Status> {
        let served = self.served(&proof.kind.resource)?;
        self.wait(&served.cache, at).await?;
        let Ok(key) = ObjectKey::new(&proof.namespace, &proof.name) else { return Ok(None) };
        if self.unreadable.count() > 0 {
            self.unreadable.check_object(&proof.kind.resource, &key.to_string())?;
        }
        match served.cache.get(&key) {
            Some(found) if self.compressed => whole(&found).map(Some),
            found => Ok(found),
        }
    }

    /// Waits until the cache has what a read asks for (W6, W7, W7a).
    async fn wait(&self, cache: &Cache, at: Freshness) -> Result<(), Status> {
        let revision = self.revision_of(at).await?;
        if cache.revision() >= revision {
            return Ok(());
        }
        let waited = timeout(FRESH_WAIT, cache.wait_for(revision)).await;
        waited.map_err(|_| Status::too_large_resource_version(revision, cache.revision()))
    }

    async fn revision_of(&self, at: Freshness) -> Result<Revision, Status> {
        match at {
            Freshness::MostRecent => self.current().await,
            Freshness::Cached => Ok(Revision::ZERO),
            Freshness::NotOlderThan(revision) => Ok(revision),
        }
    }

    /// A page of a collection (W7–W12).
    pub(crate) async fn list(
        &self,
        proof: &Authorized<Target>,
        options: &ListOptions,
    ) -> Result<List, Status> {
        let served = self.served(&proof.kind.resource)?;
        let cache = &served.cache;
        let mut start = None;
        let snapshot = match &options.at {
            ListAt::MostRecent => {
                self.wait(cache, Freshness::MostRecent).await?;
                cache.snapshot()
            }
            ListAt::Cached => cache.snapshot(),
            ListAt::NotOlderThan(revision) => {
                self.wait(cache, Freshness::NotOlderThan(*revision)).await?;
                cache.snapshot()
            }
            ListAt::Exact(revision) => self.exact(cache, *revision).await?,
            ListAt::Continue(token) => {
                start = Some(token.start());
                self.continued(cache, token, &proof.namespace).await?
            }
        };
        self.unreadable.check_all(&proof.kind.resource, &proof.namespace)?;
        let (meta, objects) = page(&snapshot, proof, options, start);
        let compressed = self.compressed;
        Ok(List { meta, objects, served: served.number, compressed })
    }

    /// The state at a revision. One that the store has and the cache has not is waited for.
    async fn exact(&self, cache: &Cache, revision: Revision) -> Result<Snapshot, Status> {
        if revision > cache.revision() && revision <= self.current().await? {
            self.wait(cache, Freshness::NotOlderThan(revision)).await?;
        }
        cache.snapshot_at(revision).map_err(|error| match error {
            SnapshotError::Expired { .. } => Status::list_expired(),
            SnapshotError::Future { asked, current } => {
                Status::too_large_resource_version(asked, current)
            }
            _ => Status::cache_not_ready(self.began.elapsed().as_secs_f64()),
        })
    }

    async fn continued(
        &self,
        cache: &Cache,
        token: &ContinueToken,
        namespace: &str,
    ) -> Result<Snapshot, Status> {
        let Some(revision) = token.revision() else {
            self.wait(cache, Freshness::MostRecent).await?;
            return Ok(cache.snapshot());
        };
        self.exact(cache, revision).await.map_err(|status| {
            if !status.is_expired() {
                return status;
            }
            let fresh = token.without_revision().encode(namespace);
            Status::continue_expired(Some(fresh))
        })
    }

    /// Follows a collection or one object of it (W9).
    pub(crate) async fn watch(
        &self,
        proof: &Authorized<Target>,
        options: WatchOptions,
        watcher: Watcher<'_>,
    ) -> Result<WatchStream, Status> {
        let resource = &proof.kind.resource;
        let cache = self.served(resource)?.cache;
        let fresh = match options.from {
            WatchFrom::State { fresh, .. } | WatchFrom::Now(fresh) => {
                self.revision_of(fresh).await?
            }
            WatchFrom::After(from) => {
                // What the store has and the cache has not yet is not the future.
                if from > cache.revision() && from <= self.current().await? {
                    self.wait(&cache, Freshness::NotOlderThan(from)).await?;
                }
                Revision::ZERO
            }
        };
        if matches!(options.from, WatchFrom::State { .. }) {
            self.unreadable.check_all(resource, &proof.namespace)?;
        }
        let initial_bytes = match options.from {
            WatchFrom::State { .. } if is_wide(proof, &options.selectors) => cache.memory().whole,
            WatchFrom::State { .. } => SELECTIVE_WATCH_BYTES,
            _ => 0,
        };
        let Watcher { user, connection, projection, query_bytes } = watcher;
        let cost = WatchCost { initial_bytes, query_bytes };
        let ticket = self.flights.watch(connection, resource, user, cost)?;
        // Whoever ends the watches of a cache has put another in its place before: from here on this
        // watch is ended with them, or begins with the other one.
        let Served { cache, counters, .. } = self.served(resource)?;
        let interest = interest(proof, options.selectors.clone())?;
        let lifetime = options.timeout.filter(|it| !it.is_zero()).unwrap_or_else(random_lifetime);
        let resource = resource.clone();
        Ok(WatchStream::new(Start {
            resource,
            cache,
            interest,
            options,
            fresh,
            projection,
            compressed: self.compressed,
            lifetime,
            ticket,
            counters,
        }))
    }

    /// For the server's own work: follows all of a resource from its present state on.
    pub(crate) fn follow(&self, proof: &Authorized<Target>) -> Option<masthead_cache::Cursor> {
        let caches = self.caches.load();
        let served = caches.get(&proof.kind.resource)?;
        let from = masthead_cache::From::State;
        served.cache.subscribe(Interest::all(), from, masthead_cache::Gaps::Bridge).ok()
    }
}

/// Returns `true` if the request sees the whole resource.
fn is_wide(proof: &Authorized<Target>, selectors: &Selectors) -> bool {
    proof.namespace.is_empty() && proof.name.is_empty() && selectors.is_everything()
}

fn interest(proof: &Authorized<Target>, selectors: Selectors) -> Result<Interest, Status> {
    let scope = if !proof.name.is_empty() {
        let key = ObjectKey::new(&proof.namespace, &proof.name).map_err(Status::bad_request)?;
        Interest::object(key)
    } else if proof.namespace.is_empty() {
        Interest::all()
    } else {
        Interest::namespace(&proof.namespace)
    };
    Ok(scope.with(selectors))
}

fn random_lifetime() -> Duration {
    let share = f64::from(getrandom::u32().unwrap_or(0)) / f64::from(u32::MAX);
    WATCH_TIMEOUT_MIN.mul_f64(1.0 + share * 0.999)
}

fn page(
    snapshot: &Snapshot,
    proof: &Authorized<Target>,
    options: &ListOptions,
    start: Option<&str>,
) -> (ListMeta, Vec<Object>) {
    let everything = options.selectors.is_everything();
    let selectors = (!everything).then_some(&options.selectors);
    let namespace = Some(proof.namespace.as_str()).filter(|it| !it.is_empty());
    let mut found = snapshot.list(Query { namespace, start, selectors });
    let limit = options.limit.map_or(usize::MAX, NonZeroUsize::get);
    let objects: Vec<_> = found.by_ref().take(limit).collect();
    let mut meta = ListMeta { revision: snapshot.revision(), ..ListMeta::default() };
    if let (Some(last), true) = (objects.last(), objects.len() == limit)
        && found.next().is_some()
    {
        let token = ContinueToken::after(last.key(), Some(snapshot.revision()));
        meta.continue_token = token.encode(&proof.namespace);
        meta.remaining = everything.then(|| found.count() as u64 + 1);
    }
    (meta, objects)
}
