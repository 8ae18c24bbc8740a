//! Objects whose reconcile cannot go well.

use std::collections::BTreeMap;
use std::time::Duration;

use masthead_core::{ObjectKey, Revision};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits::QUARANTINED_MAX;

/// An object that is not reconciled until it changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quarantined {
    /// Which.
    pub key: ObjectKey,
    /// Why.
    pub error: String,
    /// For how long.
    pub since: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Quarantine(Mutex<BTreeMap<ObjectKey, Held>>);

#[derive(Debug)]
struct Held {
    error: String,
    /// As of which it cannot go well.
    revision: Option<Revision>,
    since: Instant,
}

impl Quarantine {
    /// Holds an object in the state that was judged. Beyond the bound another one is let go, and will be
    /// judged again when something happens to it.
    pub(super) fn hold(&self, key: &ObjectKey, error: String, revision: Option<Revision>) {
        let mut held = self.0.lock();
        if held.len() >= QUARANTINED_MAX && !held.contains_key(key) {
            held.pop_first();
        }
        held.insert(key.clone(), Held { error, revision, since: Instant::now() });
    }

    /// Is it held in this state? One that has changed is let go.
    pub(super) fn holds(&self, key: &ObjectKey, revision: Option<Revision>) -> bool {
        let mut held = self.0.lock();
        let Some(it) = held.get(key) else { return false };
        // What it wrote itself before it gave up may be newer than what is cached.
        let same = match (it.revision, revision) {
            (Some(judged), Some(now)) => now <= judged,
            (judged, now) => judged == now,
        };
        if !same {
            held.remove(key);
        }
        same
    }

    pub(super) fn release(&self, key: &ObjectKey) -> bool {
        self.0.lock().remove(key).is_some()
    }

    pub(super) fn list(&self) -> Vec<Quarantined> {
        let listed = |(key, it): (&ObjectKey, &Held)| {
            let (key, error, since) = (key.clone(), it.error.clone(), it.since.elapsed());
            Quarantined { key, error, since }
        };
        self.0.lock().iter().map(listed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_may_be_are_held_and_one_more_lets_another_go() {
        let quarantine = Quarantine::default();
        let key = |number: usize| ObjectKey::new("default", &format!("o{number:06}")).unwrap();
        let hold = |number| quarantine.hold(&key(number), String::new(), None);
        (0..QUARANTINED_MAX).for_each(hold);
        assert_eq!(quarantine.list().len(), QUARANTINED_MAX);
        assert!(quarantine.holds(&key(0), None));
        hold(QUARANTINED_MAX);
        assert_eq!(quarantine.list().len(), QUARANTINED_MAX);
        assert!(!quarantine.holds(&key(0), None) && quarantine.holds(&key(QUARANTINED_MAX), None));
    }
}
