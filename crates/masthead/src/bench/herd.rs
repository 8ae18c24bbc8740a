//! Many watches at once, and what arrives at them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::ensure;
use masthead_core::Resource;
use tokio::task::{JoinHandle, JoinSet, block_in_place};
use tokio::time::{Instant, sleep};

use super::child::microseconds;
use super::pods;
use super::process::Served;
use super::report::number;
use super::wire::bare::Following;
use super::wire::{self, Arrivals, Dialer, Watch, http};

/// Connections that are being opened at once.
const OPENING: usize = 64;
/// How long the last events may take after the last update.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);

/// Which updates a watch is told of: the pods go round, and each node has at most one.
#[derive(Clone, Copy)]
pub(super) enum Sees {
    /// Every watch sees every update.
    Everything,
    /// Watch `i` sees the pod of node `i`; every so many nodes have one.
    Node { pods: usize, step: usize },
    /// Watch `i` sees pod `i` by a label that no other has.
    Label { pods: usize },
}

impl Sees {
    /// What a watch asks for besides pods.
    fn selector(self, watch: usize) -> String {
        let number = u32::try_from(watch).unwrap_or(u32::MAX);
        match self {
            Self::Everything => String::new(),
            Self::Node { .. } => {
                format!("&fieldSelector=spec.nodeName%3D{}", pods::numbered_node(number))
            }
            Self::Label { .. } => {
                format!("&labelSelector={}%3D{}", pods::UNIQUE_LABEL, pods::name(number))
            }
        }
    }

    /// The numbers of the updates that a watch sees, of so many.
    fn updates(self, watch: usize, count: usize) -> impl Iterator<Item = usize> {
        let (first, step) = match self {
            Self::Everything => (0, 1),
            Self::Node { pods, step } if watch.is_multiple_of(step) && watch / step < pods => {
                (watch / step, pods)
            }
            Self::Node { .. } => (count, 1),
            Self::Label { pods } => (watch, pods),
        };
        (first..count).step_by(step)
    }
}

/// Open watches.
pub(super) struct Herd {
    dialer: Dialer,
    revision: u64,
    sees: Sees,
    /// Whether watches begin with the state.
    initial: bool,
    arrivals: Arc<Arrivals>,
    watches: Vec<Arc<Watch>>,
    tasks: Vec<JoinHandle<()>>,
}

/// How updates reached all watches.
pub(super) struct Delivery {
    /// Events that arrived.
    pub(super) events: u64,
    /// Processor time of the server for one of them, in microseconds.
    pub(super) processor_each: f64,
    /// Milliseconds from the update to the event.
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) longest: f64,
    /// Watches that ended or missed events.
    pub(super) lost: usize,
    /// Processors that the server kept busy.
    pub(super) busy: f64,
    /// From the first update to the last event.
    pub(super) seconds: f64,
}

impl Herd {
    pub(super) fn new(served: &Served, http2: bool, sees: Sees) -> anyhow::Result<Self> {
        let dialer = Dialer::new(&served.hello, http2)?;
        let (arrivals, watches, tasks) = (Arc::default(), Vec::new(), Vec::new());
        let revision = served.hello.revision;
        Ok(Self { dialer, revision, sees, initial: false, arrivals, watches, tasks })
    }

    /// The same of clients that decode each event.
    pub(super) fn decoding(served: &Served) -> anyhow::Result<Self> {
        let mut herd = Self::new(served, false, Sees::Everything)?;
        let decoded = Some(Resource::pods());
        herd.arrivals = Arc::new(Arrivals { decoded, ..Arrivals::default() });
        Ok(herd)
    }

    fn watch(&mut self, watch: usize) -> (Arc<Watch>, String) {
        let path = if self.initial {
            wire::INITIAL_PATH.to_owned()
        } else {
            wire::watch_path(self.revision, &self.sees.selector(watch))
        };
        self.watches.push(Watch::new(&self.arrivals));
        (self.watches[watch].clone(), path)
    }

    /// Opens watches over HTTP/1.1, until there are so many.
    pub(super) async fn open(&mut self, count: usize) -> anyhow::Result<()> {
        let mut opening = JoinSet::new();
        for number in self.watches.len()..count {
            let ((watch, path), dialer) = (self.watch(number), self.dialer.clone());
            opening.spawn(async move {
                let watch = Following::open(&dialer, number, &path, watch).await?;
                anyhow::Ok(tokio::spawn(watch.run()))
            });
            if opening.len() >= OPENING
                && let Some(opened) = opening.join_next().await
            {
                self.tasks.push(opened??);
            }
        }
        while let Some(opened) = opening.join_next().await {
            self.tasks.push(opened??);
        }
        Ok(())
    }

    /// Opens watches over HTTP/2, so many on each connection, until there are so many.
    pub(super) async fn open_streams(
        &mut self,
        count: usize,
        streams: usize,
    ) -> anyhow::Result<()> {
        let mut opening = JoinSet::new();
        for first in (self.watches.len()..count).step_by(streams) {
            let watches: Vec<_> =
                (first..count.min(first + streams)).map(|it| self.watch(it)).collect();
            let dialer = self.dialer.clone();
            opening.spawn(async move {
                let mut sender = http::connect(&dialer, first / streams).await?;
                let mut tasks = Vec::new();
                for (watch, path) in watches {
                    let body = http::ask(&dialer, &mut sender, &path, None).await?;
                    tasks.push(tokio::spawn(http::follow(watch, body)));
                }
                anyhow::Ok(tasks)
            });
            if opening.len() >= OPENING
                && let Some(opened) = opening.join_next().await
            {
                self.tasks.extend(opened??);
            }
        }
        while let Some(opened) = opening.join_next().await {
            self.tasks.extend(opened??);
        }
        Ok(())
    }

    /// Opens so many watches and waits until each has been told so much, with or without what there was
    /// before; times count from the beginning.
    pub(super) async fn catch_up(
        &mut self,
        served: &Served,
        count: usize,
        events: usize,
        initial: bool,
    ) -> anyhow::Result<Delivery> {
        self.initial = initial;
        let (before, start, began) = (served.usage(), Instant::now(), microseconds());
        self.open(count).await?;
        // The bookmark that ends the initial events is one, too.
        let each = events + usize::from(initial);
        self.wait(each, Instant::now() + PATIENCE).await;
        let seconds = start.elapsed().as_secs_f64();
        let processor = served.usage().processor - before.processor;
        Ok(self.judge(&vec![began; each], processor, seconds))
    }

    /// Updates pods at a pace and waits for the last event; once in the life of a herd.
    pub(super) async fn deliver(
        &self,
        served: &mut Served,
        rate: u32,
        count: u32,
    ) -> anyhow::Result<Delivery> {
        let (herds, servers) = (std::slice::from_ref(self), std::slice::from_mut(served));
        Ok(Self::deliver_all(herds, servers, rate, count).await?.remove(0))
    }

    /// The same with a herd at each of several servers; the first of them updates the pods.
    pub(super) async fn deliver_all(
        herds: &[Self],
        servers: &mut [Served],
        rate: u32,
        count: u32,
    ) -> anyhow::Result<Vec<Delivery>> {
        for (herd, served) in herds.iter().zip(servers.iter_mut()) {
            let (open, all) = (served.watches()?, herd.watches.len());
            ensure!(open >= all, "{open} of {all} watches");
        }
        let before: Vec<_> = servers.iter().map(Served::usage).collect();
        let start = Instant::now();
        let times = block_in_place(|| servers[0].update(rate, count))?;
        let deadline = Instant::now() + PATIENCE;
        for herd in herds {
            herd.wait(times.len(), deadline).await;
        }
        let seconds = start.elapsed().as_secs_f64();
        let used = before
            .iter()
            .zip(servers.iter())
            .map(|(before, served)| served.usage().processor - before.processor);
        let judge = |(herd, processor): (&Self, f64)| herd.judge(&times, processor, seconds);
        Ok(herds.iter().zip(used).map(judge).collect())
    }

    /// Waits until all events of so many updates have arrived.
    async fn wait(&self, updates: usize, deadline: Instant) {
        let expected = |it| self.sees.updates(it, updates).count();
        let all: usize = (0..self.watches.len()).map(expected).sum();
        while self.events() < all as u64 && Instant::now() < deadline {
            sleep(POLL).await;
        }
    }

    fn events(&self) -> u64 {
        self.arrivals.events.load(Ordering::Relaxed)
    }

    fn judge(&self, updates: &[u64], processor: f64, seconds: f64) -> Delivery {
        let mut late = Vec::new();
        let mut lost = usize::try_from(self.arrivals.ended.load(Ordering::Relaxed)).unwrap_or(0);
        for (number, watch) in self.watches.iter().enumerate() {
            let (seen, arrived) = (self.sees.updates(number, updates.len()), watch.times());
            lost += usize::from(seen.count() != arrived.len());
            let seen = self.sees.updates(number, updates.len());
            late.extend(arrived.iter().zip(seen).map(|(at, it)| at.saturating_sub(updates[it])));
        }
        late.sort_unstable();
        let quantile = |share: usize| late.get(late.len() * share / 1000).or(late.last());
        let milliseconds = |share| quantile(share).map_or(0.0, |&it| number(it) / 1e3);
        Delivery {
            events: self.events(),
            processor_each: processor * 1e6 / number(self.events().max(1)),
            p50: milliseconds(500),
            p99: milliseconds(990),
            p999: milliseconds(999),
            longest: milliseconds(1000),
            lost,
            busy: processor / seconds,
            seconds,
        }
    }
}

impl Drop for Herd {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}
