//! Requests at a pace.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// A token bucket, kept as the time at which it would be full again.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Between two requests; zero lets everything through.
    interval: Duration,
    /// How far ahead of the pace a burst may be.
    ahead: Duration,
    full: Mutex<Instant>,
}

impl Pace {
    pub(crate) fn new(requests_per_second: u32, burst: u32) -> Self {
        let interval = match requests_per_second {
            0 => Duration::ZERO,
            n => Duration::from_secs(1) / n,
        };
        Self { interval, ahead: interval * burst, full: Mutex::new(Instant::now()) }
    }

    /// Resolves when the next request may go. What is dropped while it waits has used its turn.
    pub(crate) async fn turn(&self) {
        if self.interval.is_zero() {
            return;
        }
        let due = {
            let mut full = self.full.lock();
            *full = (*full).max(Instant::now()) + self.interval;
            *full - self.ahead.min(full.duration_since(Instant::now()))
        };
        sleep_until(due).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_pace() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let pace = Pace::new(10, 3);
            let began = Instant::now();
            let mut at = Vec::new();
            for _ in 0..6 {
                pace.turn().await;
                at.push(began.elapsed().as_millis());
            }
            assert_eq!(at, [0, 0, 0, 100, 200, 300]);
            let off = Pace::new(0, 0);
            off.turn().await;
            assert_eq!(began.elapsed().as_millis(), 300);
        });
    }
}
