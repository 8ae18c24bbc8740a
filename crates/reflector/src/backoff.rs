//! How long to wait after a failure (R6).

use std::time::Duration;

use masthead_core::{Time, planted};

use crate::limits::{BACKOFF_MAX, BACKOFF_MIN, BACKOFF_RESET, RETRY_AFTER_MAX};
use crate::random::Random;

/// How waits after failures grow. The default is what a server of many clients can ask of each (R6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The first wait.
    pub first: Duration,
    /// The longest wait, jitter included.
    pub longest: Duration,
    /// So long after a failure the next one is a first one again.
    pub calm: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { first: BACKOFF_MIN, longest: BACKOFF_MAX, calm: BACKOFF_RESET }
    }
}

/// One for each stream. Waits grow from failure to failure and start over after a calm time;
/// success alone resets nothing, or a server that fails every second request would be hammered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoff {
    pace: Pace,
    failures: u32,
    last: Time,
}

impl Backoff {
    pub(crate) fn new(pace: Pace) -> Self {
        Self { pace, ..Self::default() }
    }

    /// Counts a failure and says when to try again, not before `at_least` if the server asked so.
    pub(crate) fn fail(
        &mut self,
        now: Time,
        at_least: Option<Duration>,
        random: &mut Random,
    ) -> Time {
        let Pace { first, longest, calm } = self.pace;
        if self.failures > 0 && now.since(self.last) >= calm {
            self.failures = 0;
        }
        let grown = if planted::on("backoff_not_grown") { 0 } else { self.failures };
        let base = first.saturating_mul(1 << grown.min(16)).min(longest);
        self.failures = self.failures.saturating_add(1);
        self.last = now;
        let wait = jittered(base, random).min(longest);
        match at_least.filter(|_| !planted::on("retry_after_ignored")) {
            // Spread, since the server told everybody the same.
            Some(asked) => {
                let asked = asked.min(RETRY_AFTER_MAX);
                now + wait.max(asked + jittered(asked / 4, random).saturating_sub(asked / 4))
            }
            None => now + wait,
        }
    }

    #[cfg(test)]
    fn failures(&self) -> u32 {
        self.failures
    }
}

/// Between once and twice as long.
fn jittered(base: Duration, random: &mut Random) -> Duration {
    let millis = u64::try_from(base.as_millis()).unwrap_or(u64::MAX);
    base + Duration::from_millis(random.below(millis.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r06_waits_double_up_to_the_cap_and_are_spread() {
        let mut random = Random::new(7);
        let mut backoff = Backoff::default();
        for base in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            let wait = backoff.fail(Time(5), None, &mut random).0 - 5;
            assert!((base..=(2 * base).min(30_000)).contains(&wait), "{wait} for {base}");
        }
    }

    #[test]
    fn waits_keep_the_pace_that_is_asked_for() {
        let [first, longest, calm] = [10, 50, 1000].map(Duration::from_millis);
        let (mut random, mut backoff) =
            (Random::new(7), Backoff::new(Pace { first, longest, calm }));
        for base in [10, 20, 40, 50, 50] {
            let wait = backoff.fail(Time(0), None, &mut random).0;
            assert!((base..=(2 * base).min(50)).contains(&wait), "{wait} for {base}");
        }
        backoff.fail(Time(1000), None, &mut random);
        assert_eq!(backoff.failures(), 1);
    }

    #[test]
    fn r06_two_calm_minutes_start_over() {
        let mut random = Random::new(7);
        let mut backoff = Backoff::default();
        backoff.fail(Time(0), None, &mut random);
        backoff.fail(Time(119_999), None, &mut random);
        assert_eq!(backoff.failures(), 2);
        backoff.fail(Time(119_999 + 120_000), None, &mut random);
        assert_eq!(backoff.failures(), 1);
    }

    #[test]
    fn r07_a_retry_after_is_a_lower_bound_and_is_spread() {
        let asked = Some(Duration::from_secs(8));
        let waits: Vec<_> = (0..50)
            .map(|seed| Backoff::default().fail(Time(0), asked, &mut Random::new(seed)).0)
            .collect();
        assert!(waits.iter().all(|wait| (8_000..=10_000).contains(wait)), "{waits:?}");
        assert!(waits.iter().any(|wait| *wait != waits[0]));
        let year = Some(Duration::from_secs(31_536_000));
        let wait = Backoff::default().fail(Time(0), year, &mut Random::new(1));
        assert!(wait.0 <= 750_000, "no server stops a client for a year");
    }
}
