//! Figures for Prometheus, under the names that client-go gave them (R32).

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::{Figures, Histogram, Key, WorkQueue};

type Ask = Box<dyn Fn() -> Figures + Send + Sync>;

/// The figures of some queues at the moment of asking. Clones are the same.
///
/// ```
/// # use masthead_controller::queue::{QueueMetrics, Settings, WorkQueue};
/// let queue: WorkQueue<String> = WorkQueue::new(Settings::default());
/// let metrics = QueueMetrics::default();
/// metrics.add("deployments", &queue);
/// let mut registry = prometheus_client::registry::Registry::default();
/// registry.register_collector(Box::new(metrics.clone()));
/// ```
#[derive(Clone, Default)]
pub struct QueueMetrics(Arc<Mutex<Vec<(String, Ask)>>>);

impl QueueMetrics {
    /// One more queue.
    pub fn add<K: Key + Sync>(&self, name: &str, queue: &WorkQueue<K>) {
        let queue = queue.clone();
        self.0.lock().push((name.to_owned(), Box::new(move || queue.figures())));
    }
}

impl fmt::Debug for QueueMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.lock().iter().map(|(name, _)| name.clone()).collect();
        f.debug_tuple("QueueMetrics").field(&names).finish()
    }
}

enum Figure {
    Counter(fn(&Figures) -> u64),
    Gauge(fn(&Figures) -> f64),
    Histogram(fn(&Figures) -> Histogram),
}

#[expect(clippy::cast_precision_loss, reason = "figures on a dashboard")]
fn count(value: usize) -> f64 {
    value as f64
}

use Figure::{Counter, Gauge};

const FAMILIES: [(&str, &str, Figure); 12] = [
    ("depth", "Keys that wait", Gauge(|it| count(it.depth))),
    ("delayed", "Keys that are delayed", Gauge(|it| count(it.delayed))),
    ("working", "Keys that are worked on", Gauge(|it| count(it.working))),
    ("adds", "Times that a key came to wait", Counter(|it| it.adds)),
    ("retries", "Failures that were counted", Counter(|it| it.retries)),
    ("refused", "Adds that found the queue full or shut down", Counter(|it| it.refused)),
    ("forgotten", "Keys whose failures were forgotten to make room", Counter(|it| it.forgotten)),
    (
        "panics",
        "Calls of a limiter or a function of classes that panicked",
        Counter(|it| it.panics),
    ),
    ("queue_duration_seconds", "From add to get", Figure::Histogram(|it| it.queue_duration)),
    ("work_duration_seconds", "From get to done", Figure::Histogram(|it| it.work_duration)),
    (
        "unfinished_work_seconds",
        "Spent on the work that is under way",
        Gauge(|it| it.unfinished_work),
    ),
    (
        "longest_running_processor_seconds",
        "Since when the longest work is under way",
        Gauge(|it| it.longest_running),
    ),
];

impl Collector for QueueMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let queues = self.0.lock();
        let queues: Vec<_> =
            queues.iter().map(|(name, ask)| ([("name", &**name)], ask())).collect();
        for (name, help, figure) in &FAMILIES {
            let kind = match figure {
                Figure::Counter(_) => MetricType::Counter,
                Figure::Gauge(_) => MetricType::Gauge,
                Figure::Histogram(_) => MetricType::Histogram,
            };
            let name = format!("workqueue_{name}");
            let mut family = encoder.encode_descriptor(&name, help, None, kind)?;
            for (labels, figures) in &queues {
                let mut encoder = family.encode_family(labels)?;
                match figure {
                    Figure::Counter(of) => ConstCounter::new(of(figures)).encode(encoder)?,
                    Figure::Gauge(of) => ConstGauge::new(of(figures)).encode(encoder)?,
                    Figure::Histogram(of) => {
                        let it = of(figures);
                        let (sum, count, buckets) = (it.seconds(), it.count(), it.buckets());
                        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
                    }
                }
            }
        }
        Ok(())
    }
}
