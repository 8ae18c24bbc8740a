//! What the server does on its own: serving what definitions define, emptying namespaces that are
//! being deleted. [`crate::expiry`] deletes events.
//!
//! Each is a reader of a cache like any other, so it also picks up what was left undone before a
//! restart.

use std::sync::Arc;

use masthead_cache::{Batch, Cursor};
use masthead_core::{EventType, Freshness, ListAt, ListOptions, Object, Selectors, Status};
use masthead_store::ResourceName;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::authz::Authorized;
use crate::catalog::Catalog;
use crate::definitions;
use crate::document;
use crate::feed::Feed;
use crate::limits::{
    CUSTOM_RESOURCES_MAX, ESTABLISH_WAIT, HOUSEKEEPING_BATCH, HOUSEKEEPING_RETRY,
    HOUSEKEEPING_RETRY_MAX,
};
use crate::metrics::WatchCounters;
use crate::prepare;
use crate::reads::Reads;
use crate::resources::Kind;
use crate::route::Target;
use crate::tasks::Tasks;
use crate::writes::{DeleteOptions, Writes};

/// Everything that housekeeping works with.
pub(crate) struct Housekeeping {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) reads: Arc<Reads>,
    pub(crate) writes: Arc<Writes>,
    pub(crate) tasks: Arc<Tasks>,
    /// Up to where definitions have been dealt with.
    pub(crate) defined: watch::Sender<u64>,
}

/// The namespaces that every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

impl Housekeeping {
    /// Makes the namespaces that clients take for granted.
    pub(crate) async fn make_namespaces(&self) {
        for name in NAMESPACES {
            let scope = self.scope("", "namespaces", name);
            let members = json!({"metadata": {"name": name}});
            let Value::Object(members) = members else { continue };
            match self.writes.create(&scope, members, false).await {
                Err(status) if status.code() != 409 => {
                    warn!(name, error = status.message(), "a namespace cannot be made");
                }
                _ => {}
            }
        }
    }

    pub(crate) fn scope(&self, group: &str, plural: &str, name: &str) -> Authorized<Target> {
        let kinds = self.catalog.now();
        let kind = kinds.stored(group, plural).expect("is built in");
        Authorized::internal(kind, "", name)
    }

    /// Serves what definitions define, for as long as it runs.
    pub(crate) async fn follow_definitions(self: Arc<Self>) {
        let scope = self.scope("apiextensions.k8s.io", "customresourcedefinitions", "");
        let mut follower = Follower::new(&self.reads, &scope);
        while let Some(batch) = follower.next().await {
            for event in &batch.events {
                match event.kind {
                    EventType::Deleted => self.withdraw(&event.object),
                    _ if event.object.deletion_timestamp().is_some() => {
                        self.serve(&event.object).await;
                        let this = self.clone();
                        let object = event.object.clone();
                        let name = format!("the definition {}", object.key());
                        self.tasks.spawn(name, async move { this.clean_up(&object).await });
                    }
                    _ => self.serve(&event.object).await,
                }
                self.defined.send_replace(event.revision.0);
            }
            if batch.initial_end.is_some() {
                self.withdraw_missing().await;
            }
        }
    }

    /// Stops to serve what was undefined while nobody looked.
    async fn withdraw_missing(&self) {
        let kinds = self.catalog.now();
        for kind in kinds.iter().filter(|it| it.custom && it.storage) {
            let name = kind.resource.to_string();
            let scope = self.scope("apiextensions.k8s.io", "customresourcedefinitions", &name);
            if let Ok(None) = self.reads.find(&scope, Freshness::Cached).await {
                self.close(&(&kind.resource).into());
            }
        }
    }

    /// Serves the versions of a definition, each from a cache of its own. A version that is served
    /// already goes on as it is, unless other fields of it can be selected: what its cache has read of
    /// the objects is not enough then, and its watches end to begin again.
    async fn serve(&self, definition: &Object) {
        let read = document::members(definition).and_then(|members| definitions::read(&members));
        let versions: Vec<_> = match read {
            Ok(kinds) => kinds.into_iter().map(Arc::new).collect(),
            Err(status) => {
                let (key, error) = (definition.key(), status.message());
                warn!(definition = %key, error, "a stored definition cannot be served");
                return;
            }
        };
        let name = ResourceName::from(&versions[0].resource);
        let kinds = self.catalog.now();
        let known = kinds.versions(&name);
        if known.iter().any(|known| !known.custom) {
            warn!(resource = %name, "a definition names a built-in resource and is not served");
            return;
        }
        let custom = kinds.iter().filter(|kind| kind.custom && kind.storage).count();
        if known.is_empty() && custom >= CUSTOM_RESOURCES_MAX {
            warn!(resource = %name, "not served: {CUSTOM_RESOURCES_MAX} definitions are served");
            return;
        }
        let same = |one: &Arc<Kind>, other: &Arc<Kind>| {
            one.resource == other.resource && one.resource.fields() == other.resource.fields()
        };
        let gone: Vec<_> =
            known.iter().filter(|old| !versions.iter().any(|new| same(old, new))).collect();
        let new: Vec<_> = versions
            .iter()
            .filter(|new| !known.iter().any(|old| same(old, new)))
            .map(|kind| kind.resource.clone())
            .collect();
        self.catalog.put(versions.clone());
        for old in gone {
            self.feed.close(&old.resource);
            self.reads.close(&old.resource);
        }
        for resource in new {
            info!(resource = ?resource, "serving a custom resource");
            let cache = self.feed.open(&resource);
            self.reads.open(&resource, cache.clone(), WatchCounters::default());
            // A request that waits for the definition is answered when its objects can be read.
            let _ = timeout(ESTABLISH_WAIT, cache.wait_for(definition.revision())).await;
        }
    }

    fn withdraw(&self, definition: &Object) {
        let (plural, group) = crate::feed::split(definition.key().name());
        let name = ResourceName::new(group, plural);
        if self.catalog.now().versions(&name).iter().any(|kind| kind.custom) {
            info!(resource = %name, "no longer serving a custom resource");
            self.close(&name);
        }
    }

    fn close(&self, name: &ResourceName) {
        let kinds = self.catalog.now();
        self.catalog.remove(name);
        for kind in kinds.versions(name) {
            self.feed.close(&kind.resource);
            self.reads.close(&kind.resource);
        }
    }

    /// Deletes the objects of a definition that is being deleted, then lets it go (W39).
    async fn clean_up(&self, definition: &Object) {
        let name = definition.key().name();
        let scope = self.scope("apiextensions.k8s.io", "customresourcedefinitions", name);
        if !self.is_being_deleted(&scope).await {
            return;
        }
        let (plural, group) = crate::feed::split(name);
        let kinds = self.catalog.now();
        let Some(kind) = kinds.stored(group, plural).filter(|it| it.custom) else {
            // Its objects cannot be seen here, and would outlive it.
            warn!(name, "a definition that is not served here stays until its objects are deleted");
            return;
        };
        self.empty(kind, "").await;
        let done = self
            .writes
            .change(&scope, false, |current| prepare::release_definition(&scope.kind, current));
        report(name, done.await.map(|_| ()));
    }

    /// Empties namespaces that are being deleted, for as long as it runs (W35).
    pub(crate) async fn follow_namespaces(self: Arc<Self>) {
        let scope = self.scope("", "namespaces", "");
        let mut follower = Follower::new(&self.reads, &scope);
        while let Some(batch) = follower.next().await {
            for event in &batch.events {
                let ending = event.object.deletion_timestamp().is_some();
                let began = event.old.as_ref().is_none_or(|it| it.deletion_timestamp().is_none());
                if event.kind != EventType::Deleted && ending && began {
                    let this = self.clone();
                    let name = event.object.key().name().to_owned();
                    let task = format!("the namespace {name}");
                    self.tasks.spawn(task, async move { this.remove_namespace(&name).await });
                }
            }
        }
    }

    async fn remove_namespace(&self, name: &str) {
        let scope = self.scope("", "namespaces", name);
        if !self.is_being_deleted(&scope).await {
            return;
        }
        for kind in self.catalog.now().iter().filter(|it| it.namespaced() && it.storage) {
            self.empty(kind, name).await;
        }
        let done = self.writes.change(&scope, false, |current| {
            let mut new = current.clone();
            prepare::child(&mut new, "spec")?.insert("finalizers".to_owned(), json!([]));
            prepare::finalize(&scope.kind, current, &new)
        });
        report(name, done.await.map(|_| ()));
    }

    /// Is it, now? What was being deleted once may be gone, and there again.
    async fn is_being_deleted(&self, scope: &Authorized<Target>) -> bool {
        let mut wait = HOUSEKEEPING_RETRY;
        loop {
            match self.reads.find(scope, Freshness::MostRecent).await {
                Ok(found) => return found.is_some_and(|it| it.deletion_timestamp().is_some()),
                Err(status) if status.code() == 404 => return false,
                // The store is down, or behind.
                Err(_) => sleep(wait).await,
            }
            wait = (wait * 2).min(HOUSEKEEPING_RETRY_MAX);
        }
    }

    /// Deletes all objects of a kind in a namespace or (empty) in all, until none is left.
    async fn empty(&self, kind: &Arc<Kind>, namespace: &str) {
        let scope = Authorized::internal(kind, namespace, "");
        let all = ListOptions {
            selectors: Selectors::default(),
            at: ListAt::MostRecent,
            limit: None,
            timeout: None,
        };
        let mut wait = HOUSEKEEPING_RETRY;
        loop {
            match self.reads.list(&scope, &all).await {
                Ok(list) if list.objects.is_empty() => return,
                // No longer served: there is nothing left to delete.
                Err(status) if status.code() == 404 => return,
                _ => {}
            }
            let options = DeleteOptions::default();
            let deleted = self.writes.delete_collection(&scope, &all, &options).await;
            if let Err(status) = deleted {
                warn!(resource = %kind.resource, namespace, error = status.message(), "not emptied");
            } else if self.reads.list(&scope, &all).await.is_ok_and(|it| it.objects.is_empty()) {
                return;
            }
            // Something holds an object (a finalizer), or the store is down.
            sleep(wait).await;
            wait = (wait * 2).min(HOUSEKEEPING_RETRY_MAX);
        }
    }
}

fn report(name: &str, result: Result<(), Status>) {
    if let Err(status) = result
        && status.code() != 404
    {
        warn!(name, error = status.message(), "cannot be finished");
    }
}

/// Follows all of a resource; overtaken, it begins with the state again.
pub(crate) struct Follower<'a> {
    reads: &'a Reads,
    scope: &'a Authorized<Target>,
    cursor: Option<Cursor>,
    batch: Batch,
    begins: u64,
}

impl<'a> Follower<'a> {
    pub(crate) fn new(reads: &'a Reads, scope: &'a Authorized<Target>) -> Self {
        Self { reads, scope, cursor: None, batch: Batch::default(), begins: 0 }
    }

    /// The events that came last.
    pub(crate) fn batch(&self) -> &Batch {
        &self.batch
    }

    /// How often it began with the state.
    pub(crate) fn begins(&self) -> u64 {
        self.begins
    }

    /// The next events; none if the resource is not served. Nothing is lost if it is dropped before it resolves.
    pub(crate) async fn next(&mut self) -> Option<&Batch> {
        loop {
            if self.cursor.is_none() {
                self.cursor = Some(self.reads.follow(self.scope)?);
                self.begins += 1;
            }
            let cursor = self.cursor.as_mut()?;
            match cursor.read(&mut self.batch, HOUSEKEEPING_BATCH).await {
                Ok(()) => return Some(&self.batch),
                Err(overtaken) => {
                    warn!(%overtaken, "housekeeping begins again");
                    self.cursor = None;
                }
            }
        }
    }
}
