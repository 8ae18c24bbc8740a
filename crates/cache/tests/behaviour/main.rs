//! What readers of a cache may rely on, one promise a test.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod cursors;
mod indexes;
mod waiting;
mod window;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use masthead_cache::{Cache, Config, HistoryLimits, Interest, Writer};
use masthead_core::{
    LabelSelector, Mutation, Object, ObjectKey, Resource, Revision, Selectors, Time,
};

/// Counts how often it was woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Wakes {
    fn new() -> (Arc<Self>, Waker) {
        let wakeups = Arc::new(Self::default());
        (wakeups.clone(), wakeups.into())
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn poll<T>(future: impl Future<Output = T>, waker: &Waker) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(waker))
}

fn pod(name: &str, labels: &str, rv: u64) -> Object {
    pod_with_uid(name, labels, rv, name)
}

fn pod_with_uid(name: &str, labels: &str, rv: u64, uid: &str) -> Object {
    let body = format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"ns","uid":"{uid}","resourceVersion":"{rv}","labels":{{{labels}}}}}}}"#
    );
    Object::parse(&Resource::pods(), body.into()).unwrap()
}

fn put(object: Object) -> Mutation {
    Mutation::Put { revision: object.revision(), object }
}

fn delete(name: &str, rv: u64) -> Mutation {
    let key = ObjectKey::new("ns", name).unwrap();
    Mutation::Delete { revision: Revision(rv), key, last: None }
}

fn cache(history: HistoryLimits) -> (Writer, Cache) {
    let (mut writer, cache) = Cache::new(Config { history, ..Config::default() });
    writer.replace(Vec::new(), Revision(1), Time(0)).unwrap();
    (writer, cache)
}

fn keeping(changes: usize) -> HistoryLimits {
    HistoryLimits { changes, ..HistoryLimits::default() }
}

fn labelled(selector: &str) -> Interest {
    let labels = LabelSelector::parse(selector).unwrap();
    Interest::all().with(Selectors { labels, ..Selectors::default() })
}
