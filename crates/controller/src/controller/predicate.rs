//! Which changes of an object matter.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use masthead_informer::{Entry, Event};
use serde::Deserialize;

type Judge<K> = dyn Fn(&Entry<K>, &Entry<K>) -> bool + Send + Sync;

/// Says of an update whether it matters: from what it was to what it is. What comes, goes or is looked at
/// once more always does, and so does an update from something unknown. Of objects that are held decoded only
/// the head is known here: their generations and annotations count as changed. An update for which it panics
/// matters, and the panic is logged and counted.
pub struct Predicate<K>(Arc<Judge<K>>);

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    generation: Option<i64>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Whole {
    metadata: Metadata,
}

/// None if the JSON is not held.
fn metadata<K>(entry: &Entry<K>) -> Option<Metadata> {
    if entry.object().is_held() {
        return serde_json::from_slice(&entry.json().ok()?).ok().map(|it: Whole| it.metadata);
    }
    serde_json::from_slice(&entry.object().metadata()).ok()
}

impl<K: 'static> Predicate<K> {
    /// What a function says.
    pub fn new(judge: impl Fn(&Entry<K>, &Entry<K>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(judge))
    }

    /// The specification changed, or the object is about to be deleted. An object without a generation has
    /// none that could stay the same.
    pub fn generation() -> Self {
        Self::new(|old, new| {
            let generation = |entry| metadata(entry).and_then(|it| it.generation);
            let (before, after) = (generation(old), generation(new));
            before != after
                || after.is_none()
                || old.deletion_timestamp() != new.deletion_timestamp()
        })
    }

    /// The labels changed.
    pub fn labels() -> Self {
        Self::new(|old, new| !old.labels().eq(new.labels()))
    }

    /// The annotations changed.
    pub fn annotations() -> Self {
        Self::new(|old, new| {
            let annotations = |entry| metadata(entry).map(|it| it.annotations);
            let after = annotations(new);
            after.is_none() || annotations(old) != after
        })
    }

    /// This or the other.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::new(move |old, new| (self.0)(old, new) || (other.0)(old, new))
    }

    pub(super) fn matters(&self, event: &Event<K>) -> bool {
        match event {
            Event::Updated { old: Some(old), new, resync: false } => (self.0)(old, new),
            _ => true,
        }
    }
}

impl<K> Clone for Predicate<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> fmt::Debug for Predicate<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Predicate").finish_non_exhaustive()
    }
}
