//! What controllers count, under the names that controller-runtime gave it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use masthead_informer::TaskEnded;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::sync::watch;

use super::panics::{ControllerPanics, UserFunction};
use super::worker::Outcome;
use crate::queue::Histogram;

/// The figures of some controllers. Clones are the same.
#[derive(Clone, Default)]
pub struct ControllerMetrics(Arc<Mutex<Vec<Named>>>);

type Named = (String, Arc<Counts>);

impl ControllerMetrics {
    /// One more controller.
    pub(crate) fn add(&self, name: &str, counts: Arc<Counts>) {
        self.0.lock().push((name.to_owned(), counts));
    }
}

/// The figures of one controller.
#[derive(Debug)]
pub(crate) struct Counts {
    workers: usize,
    counted: Mutex<Counted>,
    /// What ended unexpectedly, and how.
    ended: watch::Sender<Option<TaskEnded>>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) success: u64,
    pub(crate) requeue_after: u64,
    pub(crate) error: u64,
    pub(crate) terminal: u64,
    pub(crate) panics: u64,
    pub(crate) timeouts: u64,
    /// Cancelled because the lease could not be renewed.
    pub(crate) fenced: u64,
    /// Keys whose own writes did not come back in time.
    pub(crate) parked_too_long: u64,
    pub(crate) user_panics: ControllerPanics,
    active: usize,
    time: Histogram,
}

impl Counts {
    pub(super) fn new(workers: usize) -> Self {
        Self { workers, counted: Mutex::default(), ended: watch::Sender::default() }
    }

    pub(super) fn begin(&self) {
        self.counted.lock().active += 1;
    }

    pub(super) fn end(&self, outcome: &Outcome, took: Duration) {
        let mut it = self.counted.lock();
        it.active -= 1;
        it.time.observe(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        *match outcome {
            Outcome::Done => &mut it.success,
            Outcome::After(_) => &mut it.requeue_after,
            Outcome::Failed(_) => &mut it.error,
            Outcome::Terminal(_) => &mut it.terminal,
            Outcome::Panicked => &mut it.panics,
            Outcome::TimedOut => &mut it.timeouts,
            Outcome::Fenced => &mut it.fenced,
        } += 1;
    }

    pub(super) fn parked_too_long(&self) {
        self.counted.lock().parked_too_long += 1;
    }

    pub(super) fn panicked(&self, function: UserFunction) {
        self.counted.lock().user_panics.add(function);
    }

    /// The controller ended because one of its tasks did. The first one counts.
    pub(super) fn set_ended(&self, ended: TaskEnded) {
        self.ended.send_modify(|first| {
            first.get_or_insert(ended);
        });
    }

    pub(super) fn ended(&self) -> Option<TaskEnded> {
        self.ended.borrow().clone()
    }

    /// Waits for an unexpected end.
    pub(super) async fn wait_for_end(&self) -> TaskEnded {
        let mut ended = self.ended.subscribe();
        let ended = ended.wait_for(Option::is_some).await.expect("the sender is held with `self`");
        ended.clone().expect("it was waited for")
    }

    pub(crate) fn counted(&self) -> Counted {
        *self.counted.lock()
    }
}

type Of = fn(&Counted) -> u64;

/// By the label `result`.
const RESULTS: [(&str, Of); 7] = [
    ("success", |it| it.success),
    ("requeue_after", |it| it.requeue_after),
    ("error", |it| it.error),
    ("terminal", |it| it.terminal),
    ("panic", |it| it.panics),
    ("timeout", |it| it.timeouts),
    ("fenced", |it| it.fenced),
];

const COUNTERS: [(&str, &str, Of); 4] = [
    ("controller_runtime_reconcile_errors", "Reconciles that failed", |it| {
        it.error + it.terminal + it.panics + it.timeouts
    }),
    ("controller_runtime_terminal_reconcile_errors", "Reconciles that led to quarantine", |it| {
        it.terminal
    }),
    ("controller_runtime_reconcile_panics", "Reconciles that panicked", |it| it.panics),
    ("controller_runtime_parked_too_long", "Keys whose writes did not come back in time", |it| {
        it.parked_too_long
    }),
];

type GaugeOf = fn(&Counts, &Counted) -> usize;

const GAUGES: [(&str, &str, GaugeOf); 3] = [
    ("controller_runtime_max_concurrent_reconciles", "Workers", |it, _| it.workers),
    ("controller_runtime_active_workers", "Workers that reconcile", |_, it| it.active),
    ("controller_runtime_ended", "Whether a task of the controller ended unexpectedly", |it, _| {
        usize::from(it.ended.borrow().is_some())
    }),
];

#[expect(clippy::cast_precision_loss, reason = "figures on a dashboard")]
fn count(value: usize) -> ConstGauge<f64> {
    ConstGauge::new(value as f64)
}

impl Collector for ControllerMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all: Vec<_> = self.0.lock().clone();
        let all: Vec<_> =
            all.iter().map(|(name, it)| ([("controller", &**name)], it, it.counted())).collect();
        let (name, help) = ("controller_runtime_reconcile", "Reconciles by their result");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for ([controller], _, counted) in &all {
            for (result, of) in RESULTS {
                let labels = [*controller, ("result", result)];
                ConstCounter::new(of(counted)).encode(family.encode_family(&labels)?)?;
            }
        }
        for (name, help, of) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (labels, _, counted) in &all {
                ConstCounter::new(of(counted)).encode(family.encode_family(labels)?)?;
            }
        }
        let (name, help) =
            ("controller_runtime_user_panics", "Functions of the user that panicked");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for ([controller], _, counted) in &all {
            for (function, count) in counted.user_panics.iter() {
                let labels = [*controller, ("function", function)];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        let (name, help) =
            ("controller_runtime_reconcile_time_seconds", "How long reconciles took");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, _, Counted { time, .. }) in &all {
            let mut encoder = family.encode_family(labels)?;
            let (sum, count, buckets) = (time.seconds(), time.count(), time.buckets());
            encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        for (name, help, of) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, counts, counted) in &all {
                count(of(counts, counted)).encode(family.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ControllerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.lock().iter().map(|(name, _)| name.clone()).collect();
        f.debug_tuple("ControllerMetrics").field(&names).finish()
    }
}
