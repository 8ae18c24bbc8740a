//! Counters and gauges, under Kubernetes' names where it has them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use masthead_store::{Health, Store};

use crate::feed::split;
use crate::flights::Flights;
use crate::reads::{Reads, Statistics};
use crate::self_check;

/// What the watches of one resource count.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchCounters {
    /// Events sent.
    pub(crate) events: Counter,
    /// Watches that were too slow and lost their place.
    pub(crate) terminated: Counter,
}

/// What a request is counted under. Names and namespaces of objects never are.
#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    pub(crate) verb: &'static str,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) subresource: &'static str,
    pub(crate) code: u16,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct VerbLabel {
    verb: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct InFlightLabel {
    request_kind: &'static str,
}

/// Everything that is counted as it happens.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<VerbLabel, Histogram>,
    in_flight: Family<InFlightLabel, Gauge<i64, AtomicI64>>,
    pub(crate) connections: Gauge,
    pub(crate) refused_connections: Counter,
    pub(crate) handshake_errors: Counter,
}

impl Metrics {
    pub(crate) fn new(reads: Arc<Reads>, flights: Arc<Flights>, store: Arc<dyn Store>) -> Self {
        let mut registry = Registry::default();
        let requests = Family::default();
        registry.register("apiserver_request", "Requests answered", requests.clone());
        let buckets = || Histogram::new(exponential_buckets(0.0005, 4.0, 9));
        let durations = Family::new_with_constructor(buckets as fn() -> Histogram);
        let help = "Time until a request was answered, watches and the sending of lists aside";
        registry.register("apiserver_request_duration_seconds", help, durations.clone());
        let in_flight = Family::default();
        let help = "Requests being answered now";
        registry.register("apiserver_current_inflight_requests", help, in_flight.clone());
        let connections = Gauge::default();
        registry.register("masthead_connections", "Open connections", connections.clone());
        let refused_connections = Counter::default();
        let help = "Connections closed because there were too many";
        registry.register("masthead_connections_refused", help, refused_connections.clone());
        let handshake_errors = Counter::default();
        let help = "TLS handshakes that failed";
        registry.register("apiserver_tls_handshake_errors", help, handshake_errors.clone());
        registry.register_collector(Box::new(Gauges { reads, flights, store }));
        Self {
            registry,
            requests,
            durations,
            in_flight,
            connections,
            refused_connections,
            handshake_errors,
        }
    }

    pub(crate) fn answered(&self, labels: &RequestLabels, seconds: f64) {
        self.durations.get_or_create(&VerbLabel { verb: labels.verb }).observe(seconds);
        self.requests.get_or_create(labels).inc();
    }

    /// Counts a request for as long as the answer is held.
    pub(crate) fn in_flight(&self, writes: bool) -> InFlight {
        let request_kind = if writes { "mutating" } else { "readOnly" };
        let gauge = self.in_flight.get_or_create(&InFlightLabel { request_kind }).clone();
        gauge.inc();
        InFlight(gauge)
    }

    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

pub(crate) struct InFlight(Gauge<i64, AtomicI64>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// What is looked up when somebody asks.
struct Gauges {
    reads: Arc<Reads>,
    flights: Arc<Flights>,
    store: Arc<dyn Store>,
}

impl fmt::Debug for Gauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gauges")
    }
}

type Read = fn(&Statistics) -> i64;
type Count = fn(&Statistics) -> u64;
type Labels<'a> = [(&'static str, &'a str); 3];

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = self.reads.statistics();
        let gauges: [(&str, &str, Read); 5] = [
            ("apiserver_resource_objects", "Objects of a resource", |it| of(it.memory.objects)),
            ("apiserver_registered_watchers", "Open watches", |it| of(it.watches)),
            ("apiserver_watch_cache_resource_version", "Up to where the cache is", |it| {
                i64::try_from(it.revision.0).unwrap_or(i64::MAX)
            }),
            ("masthead_cache_bytes", "Memory of a cache", |it| of(it.memory.total())),
            ("masthead_cache_pinned_bytes", "Memory that snapshots keep", |it| {
                of(it.memory.pinned)
            }),
        ];
        for (name, help, read) in gauges {
            let gauge = ConstGauge::new(0_i64);
            let mut family = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            for it in &all {
                let labels = labels(it);
                ConstGauge::new(read(it)).encode(family.encode_family(&labels)?)?;
            }
        }
        let counters: [(&str, &str, Count); 2] = [
            ("apiserver_watch_events", "Events sent to watches", |it| it.counters.events.get()),
            ("apiserver_terminated_watchers", "Watches that fell behind and were ended", |it| {
                it.counters.terminated.get()
            }),
        ];
        for (name, help, read) in counters {
            let counter = ConstCounter::new(0_u64);
            let mut family = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            for it in &all {
                let labels = labels(it);
                ConstCounter::new(read(it)).encode(family.encode_family(&labels)?)?;
            }
        }
        let name = "masthead_view_checks";
        let help = "Kept or shared views that were compared with fresh ones";
        let counter = ConstCounter::new(0_u64);
        let mut family = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
        for check in self_check::ALL {
            let (right, wrong) = check.counts();
            for (result, count) in [("right", right), ("wrong", wrong)] {
                let labels = [("view", check.view), ("result", result)];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        let singles = [
            ("apiserver_longrunning_requests", "Open watches of all", of(self.flights.watches())),
            (
                "masthead_response_bytes_in_flight",
                "Bytes of lists and initial events being sent",
                of(self.flights.bytes()),
            ),
            (
                "masthead_stalled_responses",
                "Answers let go because nobody read them",
                i64::try_from(self.flights.stalled.load(Ordering::Relaxed)).unwrap_or(i64::MAX),
            ),
            (
                "masthead_store_writable",
                "1 if the store takes writes, 0 if its disk is full or failed",
                i64::from(self.store.health() == Health::Writable),
            ),
            ("process_resident_memory_bytes", "Resident memory", of(resident_bytes())),
        ];
        for (name, help, value) in singles {
            let gauge = ConstGauge::new(value);
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        Ok(())
    }
}

fn labels(it: &Statistics) -> Labels<'_> {
    let (plural, group) = split(it.resource.as_str());
    [("group", group), ("version", &it.version), ("resource", plural)]
}

fn of(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Resident memory of this process; zero where the system does not tell.
pub(crate) fn resident_bytes() -> usize {
    let Ok(text) = std::fs::read_to_string("/proc/self/statm") else { return 0 };
    let pages = text.split_whitespace().nth(1).and_then(|it| it.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}
