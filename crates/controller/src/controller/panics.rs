//! Functions of the user that a controller calls. A panic in one ends that call and nothing else.

use std::sync::Arc;

use masthead_core::{ObjectKey, Panic, contain};
use tracing::error;

use super::metrics::Counts;
use crate::queue::QueueFunction;

/// How often functions of the user panicked, by what they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ControllerPanics {
    /// Reconciles, also in what they drop when they are cancelled. They are tried again.
    pub reconciles: u64,
    /// Predicates. The change counted as one that matters.
    pub predicates: u64,
    /// Functions that map objects to keys. They gave no keys for that state of the object.
    pub mappers: u64,
    /// Streams of keys. Such a stream is over, and the controller ends with an error.
    pub triggers: u64,
    /// Limiters of the queue. The key waited as by default.
    pub limiters: u64,
    /// Functions of classes of the queue. The key was in one class with all such keys.
    pub classes: u64,
}

/// What a function of the user is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UserFunction {
    Reconcile,
    Predicate,
    Mapper,
    Trigger,
    Limiter,
    Class,
}

impl UserFunction {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Reconcile => "reconcile",
            Self::Predicate => "predicate",
            Self::Mapper => "mapper",
            Self::Trigger => "trigger",
            Self::Limiter => "limiter",
            Self::Class => "class",
        }
    }
}

impl From<QueueFunction> for UserFunction {
    fn from(function: QueueFunction) -> Self {
        match function {
            QueueFunction::Limiter => Self::Limiter,
            QueueFunction::Class => Self::Class,
        }
    }
}

impl ControllerPanics {
    pub(super) fn add(&mut self, function: UserFunction) {
        *match function {
            UserFunction::Reconcile => &mut self.reconciles,
            UserFunction::Predicate => &mut self.predicates,
            UserFunction::Mapper => &mut self.mappers,
            UserFunction::Trigger => &mut self.triggers,
            UserFunction::Limiter => &mut self.limiters,
            UserFunction::Class => &mut self.classes,
        } += 1;
    }

    /// Each count with the name of its function, as in metrics.
    pub(super) fn iter(self) -> impl Iterator<Item = (&'static str, u64)> {
        let Self { reconciles, predicates, mappers, triggers, limiters, classes } = self;
        let counts = [
            (UserFunction::Reconcile, reconciles),
            (UserFunction::Predicate, predicates),
            (UserFunction::Mapper, mappers),
            (UserFunction::Trigger, triggers),
            (UserFunction::Limiter, limiters),
            (UserFunction::Class, classes),
        ];
        counts.into_iter().map(|(function, count)| (function.as_str(), count))
    }
}

/// Calls functions of the user for a controller. Clones are the same.
#[derive(Clone)]
pub(super) struct UserCalls {
    controller: Arc<str>,
    counts: Arc<Counts>,
}

impl UserCalls {
    pub(super) fn new(controller: &str, counts: &Arc<Counts>) -> Self {
        Self { controller: controller.into(), counts: counts.clone() }
    }

    /// Calls a function. A panic is logged, counted and returned.
    pub(super) fn contain<T>(
        &self,
        function: UserFunction,
        key: Option<&ObjectKey>,
        call: impl FnOnce() -> T,
    ) -> Result<T, Panic> {
        contain(call).inspect_err(|panic| self.report(function, key, panic))
    }

    /// Logs and counts a panic.
    pub(super) fn report(&self, function: UserFunction, key: Option<&ObjectKey>, panic: &Panic) {
        self.counts.panicked(function);
        let (controller, key) = (&*self.controller, key.map(tracing::field::display));
        error!(controller, key, function = function.as_str(), %panic, "user function panicked");
    }
}
