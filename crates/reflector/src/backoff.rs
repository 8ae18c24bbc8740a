//! How long to wait after a failure (R6).

use std::time::Duration;

use masthead_core::{Time, planted};

use crate::limits::{BACKOFF_MAX, BACKOFF_MIN, BACKOFF_RESET, RETRY_AFTER_MAX};
use crate::random::Random;

/// One for each stream. Waits grow from failure to failure and start over after a calm time;
/// success alone resets nothing, or a server that fails every second request would be hammered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    last: Time,
}

impl Backoff {
    /// Counts a failure and says when to try again, not before `at_least` if the server asked so.
    pub(crate) fn fail(
        &mut self,
        now: Time,
        at_least: Option<Duration>,
        random: &mut Random,
    ) -> Time {
        if self.failures > 0 && now.since(self.last) >= BACKOFF_RESET {
            self.failures = 0;
        }
        let grown = if planted::on("backoff_not_grown") { 0 } else { self.failures };
        let base = BACKOFF_MIN.saturating_mul(1 << grown.min(16)).min(BACKOFF_MAX);
        self.failures = self.failures.saturating_add(1);
        self.last = now;
        let wait = jittered(base, random).min(BACKOFF_MAX);
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
