//! Stores to test, and objects to put into them.

use std::future::poll_fn;
use std::sync::Arc;

use masthead_core::{Object, ObjectKey, Resource, Revision, Scope};
use masthead_lab::{Etcd, EtcdOptions, Version};
use masthead_store::{
    Condition, EmbeddedStore, EtcdSettings, EtcdStore, Event, Events, MemoryStore, ResourceName,
    Settings, Store, StoreError, Write,
};
use tempfile::TempDir;

/// A store that may be closed and opened again, if it is of that kind.
pub(crate) struct Lab {
    pub(crate) store: Arc<dyn Store>,
    disk: Option<(TempDir, Settings)>,
    etcd: Option<Etcd>,
}

impl Lab {
    pub(crate) fn memory() -> Self {
        Self { store: Arc::new(MemoryStore::new()), disk: None, etcd: None }
    }

    pub(crate) fn embedded() -> Self {
        Self::embedded_with(Settings::default())
    }

    /// Small files and next to nothing in memory, so that little data comes by every corner.
    pub(crate) fn cramped() -> Self {
        Self::embedded_with(Settings::default().segment_bytes(600).tail_bytes(1500))
    }

    pub(crate) fn embedded_with(settings: Settings) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(EmbeddedStore::open(dir.path(), settings.clone()).unwrap());
        Self { store, disk: Some((dir, settings)), etcd: None }
    }

    /// In an etcd of its own.
    pub(crate) async fn etcd(version: Version) -> Self {
        let etcd = Etcd::start_with(&EtcdOptions { version, ..EtcdOptions::default() });
        let store = Arc::new(open(&etcd).await);
        Self { store, disk: None, etcd: Some(etcd) }
    }

    /// Returns `true` if writes are decided in the order in which they were given.
    pub(crate) fn is_ordered(&self) -> bool {
        self.etcd.is_none()
    }

    /// Closes and opens it, if it outlives that. Nobody else may hold the store.
    pub(crate) async fn reopen(&mut self) {
        if let Some(etcd) = &self.etcd {
            self.store = Arc::new(open(etcd).await);
        }
        if let Some((dir, settings)) = &self.disk {
            self.store = Arc::new(MemoryStore::new());
            self.store = Arc::new(EmbeddedStore::open(dir.path(), settings.clone()).unwrap());
        }
    }
}

async fn open(etcd: &Etcd) -> EtcdStore {
    EtcdStore::open(EtcdSettings::new([etcd.endpoint()])).await.unwrap()
}

/// Two kinds of which one's name is the beginning of the other's.
pub(crate) fn resources() -> [Resource; 2] {
    [Resource::pods(), Resource::new("x", "v1", "pods", "Pod", Scope::Namespaced)]
}

/// Names that a careless order or prefix would confuse.
pub(crate) fn keys() -> Vec<ObjectKey> {
    let pairs = [("a", "x"), ("a", "xy"), ("a-b", "x"), ("ab", "x"), ("b", " "), ("b", "é")];
    pairs.iter().map(|(namespace, name)| ObjectKey::new(namespace, name).unwrap()).collect()
}

/// The body of an object, at a revision or before it has one.
pub(crate) fn body(
    resource: &Resource,
    key: &ObjectKey,
    text: &str,
    at: Option<Revision>,
) -> String {
    let revision = at.map_or(String::new(), |at| format!(r#""resourceVersion":"{at}","#));
    format!(
        r#"{{"kind":"Pod","apiVersion":"{}","metadata":{{{revision}"namespace":"{}","name":"{}"}},"text":"{text}"}}"#,
        resource.api_version(),
        key.namespace(),
        key.name()
    )
}

pub(crate) fn object(resource: &Resource, key: &ObjectKey, text: &str) -> Object {
    Object::parse(resource, body(resource, key, text, None).into()).unwrap()
}

pub(crate) fn pods() -> ResourceName {
    (&Resource::pods()).into()
}

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("shop", name).unwrap()
}

pub(crate) fn put(name: &str, text: &str, condition: Condition) -> Write {
    Write::put(pods(), object(&Resource::pods(), &key(name), text), condition)
}

pub(crate) fn delete(name: &str, condition: Condition) -> Write {
    Write::delete(pods(), key(name), condition)
}

/// One write that has to succeed.
pub(crate) async fn commit(store: &dyn Store, write: Write) -> Revision {
    store.commit(vec![write]).await.remove(0).unwrap().revision
}

/// What a watch tells next; that only time went by is passed over.
pub(crate) async fn next(events: &mut Events) -> Option<Result<Vec<Event>, StoreError>> {
    loop {
        match poll_fn(|cx| events.as_mut().poll_next(cx)).await? {
            Ok(batch) if batch.events.is_empty() => {}
            Ok(batch) => return Some(Ok(batch.events)),
            Err(error) => return Some(Err(error)),
        }
    }
}

/// The events of a watch up to a revision, which there has to be.
pub(crate) async fn events_up_to(events: &mut Events, last: Revision) -> Vec<Event> {
    let mut all = Vec::new();
    while all.last().is_none_or(|event: &Event| event.revision < last) {
        all.extend(next(events).await.unwrap().unwrap());
    }
    all
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Makes a test of each function for each store; those after the line for each of one process only.
macro_rules! on_every_store {
    ($($name:ident)* $(| $($local:ident)*)?) => {
        crate::lab::on_stores_of_one_process! { $($name)* $($($local)*)? }
        mod etcd {
            $(#[test] fn $name() {
                crate::lab::block_on(async {
                    super::$name(crate::lab::Lab::etcd(masthead_lab::Version::Current).await).await;
                });
            })*
        }
        mod etcd_3_4 {
            $(#[test] fn $name() {
                crate::lab::block_on(async {
                    super::$name(crate::lab::Lab::etcd(masthead_lab::Version::Debian34).await).await;
                });
            })*
        }
    };
}
pub(crate) use on_every_store;

macro_rules! on_stores_of_one_process {
    ($($name:ident)*) => {
        mod memory {
            $(#[test] fn $name() { crate::lab::block_on(super::$name(crate::lab::Lab::memory())); })*
        }
        mod embedded {
            $(#[test] fn $name() { crate::lab::block_on(super::$name(crate::lab::Lab::embedded())); })*
        }
        mod cramped {
            $(#[test] fn $name() { crate::lab::block_on(super::$name(crate::lab::Lab::cramped())); })*
        }
    };
}
pub(crate) use on_stores_of_one_process;
