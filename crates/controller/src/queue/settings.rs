//! What a queue is told when it is made, and with each key.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use foldhash::fast::RandomState;
use masthead_core::{ObjectKey, Panic};

use super::{Limiter, MaxOf};
use crate::limits::{AGING_TURNS, AGING_TURNS_MIN, QUEUE_KEYS_MAX};

/// How urgent a key is. Nothing starves: see [`Settings::aging`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Priority {
    /// What was there at the start, and what is looked at once more without a reason.
    Low,
    /// What has changed.
    #[default]
    Normal,
    /// What somebody waits for.
    High,
}

impl Priority {
    pub(super) const ALL: [Self; 3] = [Self::Low, Self::Normal, Self::High];
}

/// Why a key is worked on, for logs and traces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Trigger(pub &'static str);

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// How a key is added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Add {
    /// How urgent it is. A key that waits becomes as urgent as the most urgent of its adds, and then waits
    /// behind those that were so before.
    pub priority: Priority,
    /// Why. Of a key that waits the first reason is kept.
    pub trigger: Trigger,
}

impl Default for Add {
    fn default() -> Self {
        Self { priority: Priority::Normal, trigger: Trigger("add") }
    }
}

impl From<Priority> for Add {
    fn from(priority: Priority) -> Self {
        Self { priority, ..Self::default() }
    }
}

/// Why a key was not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The queue was shut down.
    #[error("the queue was shut down")]
    ShutDown,
    /// It knows as many keys as it may.
    #[error("the queue is full: it knows {capacity} keys")]
    Full {
        /// So many.
        capacity: usize,
    },
}

pub(super) type Class<K> = Box<dyn Fn(&K) -> u64 + Send>;

/// A function of the user that a queue calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueueFunction {
    /// Says how long a key that failed waits.
    Limiter,
    /// Says to which class a key belongs.
    Class,
}

/// Is called with the panic of a function, and the key that the function was called for. It must not use the
/// queue, whose lock is held.
pub(super) type OnPanic<K> = Box<dyn Fn(QueueFunction, &K, &Panic) + Send>;

/// How a queue behaves.
pub struct Settings<K> {
    pub(super) capacity: usize,
    pub(super) aging: u32,
    pub(super) limiter: Box<dyn Limiter<K>>,
    pub(super) class: Option<Class<K>>,
    pub(super) on_panic: OnPanic<K>,
}

impl<K: 'static> Default for Settings<K> {
    fn default() -> Self {
        let limiter = Box::new(MaxOf::default());
        let on_panic = Box::new(|function, _: &K, panic: &Panic| log_panic(function, panic));
        Self { capacity: QUEUE_KEYS_MAX, aging: AGING_TURNS, limiter, class: None, on_panic }
    }
}

impl<K> Settings<K> {
    /// Keys that the queue may know: waiting, delayed, worked on or remembered for their failures. The
    /// failures are forgotten first, the oldest before the others; then adds are refused, and counted.
    #[must_use]
    pub fn capacity(mut self, keys: usize) -> Self {
        self.capacity = keys.clamp(1, u32::MAX as usize - 1);
        self
    }

    /// How often a priority may be passed over while something waits in it: then it has a turn, so that
    /// the first of each priority waits for at most `turns` + 2 others (R30). At least 3.
    #[must_use]
    pub fn aging(mut self, turns: u32) -> Self {
        self.aging = turns.max(AGING_TURNS_MIN);
        self
    }

    /// How long keys that fail wait. If it panics, that is logged and counted, and the key waits as [`Exponential`](super::Exponential)
    /// says by default.
    #[must_use]
    pub fn limiter(mut self, limiter: impl Limiter<K>) -> Self {
        self.limiter = Box::new(limiter);
        self
    }

    /// Fair shares: within a priority the classes of keys take turns, however many keys each of them has. A key for
    /// which the function panics is in one class with all such keys, and that is logged and counted.
    #[must_use]
    pub fn fair_by<C: Hash>(mut self, class: impl Fn(&K) -> C + Send + 'static) -> Self {
        let hasher = RandomState::default();
        self.class = Some(Box::new(move |key| hasher.hash_one(class(key))));
        self
    }
}

#[cfg(not(shuttle))]
impl<K> Settings<K> {
    /// Calls a function with each panic instead of logging it.
    pub(crate) fn on_panic(
        mut self,
        report: impl Fn(QueueFunction, &K, &Panic) + Send + 'static,
    ) -> Self {
        self.on_panic = Box::new(report);
        self
    }
}

#[cfg(not(shuttle))]
fn log_panic(function: QueueFunction, panic: &Panic) {
    tracing::error!(?function, %panic, "function of a queue panicked");
}

#[cfg(shuttle)]
fn log_panic(_: QueueFunction, _: &Panic) {}

impl Settings<ObjectKey> {
    /// Fair shares for namespaces.
    #[must_use]
    pub fn fair_by_namespace(mut self) -> Self {
        let hasher = RandomState::default();
        self.class = Some(Box::new(move |key| hasher.hash_one(key.namespace())));
        self
    }
}

impl<K> fmt::Debug for Settings<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Settings");
        all.field("capacity", &self.capacity).field("aging", &self.aging);
        all.field("fair", &self.class.is_some()).finish_non_exhaustive()
    }
}
