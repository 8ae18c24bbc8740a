//! Figures for Prometheus. Each lives as long as its informer.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::factory::Factory;
use crate::report::ResourceReport;

/// The figures of everything that a factory follows at the moment of asking.
///
/// ```
/// # fn example(factory: &masthead_informer::Factory) {
/// let mut registry = prometheus_client::registry::Registry::default();
/// registry.register_collector(Box::new(factory.metrics()));
/// # }
/// ```
#[derive(Debug)]
pub struct Metrics(Factory);

impl Factory {
    /// The figures of this factory, to be registered.
    pub fn metrics(&self) -> Metrics {
        Metrics(self.clone())
    }
}

/// A figure of a resource: its labels beside the resource's own, and its value.
type Figures = Vec<(Vec<(&'static str, String)>, f64)>;

/// A family of figures.
struct Family {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    of: fn(&ResourceReport) -> Figures,
}

fn one(value: f64) -> Figures {
    vec![(Vec::new(), value)]
}

#[expect(clippy::cast_precision_loss, reason = "figures on a dashboard")]
fn count(value: impl TryInto<u64>) -> f64 {
    value.try_into().unwrap_or(u64::MAX) as f64
}

fn handlers(of: &ResourceReport, value: fn(&crate::HandlerReport) -> f64) -> Figures {
    let labelled = |it: &crate::HandlerReport| (vec![("handler", it.name.clone())], value(it));
    of.handlers.iter().map(labelled).collect()
}

fn relists(of: &ResourceReport) -> Figures {
    let it = of.report.relists;
    let causes = [
        ("expired", it.expired),
        ("short_watches", it.short_watches),
        ("rejected", it.rejected),
        ("older", it.older),
        ("unversioned", it.unversioned),
        ("silent", it.silent),
    ];
    causes.map(|(cause, n)| (vec![("cause", cause.to_owned())], f64::from(n))).into()
}

fn panics(of: &ResourceReport) -> Figures {
    let labelled = |(function, n): (&str, u64)| (vec![("function", function.to_owned())], count(n));
    of.panics.iter().map(labelled).collect()
}

fn errors(of: &ResourceReport) -> Figures {
    let labelled = |(class, n): (masthead_reflector::Class, u32)| {
        (vec![("class", class.as_str().to_owned())], f64::from(n))
    };
    of.report.errors.iter().map(labelled).collect()
}

const GAUGE: MetricType = MetricType::Gauge;
const COUNTER: MetricType = MetricType::Counter;

const FAMILIES: [Family; 18] = [
    family("synced", "Was the first list applied whole", GAUGE, |it| one(f64::from(it.synced()))),
    family("objects", "Objects in the cache", GAUGE, |it| one(count(it.objects))),
    family("memory_bytes", "Bytes that the cache takes", GAUGE, |it| one(count(it.memory))),
    family("received_bytes", "Bytes received", COUNTER, |it| one(count(it.report.bytes))),
    family("pages", "Pages received", COUNTER, |it| one(count(it.report.pages))),
    family("lists", "Lists begun", COUNTER, |it| one(count(it.report.attempts))),
    family("relists", "Lists after the first", COUNTER, relists),
    family("errors", "What went wrong", COUNTER, errors),
    family("undecodable", "Reads of objects that do not fit their type", COUNTER, |it| {
        one(count(it.undecodable))
    }),
    family("skipped", "Objects of another kind, unreadable or not transformed", COUNTER, |it| {
        one(count(it.report.skipped))
    }),
    family("user_panics", "Functions of the user that panicked", COUNTER, panics),
    family("ended", "Is nothing followed any more although nothing stopped it", GAUGE, |it| {
        one(f64::from(it.report.ended.is_some()))
    }),
    family("rewinds", "Times that the server went back", COUNTER, |it| {
        one(count(it.report.rewinds))
    }),
    family("handler_events", "Events given to a handler", COUNTER, |it| {
        handlers(it, |it| count(it.events))
    }),
    family("handler_lag_events", "Changes that a handler has not had", GAUGE, |it| {
        handlers(it, |it| count(it.lag_events))
    }),
    family("handler_lag_seconds", "Since when a handler has had something to do", GAUGE, |it| {
        handlers(it, |it| it.lag.as_secs_f64())
    }),
    family("handler_panics", "Calls of a handler that panicked", COUNTER, |it| {
        handlers(it, |it| count(it.panics))
    }),
    family("handler_filter_panics", "Calls of a handler's filter that panicked", COUNTER, |it| {
        handlers(it, |it| count(it.filter_panics))
    }),
];

const fn family(
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    of: fn(&ResourceReport) -> Figures,
) -> Family {
    Family { name, help, kind, of }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let report = self.0.report();
        for Family { name, help, kind, of } in &FAMILIES {
            let name = format!("masthead_informer_{name}");
            let mut family = encoder.encode_descriptor(&name, help, None, *kind)?;
            for resource in &report.resources {
                let namespace = resource.namespace.clone().unwrap_or_default();
                for (labels, value) in of(resource) {
                    let mut all = vec![
                        ("resource", resource.resource.clone()),
                        ("namespace", namespace.clone()),
                    ];
                    all.extend(labels);
                    let encoder = family.encode_family(&all)?;
                    match kind {
                        MetricType::Counter => ConstCounter::new(value).encode(encoder)?,
                        _ => ConstGauge::new(value).encode(encoder)?,
                    }
                }
            }
        }
        let (name, help) = ("masthead_informer_tasks_ended", "Tasks that ended unexpectedly");
        let encoder = encoder.encode_descriptor(name, help, None, GAUGE)?;
        ConstGauge::new(count(report.ended.len())).encode(encoder)
    }
}
