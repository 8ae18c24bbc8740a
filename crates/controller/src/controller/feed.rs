//! From events to keys.

use std::future::poll_fn;
use std::task::Poll;

use futures_core::Stream;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use masthead_core::{ObjectKey, Panic, Resource, Scope, contain, planted};
use masthead_informer::{Entry, Event, Subscription};

use super::panics::{UserCalls, UserFunction};
use super::predicate::Predicate;
use crate::queue::{Add, Priority, Refused, Trigger, WorkQueue};

/// Puts keys into the queue until it is shut down.
pub(super) type Feed = BoxFuture<'static, FeedEnd>;

/// Why a feed ended.
#[derive(Debug)]
pub(super) enum FeedEnd {
    /// A stream of the user is over, as it may be.
    Over,
    /// Events of an informer are over, as they must not be.
    Returned,
    /// A stream of the user panicked.
    Panicked(Panic),
}

/// Adds a key. A queue that is full is waited for: the events are read later then, and nothing is lost (R20).
async fn add(queue: &WorkQueue<ObjectKey>, key: ObjectKey, add: Add) {
    while let Err(Refused::Full { .. }) = queue.add_with(key.clone(), add) {
        queue.room().await;
    }
}

/// What was there before, and what is only looked at once more, can wait (R30).
fn priority<K>(event: &Event<K>) -> Priority {
    match event {
        Event::Added { initial: true, .. } | Event::Updated { resync: true, .. } => Priority::Low,
        _ => Priority::Normal,
    }
}

/// The controller's own objects.
pub(super) async fn own<K: Send + Sync + 'static>(
    mut events: Subscription<K>,
    predicate: Option<Predicate<K>>,
    queue: WorkQueue<ObjectKey>,
    calls: UserCalls,
) -> FeedEnd {
    let matters = |predicate: &Predicate<K>, event: &Event<K>| {
        let key = Some(event.key());
        let judged = calls.contain(UserFunction::Predicate, key, || predicate.matters(event));
        // To be reconciled once too often is better than to be missed.
        judged.unwrap_or(!planted::on("predicate_panic_hides_the_change"))
    };
    while let Some(event) = events.next().await {
        if predicate.as_ref().is_some_and(|predicate| !matters(predicate, &event)) {
            continue;
        }
        let trigger = Trigger(match &event {
            Event::Added { initial: true, .. } => "initial",
            Event::Added { .. } => "added",
            Event::Updated { resync: true, .. } => "resync",
            Event::Updated { .. } => "updated",
            Event::Deleted { .. } => "deleted",
        });
        add(&queue, event.key().clone(), Add { priority: priority(&event), trigger }).await;
        if planted::on("feed_returns") {
            break;
        }
    }
    FeedEnd::Returned
}

/// Objects that concern others: as they were and as they are.
pub(super) async fn mapped<W: Send + Sync + 'static>(
    mut events: Subscription<W>,
    map: impl Fn(&Entry<W>) -> Vec<ObjectKey> + Send,
    trigger: Trigger,
    queue: WorkQueue<ObjectKey>,
    calls: UserCalls,
) -> FeedEnd {
    // A state for which it panics has no keys.
    let keys_of = move |state: &Entry<W>| {
        let keys = calls.contain(UserFunction::Mapper, Some(state.key()), || map(state));
        keys.unwrap_or_default()
    };
    while let Some(event) = events.next().await {
        let how = Add { priority: priority(&event), trigger };
        let mut keys = event.entry().map(&keys_of).unwrap_or_default();
        if let Event::Updated { old: Some(old), resync: false, .. } = &event {
            keys.extend(keys_of(old));
        }
        for key in keys {
            add(&queue, key, how).await;
        }
    }
    FeedEnd::Returned
}

/// Keys that somebody else knows of.
pub(super) async fn triggered(
    mut keys: impl Stream<Item = ObjectKey> + Unpin + Send,
    queue: WorkQueue<ObjectKey>,
    calls: UserCalls,
) -> FeedEnd {
    loop {
        let next = poll_fn(|cx| match contain(|| keys.poll_next_unpin(cx)) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        });
        match next.await {
            Ok(Some(key)) => {
                let how = Add { trigger: Trigger("trigger"), ..Add::default() };
                add(&queue, key, how).await;
            }
            Ok(None) => return FeedEnd::Over,
            Err(panic) => {
                calls.report(UserFunction::Trigger, None, &panic);
                return FeedEnd::Panicked(panic);
            }
        }
    }
}

/// The object of a resource that manages this one.
pub(super) fn manager_of<W>(owner: &Resource, entry: &Entry<W>) -> Option<ObjectKey> {
    let group = |api_version: &str| match api_version.split_once('/') {
        Some((group, _)) => group == owner.group(),
        None => owner.group().is_empty(),
    };
    let manages = entry.owners().find(|it| it.controller)?;
    if manages.kind != owner.kind() || !group(manages.api_version) {
        return None;
    }
    let namespace = if owner.scope() == Scope::Namespaced { entry.namespace() } else { "" };
    ObjectKey::new(namespace, manages.name).ok()
}
