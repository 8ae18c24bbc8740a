//! What a queue counts. Plain numbers under the queue's lock; whoever asks gets a copy.

/// Upper bounds of the buckets are 10 ns, 100 ns and so on to 1,000 s, as in client-go.
pub(super) const BUCKETS: usize = 12;

/// Durations by their order of magnitude.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Histogram {
    /// Below each bound and not below the one before; the last are those above all bounds.
    counts: [u64; BUCKETS + 1],
    nanos: u64,
}

impl Histogram {
    pub(crate) fn observe(&mut self, nanos: u64) {
        // Ten and less, a hundred and less, …
        let order = nanos.saturating_sub(1).checked_ilog10().unwrap_or(0) as usize;
        self.counts[order.min(BUCKETS)] += 1;
        self.nanos = self.nanos.saturating_add(nanos);
    }

    /// How many were observed.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all, in seconds.
    #[expect(clippy::cast_precision_loss, reason = "a figure on a dashboard")]
    pub fn seconds(&self) -> f64 {
        self.nanos as f64 / 1e9
    }

    /// Upper bounds in seconds with how many are between each and the one before.
    pub(crate) fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = (-8..).take(BUCKETS).map(|exponent| 10_f64.powi(exponent));
        bounds.chain([f64::MAX]).zip(self.counts).collect()
    }
}

/// The figures of a queue (R32).
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Figures {
    /// Keys that wait.
    pub depth: usize,
    /// Keys that are delayed.
    pub delayed: usize,
    /// Keys that are worked on.
    pub working: usize,
    /// Times that a key came to wait, or to wait once more while it was worked on.
    pub adds: u64,
    /// Failures that were counted.
    pub retries: u64,
    /// Adds that found the queue full, or shut down.
    pub refused: u64,
    /// Keys whose failures were forgotten to make room.
    pub forgotten: u64,
    /// Calls of its limiter and of its function of classes that panicked.
    pub panics: u64,
    /// From add to get.
    pub queue_duration: Histogram,
    /// From get to done.
    pub work_duration: Histogram,
    /// What has been spent on the work under way, in seconds.
    pub unfinished_work: f64,
    /// Since when the longest of it is under way, in seconds.
    pub longest_running: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_the_bucket_that_bounds_them() {
        let order = |nanos| {
            let mut histogram = Histogram::default();
            histogram.observe(nanos);
            histogram.counts.iter().position(|count| *count == 1).unwrap()
        };
        assert_eq!([0, 1, 10, 11, 100, 101].map(order), [0, 0, 0, 1, 1, 2]);
        assert_eq!([1_000_000_000_000, 1_000_000_000_001, u64::MAX].map(order), [11, 12, 12]);
    }
}
