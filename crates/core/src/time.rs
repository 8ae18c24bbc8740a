//! Time as a parameter.

use std::ops::Add;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment on a monotonic clock, in milliseconds since a start that the caller chose.
///
/// Nothing in this crate or in the cache reads a clock; whoever drives them passes the time in, and a
/// test passes whatever time it likes.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// How long after `earlier` this is; zero if it is before.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Saturates at the end of time.
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)))
    }
}
