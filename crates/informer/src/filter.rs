//! What a handler's filter chooses, also if it panics.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use masthead_core::{Object, ObjectKey, Resource, contain, planted};
use parking_lot::Mutex;
use tracing::error;

use crate::Entry;
use crate::entry::Reading;
use crate::limits::{FILTER_PANICS_KEPT, FILTER_TRIES};

/// Whether a reader sees an object.
pub(crate) type Sees<K> = Arc<dyn Fn(&Entry<K>) -> bool + Send + Sync>;

/// The filter of a handler on one cache. One that panics chooses the object: to be called once too often is
/// better than to miss something.
pub(crate) struct Filter<K> {
    pub(crate) function: Option<Sees<K>>,
    pub(crate) resource: Resource,
    pub(crate) reading: Arc<Reading>,
    pub(crate) panics: Arc<FilterPanics>,
}

impl<K> Filter<K> {
    /// Returns `true` if the handler is to hear of a new state of an object.
    pub(crate) fn chooses(&self, object: &Object) -> bool {
        let Some(function) = &self.function else { return true };
        self.panics.chose(object)
            || self.call(function, object).unwrap_or_else(|| {
                self.panics.remember(object);
                !planted::on("filter_panic_hides_the_object")
            })
    }

    /// Returns `true` if the handler heard of a state of an object that it has passed. A filter that panics now
    /// said something then, or the state would be remembered: so it is called again.
    pub(crate) fn chose(&self, object: &Object) -> bool {
        let Some(function) = &self.function else { return true };
        let mut tries = (0..FILTER_TRIES).map(|_| self.call(function, object));
        self.panics.chose(object) || tries.find_map(|said| said).unwrap_or(true)
    }

    /// What the filter says; none if it panics.
    fn call(&self, function: &Sees<K>, object: &Object) -> Option<bool> {
        let entry = Entry::new(object.clone(), &self.reading);
        let said = contain(|| function(&entry)).inspect_err(|panic| {
            self.panics.count.fetch_add(1, Ordering::Relaxed);
            let (handler, resource, key) = (&self.panics.handler, &self.resource, object.key());
            error!(handler, %resource, %key, %panic, "filter panicked");
        });
        said.ok()
    }
}

/// Panics of a handler's filter.
pub(crate) struct FilterPanics {
    handler: String,
    count: AtomicU64,
    /// Whether any state is remembered.
    any: AtomicBool,
    chosen: Mutex<Chosen>,
}

/// States of objects that were chosen by a panic, the oldest first. The filter is not called for them again:
/// if it said no then, nothing would say that the object changed or left.
#[derive(Default)]
struct Chosen {
    states: BTreeSet<State>,
    order: VecDeque<State>,
}

/// An object's key and resource version.
type State = (ObjectKey, Box<str>);

fn state(object: &Object) -> State {
    (object.key().clone(), object.resource_version().into())
}

impl FilterPanics {
    pub(crate) fn new(handler: &str) -> Self {
        let (count, any) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { handler: handler.to_owned(), count, any, chosen: Mutex::default() }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns `true` if this state of the object was chosen by a panic.
    fn chose(&self, object: &Object) -> bool {
        self.any.load(Ordering::Acquire) && self.chosen.lock().states.contains(&state(object))
    }

    /// Remembers that the state of the object was chosen. Beyond the bound the oldest is forgotten.
    fn remember(&self, object: &Object) {
        if planted::on("filter_panic_not_remembered") {
            return;
        }
        let mut chosen = self.chosen.lock();
        if chosen.states.insert(state(object)) {
            chosen.order.push_back(state(object));
        }
        self.any.store(true, Ordering::Release);
        if chosen.order.len() > FILTER_PANICS_KEPT
            && let Some(oldest) = chosen.order.pop_front()
        {
            chosen.states.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(n: usize) -> Object {
        let body = format!(
            r#"{{"metadata":{{"name":"n{n}","namespace":"a","uid":"u","resourceVersion":"7"}}}}"#
        );
        Object::parse(&Resource::pods(), body.into()).unwrap()
    }

    #[test]
    fn as_many_chosen_states_as_may_be_are_kept_and_one_more_lets_the_oldest_go() {
        let panics = FilterPanics::new("mine");
        (0..FILTER_PANICS_KEPT).for_each(|n| panics.remember(&object(n)));
        panics.remember(&object(0));
        assert!(panics.chose(&object(0)) && panics.chose(&object(FILTER_PANICS_KEPT - 1)));
        panics.remember(&object(FILTER_PANICS_KEPT));
        assert!(!panics.chose(&object(0)) && panics.chose(&object(FILTER_PANICS_KEPT)));
        let chosen = panics.chosen.lock();
        assert_eq!(
            (chosen.states.len(), chosen.order.len()),
            (FILTER_PANICS_KEPT, FILTER_PANICS_KEPT)
        );
    }
}
