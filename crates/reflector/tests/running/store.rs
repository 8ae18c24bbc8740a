//! A store in memory, watched as a whole.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use masthead_core::{Object, Resource, Revision, Status};
use masthead_reflector::{
    BoxFuture, Failure, ListRequest, Meter, Page, Upstream, UpstreamEvents, UpstreamItem, WatchItem,
};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::object;

#[derive(Clone)]
pub(crate) struct Store(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    revision: u64,
    compacted: u64,
    log: Vec<UpstreamItem>,
    objects: BTreeMap<(String, String), Object>,
    watchers: Vec<mpsc::UnboundedSender<Vec<UpstreamItem>>>,
    watches: u32,
}

impl Store {
    /// Empty, and at revision 1.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Inner { revision: 1, ..Inner::default() })))
    }

    /// Writes an object and tells everybody.
    pub(crate) fn put(&self, resource: &Resource, name: &str) -> Revision {
        let mut inner = self.0.lock();
        inner.revision += 1;
        let revision = Revision(inner.revision);
        let object = object(resource, name, &revision.to_string());
        let key = (resource.to_string(), name.to_owned());
        let item = match inner.objects.insert(key, object.clone()) {
            None => WatchItem::Added(object),
            Some(_) => WatchItem::Modified(object),
        };
        inner.tell(&UpstreamItem::Change { resource: resource.clone(), revision, item });
        revision
    }

    pub(crate) fn delete(&self, resource: &Resource, name: &str) -> Revision {
        let mut inner = self.0.lock();
        inner.revision += 1;
        let revision = Revision(inner.revision);
        let key = (resource.to_string(), name.to_owned());
        let last = inner.objects.remove(&key).unwrap().with_revision(revision);
        let item = WatchItem::Deleted(last);
        inner.tell(&UpstreamItem::Change { resource: resource.clone(), revision, item });
        revision
    }

    /// Ends all watches; with `compact` they cannot be resumed.
    pub(crate) fn cut(&self, compact: bool) {
        let mut inner = self.0.lock();
        inner.watchers.clear();
        if compact {
            inner.revision += 1;
            inner.compacted = inner.revision;
        }
    }

    pub(crate) fn names(&self, resource: &Resource) -> String {
        let inner = self.0.lock();
        let of = inner.objects.iter().filter(|((owner, _), _)| *owner == resource.to_string());
        of.map(|(_, object)| format!("{object:?}")).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn watches(&self) -> u32 {
        self.0.lock().watches
    }
}

impl Inner {
    fn tell(&mut self, item: &UpstreamItem) {
        self.log.push(item.clone());
        self.watchers.retain(|watcher| watcher.send(vec![item.clone()]).is_ok());
    }
}

impl Upstream for Store {
    fn current(&self) -> BoxFuture<Result<Revision, Failure>> {
        let revision = Revision(self.0.lock().revision);
        Box::pin(async move { Ok(revision) })
    }

    fn list(
        &self,
        resource: &Resource,
        _: ListRequest,
        _: Meter,
    ) -> BoxFuture<Result<Page, Failure>> {
        let inner = self.0.lock();
        let of = inner.objects.iter().filter(|((owner, _), _)| *owner == resource.to_string());
        let objects = of.map(|(_, object)| object.clone()).collect();
        let resource_version = inner.revision.to_string();
        let page = Page { objects, resource_version, ..Page::default() };
        Box::pin(async move { Ok(page) })
    }

    fn watch(&self, from: Revision) -> BoxFuture<Result<UpstreamEvents, Failure>> {
        let mut inner = self.0.lock();
        inner.watches += 1;
        if from.0 < inner.compacted {
            return Box::pin(async { Err(Status::of_response(410, b"").into()) });
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        let missed = inner.log.iter().filter(
            |item| matches!(item, UpstreamItem::Change { revision, .. } if *revision > from),
        );
        sender.send(missed.cloned().collect()).unwrap();
        inner.watchers.push(sender);
        Box::pin(async move { Ok(Box::pin(Watch(receiver)) as UpstreamEvents) })
    }
}

struct Watch(mpsc::UnboundedReceiver<Vec<UpstreamItem>>);

impl Stream for Watch {
    type Item = Result<Vec<UpstreamItem>, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|batch| batch.map(Ok))
    }
}
