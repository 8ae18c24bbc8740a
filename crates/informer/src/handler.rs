//! Those who are called.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use masthead_core::{Object, ObjectKey};
use tokio::task::JoinHandle;

use crate::subscriber::{HandlerReport, Subscriber};
use crate::{Event, Subscription};

/// Is called for every event, one after the other. Any `FnMut(Event<K>)` that gives a future is one.
///
/// It may be as slow as it has to be: what it does not take in time it gets as one update for each key
/// (R20). A call that panics is counted and logged, and the next event follows (R21). Work that blocks
/// belongs onto [`tokio::task::spawn_blocking`] or into a work queue.
pub trait Handler<K>: Send + 'static {
    /// One event.
    fn handle(&mut self, event: Event<K>) -> impl Future<Output = ()> + Send;
}

impl<K, F, R> Handler<K> for F
where
    F: FnMut(Event<K>) -> R + Send + 'static,
    R: Future<Output = ()> + Send,
{
    fn handle(&mut self, event: Event<K>) -> impl Future<Output = ()> + Send {
        self(event)
    }
}

/// A handler that was added. Dropping this leaves it where it is.
#[derive(Debug)]
pub struct HandlerHandle {
    subscriber: Arc<Subscriber>,
    task: JoinHandle<()>,
}

impl HandlerHandle {
    pub(crate) fn spawn<K: Send + Sync + 'static>(
        events: Subscription<K>,
        handler: impl Handler<K>,
    ) -> Self {
        let subscriber = events.subscriber().clone();
        Self { task: tokio::spawn(run(events, handler)), subscriber }
    }

    /// Ends it. The call that is under way is cancelled where it waits.
    pub fn remove(self) {
        self.task.abort();
    }

    /// Waits until it has dealt with everything that was there when it began (R24).
    pub async fn synced(&self) {
        let mut synced = self.subscriber.synced();
        // The sender lives in the subscriber, which is held.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// How it gets on.
    pub fn report(&self) -> HandlerReport {
        self.subscriber.report()
    }
}

async fn run<K: Send + Sync + 'static>(mut events: Subscription<K>, mut handler: impl Handler<K>) {
    let subscriber = events.subscriber().clone();
    while let Some(event) = events.next().await {
        let told = Told::of(&event);
        let call = AssertUnwindSafe(async { handler.handle(event).await });
        if call.catch_unwind().await.is_err() {
            subscriber.panicked();
            if masthead_core::planted::on("panic_ends_handler") {
                return;
            }
            tracing::error!(key = %told.key(), handler = ?subscriber, "handler panicked");
        }
    }
}

/// What an event was about. Of an object that is at hand the key is not cloned: that would fetch a line of
/// memory for each event.
enum Told {
    Object(Object),
    Key(ObjectKey),
}

impl Told {
    fn of<K>(event: &Event<K>) -> Self {
        match event.entry() {
            Some(entry) => Self::Object(entry.object().clone()),
            None => Self::Key(event.key().clone()),
        }
    }

    fn key(&self) -> &ObjectKey {
        match self {
            Self::Object(object) => object.key(),
            Self::Key(key) => key,
        }
    }
}
