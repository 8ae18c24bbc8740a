//! How long a key that failed waits.

use std::time::Duration;

use super::Moment;
use crate::limits::{BACKOFF_BASE, BACKOFF_MAX, RETRIES_BURST, RETRIES_PER_SECOND};

/// Says how long a key waits before its next attempt.
///
/// The queue counts the failures and forgets them when it is told to, so most limiters are values; one
/// that limits all keys together has a state. Any `FnMut(&K, u32, Moment) -> Duration` is a limiter.
pub trait Limiter<K>: Send + 'static {
    /// The wait of a key that failed `failures` times before this.
    fn delay(&mut self, key: &K, failures: u32, now: Moment) -> Duration;
}

impl<K, F: FnMut(&K, u32, Moment) -> Duration + Send + 'static> Limiter<K> for F {
    fn delay(&mut self, key: &K, failures: u32, now: Moment) -> Duration {
        self(key, failures, now)
    }
}

/// `base · 2ⁿ` after `n` failures, at most `max`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exponential {
    /// The first wait.
    pub base: Duration,
    /// The longest one.
    pub max: Duration,
}

impl Default for Exponential {
    fn default() -> Self {
        Self { base: BACKOFF_BASE, max: BACKOFF_MAX }
    }
}

impl<K> Limiter<K> for Exponential {
    fn delay(&mut self, _: &K, failures: u32, _: Moment) -> Duration {
        let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.max)
    }
}

/// So many a second over all keys, and a number of them at once. Who comes when there is no token takes
/// the next that will be there, and waits for it.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    interval: i64,
    full: i64,
    /// Nanoseconds' worth of tokens; below zero, those that were given away before they were there.
    credit: i64,
    at: Moment,
}

impl TokenBucket {
    /// A full bucket of `burst` tokens, to which `per_second` are added. Both are at least one.
    pub fn new(per_second: u32, burst: u32) -> Self {
        let interval = 1_000_000_000 / i64::from(per_second.max(1));
        let full = interval * i64::from(burst.max(1));
        Self { interval, full, credit: full, at: Moment::START }
    }
}

impl Default for TokenBucket {
    fn default() -> Self {
        Self::new(RETRIES_PER_SECOND, RETRIES_BURST)
    }
}

impl<K> Limiter<K> for TokenBucket {
    fn delay(&mut self, _: &K, _: u32, now: Moment) -> Duration {
        let since = i64::try_from(now.nanos_since(self.at)).unwrap_or(i64::MAX);
        self.credit = self.credit.saturating_add(since).min(self.full);
        self.credit = self.credit.saturating_sub(self.interval);
        self.at = now.max(self.at);
        Duration::from_nanos(self.credit.min(0).unsigned_abs())
    }
}

/// The longest wait that any of several says.
pub struct MaxOf<K>(Vec<Box<dyn Limiter<K>>>);

impl<K: 'static> MaxOf<K> {
    /// None yet: no wait.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// And this one.
    #[must_use]
    pub fn and(mut self, limiter: impl Limiter<K>) -> Self {
        self.0.push(Box::new(limiter));
        self
    }
}

impl<K: 'static> Default for MaxOf<K> {
    /// What R29 says: each key exponentially, and all of them by a bucket.
    fn default() -> Self {
        Self::none().and(Exponential::default()).and(TokenBucket::default())
    }
}

impl<K: 'static> Limiter<K> for MaxOf<K> {
    fn delay(&mut self, key: &K, failures: u32, now: Moment) -> Duration {
        let delays = self.0.iter_mut().map(|it| it.delay(key, failures, now));
        delays.max().unwrap_or_default()
    }
}

impl<K> std::fmt::Debug for MaxOf<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MaxOf").field(&self.0.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::after(Duration::from_millis(ms))
    }

    #[test]
    fn r29_the_wait_of_a_key_doubles_up_to_its_end() {
        let mut limiter = Exponential::default();
        let mut delay = |n| Limiter::<u8>::delay(&mut limiter, &0, n, at(0));
        assert_eq!([0, 1, 2, 10].map(&mut delay), [5, 10, 20, 5120].map(Duration::from_millis));
        // 5 ms · 2¹⁷ is 655 s, and twice that is more than the longest.
        assert_eq!(delay(17), Duration::from_millis(655_360));
        assert_eq!([18, 31, 32, u32::MAX].map(delay), [BACKOFF_MAX; 4]);
    }

    #[test]
    fn r29_a_bucket_gives_its_burst_and_then_its_rate() {
        let mut bucket = TokenBucket::new(10, 3);
        let mut delay = |ms| Limiter::<u8>::delay(&mut bucket, &0, 0, at(ms)).as_millis();
        assert_eq!([0, 0, 0, 0, 0].map(&mut delay), [0, 0, 0, 100, 200]);
        assert_eq!(delay(100), 200, "the fifth has taken the token of 200 ms");
        assert_eq!([300, 399, 600].map(&mut delay), [100, 101, 0]);
        assert_eq!([60_000, 60_000, 60_000, 60_000].map(delay), [0, 0, 0, 100], "never above full");
    }

    #[test]
    fn the_longest_of_several_counts_and_anything_that_can_be_called_is_one() {
        let long =
            |key: &u8, failures: u32, _| Duration::from_secs(u64::from(*key) * u64::from(failures));
        let mut limiter = MaxOf::none().and(Exponential::default()).and(long);
        assert_eq!(limiter.delay(&1, 0, at(0)), BACKOFF_BASE);
        assert_eq!(limiter.delay(&1, 2, at(0)), Duration::from_secs(2));
        assert_eq!(MaxOf::<u8>::none().delay(&1, 2, at(0)), Duration::ZERO);
    }
}
