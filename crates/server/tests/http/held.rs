//! A store whose commits wait until the test lets them go: writes that are under way for as long as needed.

use std::sync::Arc;

use masthead_core::{ObjectKey, Revision};
use masthead_store::{
    BoxFuture, CommitError, Committed, Events, Health, MemoryStore, Range, RangePage, ResourceName,
    Store, StoreError, Value, Write,
};
use tokio::sync::watch;

/// A store in memory with a gate in front of its commits.
#[derive(Default)]
pub(crate) struct HeldStore {
    store: Arc<MemoryStore>,
    held: watch::Sender<bool>,
}

impl HeldStore {
    /// Commits wait from now on.
    pub(crate) fn hold(&self) {
        self.held.send_replace(true);
    }

    /// Commits that wait go on, and later ones do not wait.
    pub(crate) fn release(&self) {
        self.held.send_replace(false);
    }
}

impl Store for HeldStore {
    fn current(&self) -> BoxFuture<Result<Revision, StoreError>> {
        self.store.current()
    }

    fn oldest(&self) -> Revision {
        self.store.oldest()
    }

    fn get(
        &self,
        resource: &ResourceName,
        key: &ObjectKey,
    ) -> BoxFuture<Result<Option<Value>, StoreError>> {
        self.store.get(resource, key)
    }

    fn range(&self, range: Range) -> BoxFuture<Result<RangePage, StoreError>> {
        self.store.range(range)
    }

    fn commit(&self, writes: Vec<Write>) -> BoxFuture<Vec<Result<Committed, CommitError>>> {
        let mut held = self.held.subscribe();
        if !*held.borrow() {
            return self.store.commit(writes);
        }
        let store = self.store.clone();
        Box::pin(async move {
            held.wait_for(|held| !held).await.expect("the store is there as long as the test");
            store.commit(writes).await
        })
    }

    fn watch(&self, from: Revision) -> Result<Events, StoreError> {
        self.store.watch(from)
    }

    fn compact(&self, before: Revision) -> BoxFuture<Result<Revision, StoreError>> {
        self.store.compact(before)
    }

    fn health(&self) -> Health {
        self.store.health()
    }
}
