//! A store whose commits wait until the test lets them go, or are refused: writes that are under way for as long
//! as needed, and a disk that is full.

use std::future::ready;
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
    full: watch::Sender<Option<Arc<str>>>,
    /// Commits that were refused.
    refused: watch::Sender<usize>,
}

impl HeldStore {
    /// Commits wait from now on.
    pub(crate) fn hold(&self) {
        self.held.send_replace(true);
    }

    /// Commits are refused from now on if there is a reason.
    pub(crate) fn set_full(&self, why: Option<&str>) {
        self.full.send_replace(why.map(Into::into));
    }

    /// Waits until so many commits have been refused.
    pub(crate) async fn refused(&self, count: usize) {
        let mut refused = self.refused.subscribe();
        refused.wait_for(|refused| *refused >= count).await.expect("the store is there");
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
        if let Some(why) = &*self.full.borrow() {
            self.refused.send_modify(|refused| *refused += 1);
            let refusals = writes.iter().map(|_| Err(CommitError::Full { why: why.clone() }));
            return Box::pin(ready(refusals.collect()));
        }
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
        match &*self.full.borrow() {
            Some(why) => Health::ReadOnly { why: why.clone() },
            None => self.store.health(),
        }
    }
}
