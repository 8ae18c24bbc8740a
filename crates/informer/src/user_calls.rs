//! Functions of the user that are called for one cache. A panic in one ends that call and nothing else.

use std::sync::atomic::{AtomicU64, Ordering};

use masthead_core::{ObjectKey, Panic, contain};
use tracing::error;

/// How often functions of the user panicked while a cache was filled, by what they are. A handler counts the
/// panics of its own calls and of its filter: see [`HandlerReport`](crate::HandlerReport).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct UserPanics {
    /// Transforms. The object was skipped (R13).
    pub transforms: u64,
    /// Functions of indexes. The object was left out of the index.
    pub indexes: u64,
    /// Decoding into the type that is held. The object is held as its JSON.
    pub decodes: u64,
    /// Calls of the error callback. It is called again at the next error.
    pub error_callbacks: u64,
}

impl UserPanics {
    /// Each count with the name of its function, as in metrics.
    pub(crate) fn iter(self) -> impl Iterator<Item = (&'static str, u64)> {
        let Self { transforms, indexes, decodes, error_callbacks } = self;
        let counts = [transforms, indexes, decodes, error_callbacks];
        UserFunction::ALL.map(UserFunction::as_str).into_iter().zip(counts)
    }
}

/// What a function of the user is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UserFunction {
    Transform,
    Index,
    Decode,
    ErrorCallback,
}

impl UserFunction {
    const ALL: [Self; 4] = [Self::Transform, Self::Index, Self::Decode, Self::ErrorCallback];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Transform => "transform",
            Self::Index => "index",
            Self::Decode => "decode",
            Self::ErrorCallback => "error_callback",
        }
    }
}

/// Calls functions of the user for one cache, and counts their panics.
#[derive(Debug)]
pub(crate) struct UserCalls {
    resource: String,
    panics: [AtomicU64; UserFunction::ALL.len()],
}

impl UserCalls {
    pub(crate) fn new(resource: String) -> Self {
        Self { resource, panics: Default::default() }
    }

    /// Calls a function. A panic is logged, counted and returned.
    pub(crate) fn contain<T>(
        &self,
        function: UserFunction,
        key: Option<&ObjectKey>,
        call: impl FnOnce() -> T,
    ) -> Result<T, Panic> {
        contain(call).inspect_err(|panic| {
            self.panics[function as usize].fetch_add(1, Ordering::Relaxed);
            let (resource, function) = (&self.resource, function.as_str());
            error!(resource, key = key.map(tracing::field::display), function, %panic, "user function panicked");
        })
    }

    pub(crate) fn panics(&self) -> UserPanics {
        let of = |function| self.panics[function as usize].load(Ordering::Relaxed);
        UserPanics {
            transforms: of(UserFunction::Transform),
            indexes: of(UserFunction::Index),
            decodes: of(UserFunction::Decode),
            error_callbacks: of(UserFunction::ErrorCallback),
        }
    }
}
