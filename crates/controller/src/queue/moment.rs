//! Time as a parameter.

use std::ops::Add;
use std::time::Duration;

/// A moment on a monotonic clock, in nanoseconds since a start that the caller chose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Moment(u64);

impl Moment {
    /// When the clock began.
    pub const START: Self = Self(0);

    /// So long after the start; at most the end of time, which is 584 years after it.
    pub fn after(start: Duration) -> Self {
        Self(u64::try_from(start.as_nanos()).unwrap_or(u64::MAX))
    }

    /// How long after `earlier` this is; zero if it is before.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    pub(super) const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    /// Saturates at the end of time.
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(Self::after(by).0))
    }
}
