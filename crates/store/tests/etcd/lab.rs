//! Stores in etcd, and objects to put into them.

use std::future::poll_fn;
use std::time::Duration;

use masthead_core::{Object, ObjectKey, Resource, Revision};
use masthead_store::{
    Batch, CommitError, Committed, Condition, EtcdSettings, EtcdStore, Events, ResourceName, Store,
    StoreError, Write,
};
use tokio::time::timeout;

/// Longer than anything that a test waits for takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(PATIENCE, test).await.expect("it comes to an end") });
}

pub(crate) async fn open(endpoints: impl IntoIterator<Item = String>) -> EtcdStore {
    EtcdStore::open(EtcdSettings::new(endpoints)).await.unwrap()
}

pub(crate) fn pods() -> ResourceName {
    (&Resource::pods()).into()
}

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("shop", name).unwrap()
}

pub(crate) fn put(name: &str, text: &str, condition: Condition) -> Write {
    let body = format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"namespace":"shop","name":"{name}"}},"text":"{text}"}}"#
    );
    let object = Object::parse(&Resource::pods(), body.into()).unwrap();
    Write::put(pods(), object, condition)
}

pub(crate) async fn try_commit(store: &dyn Store, write: Write) -> Result<Committed, CommitError> {
    store.commit(vec![write]).await.remove(0)
}

pub(crate) async fn commit(store: &dyn Store, write: Write) -> Revision {
    try_commit(store, write).await.unwrap().revision
}

pub(crate) async fn text_of(store: &dyn Store, name: &str) -> Option<String> {
    let value = store.get(&pods(), &key(name)).await.unwrap()?;
    Some(String::from_utf8(value.body().to_vec()).unwrap())
}

pub(crate) async fn next(events: &mut Events) -> Result<Batch, StoreError> {
    poll_fn(|cx| events.as_mut().poll_next(cx)).await.expect("it does not end without a word")
}

/// The revisions of all events of a watch until it has reached one.
pub(crate) async fn revisions_up_to(events: &mut Events, last: Revision) -> Vec<u64> {
    let mut all = Vec::new();
    loop {
        let batch = next(events).await.unwrap();
        all.extend(batch.events.iter().map(|event| event.revision.0));
        if batch.reached >= last {
            return all;
        }
    }
}
