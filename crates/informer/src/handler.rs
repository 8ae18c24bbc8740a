//! Those who are called.

use std::future::Future;
use std::sync::Arc;

use futures_util::StreamExt;
use masthead_core::{Object, ObjectKey, Panic, Resource, contain_future, planted};
use tokio::task::JoinHandle;
use tracing::error;

use crate::subscriber::{HandlerReport, Subscriber};
use crate::tasks::Tasks;
use crate::{Event, Subscription};

/// Is called for every event, one after the other. Any `FnMut(Event<K>)` that gives a future is one.
///
/// It may be as slow as it has to be: what it does not take in time it gets as one update for each key
/// (R20). A call that panics is counted and logged, and the next event follows (R21). A task of a handler that ends by
/// itself stands in the report: see [`Factory::task_ended`](crate::Factory::task_ended). Work that blocks
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
    task: JoinHandle<Option<()>>,
}

impl HandlerHandle {
    pub(crate) fn spawn<K: Send + Sync + 'static>(
        events: Subscription<K>,
        handler: impl Handler<K>,
        tasks: &Arc<Tasks>,
        resource: &Resource,
    ) -> Self {
        let subscriber = events.subscriber().clone();
        let (name, of) = (subscriber.name(), resource.clone());
        let name = format!("handler {name} of {resource}");
        let noted = subscriber.clone();
        let task = async move {
            run(events, handler, &of).await;
            // Events never end by themselves: only its handle ends a handler.
            None
        };
        let task = tasks.spawn(name, task, move |ended| noted.set_ended(ended.reason.clone()));
        Self { subscriber, task }
    }

    /// Ends it. The call that is under way is cancelled where it waits.
    pub fn remove(self) {
        self.task.abort();
    }

    /// Waits until it has dealt with everything that was there when it began (R24). Does not return if its
    /// task ended unexpectedly before that: see [`HandlerReport::ended`].
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

async fn run<K: Send + Sync + 'static>(
    mut events: Subscription<K>,
    mut handler: impl Handler<K>,
    resource: &Resource,
) {
    let subscriber = events.subscriber().clone();
    while let Some(event) = events.next().await {
        let told = Told::of(&event);
        let report = |panic: &Panic| {
            subscriber.panicked();
            let (handler, key) = (subscriber.name(), told.key());
            error!(handler, %resource, %key, %panic, "handler panicked");
        };
        let call = contain_future(async { handler.handle(event).await }, report);
        if let Err(panic) = call.await {
            if planted::on("panic_ends_handler") {
                return;
            }
            report(&panic);
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
