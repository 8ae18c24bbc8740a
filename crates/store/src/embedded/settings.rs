//! What can be set.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use masthead_core::Time;

use crate::limits::{KEEP_AGE, KEEP_BYTES, SEGMENT_BYTES_MAX, TAIL_BYTES_MAX};

/// How much history an [`EmbeddedStore`](crate::EmbeddedStore) keeps, and where.
///
/// History goes by itself, in the background, when it is older than `keep_age` or larger than
/// `keep_bytes`, whichever comes first.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Changes are kept for so long. Times are those of the wall clock and survive restarts; if it is
    /// set forward, history goes early, if backward, late.
    pub keep_age: Duration,
    /// So many bytes of superseded states are kept.
    pub keep_bytes: u64,
    /// So many bytes of recent events are in memory.
    pub tail_bytes: usize,
    /// At this size a file of the log is followed by a new one.
    pub segment_bytes: u64,
    /// Where the time comes from.
    pub clock: Clock,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            keep_age: KEEP_AGE,
            keep_bytes: KEEP_BYTES,
            tail_bytes: TAIL_BYTES_MAX,
            segment_bytes: SEGMENT_BYTES_MAX,
            clock: Clock::default(),
        }
    }
}

impl Settings {
    /// The same with another age.
    pub fn keep_age(mut self, age: Duration) -> Self {
        self.keep_age = age;
        self
    }

    /// The same with another size.
    pub fn keep_bytes(mut self, bytes: u64) -> Self {
        self.keep_bytes = bytes;
        self
    }

    /// The same with another tail; at most as large as the default.
    pub fn tail_bytes(mut self, bytes: usize) -> Self {
        self.tail_bytes = bytes.min(TAIL_BYTES_MAX);
        self
    }

    /// The same with files of another size; at most as large as the default.
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes.min(SEGMENT_BYTES_MAX);
        self
    }

    /// The same with another clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }
}

/// The wall clock, or a test's.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Time + Send + Sync>);

impl Clock {
    /// A clock that says what this says, in milliseconds since 1970.
    pub fn new(now: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn now(&self) -> Time {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
        })
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
