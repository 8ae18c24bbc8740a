//! The work queue against client-go's, and how soon a reconcile begins.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use masthead_controller::queue::{Settings, WorkQueue};
use masthead_core::ObjectKey;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::{JoinSet, yield_now};

use super::report::{Figure, Findings, number};
use super::{Common, peers};

mod overhead;

#[derive(Args)]
pub(crate) struct QueueArguments {
    /// Rounds of each measurement; the best counts, for us and for the peer
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    #[command(flatten)]
    common: Common,
}

/// Keys that come and go, and operations in a round, as in the peer.
const KEYS: usize = 1_000;
const CYCLES: usize = 1_000_000;
/// A producer lets others run after so many adds.
const BURST: usize = 64;
/// Delays that are looked at.
const SAMPLES: usize = 20_000;

pub(super) fn run(arguments: &QueueArguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (keys, each_once) = (keys(KEYS)?, keys(CYCLES)?);
    let best = |measure: &dyn Fn() -> f64| {
        (0..arguments.rounds).map(|_| measure()).fold(f64::INFINITY, f64::min)
    };
    let ours = [
        ("cycle", best(&|| runtime.block_on(cycle(&keys)))),
        ("repeated", best(&|| repeated(&keys))),
        ("one", best(&|| crowd(&runtime, &each_once, 1, 1))),
        ("four", best(&|| crowd(&runtime, &each_once, 4, 4))),
        // On the runtime's own threads, as a controller is.
        ("p99", best(&|| runtime.block_on(runtime.spawn(delay(keys.clone()))).unwrap_or(f64::NAN))),
    ];
    let overhead = runtime.block_on(overhead::median())?;
    let theirs = arguments.common.peer(|| peers::client_go_queue(arguments.rounds))?;
    let against = |at: usize, label, at_most| {
        let (name, ours) = ours[at];
        let theirs = theirs.as_ref().and_then(|figures| figures.get(name)).copied();
        Figure::new(label, ours, "ns", ("client-go", theirs), at_most)
    };
    let mut found = Findings::new("queue", &[("rounds", arguments.rounds.into())]);
    found.figures = vec![
        against(0, "add, get and done of one key", 0.5),
        against(1, "add of a key that waits", 0.5),
        against(2, "add, get and done, 1 producer and 1 worker", 0.5),
        against(3, "add, get and done, 4 producers and 4 workers", 0.5),
        against(4, "from add to get, 99th percentile", 1.0),
        Figure::new(
            "from event to reconcile, median of 10,000 keys",
            overhead.as_secs_f64() * 1e6,
            "µs",
            ("limit", Some(50.0)),
            1.0,
        ),
    ];
    found.show(arguments.common.output);
    Ok(())
}

fn keys(count: usize) -> anyhow::Result<Arc<[ObjectKey]>> {
    let keys = (0..count).map(|it| ObjectKey::new("namespace", &format!("name-{it}")));
    Ok(keys.collect::<Result<_, _>>()?)
}

fn each(began: Instant, count: usize) -> f64 {
    began.elapsed().as_secs_f64() * 1e9 / number(count as u64)
}

/// One key added, taken and done, one after the other.
async fn cycle(keys: &[ObjectKey]) -> f64 {
    let queue = WorkQueue::new(Settings::default());
    let began = Instant::now();
    for key in keys.iter().cycle().take(CYCLES) {
        queue.add(key.clone()).expect("there is room");
        drop(queue.next().await);
    }
    each(began, CYCLES)
}

/// Keys added that wait already.
fn repeated(keys: &[ObjectKey]) -> f64 {
    let queue = WorkQueue::new(Settings::default());
    let began = Instant::now();
    for key in keys.iter().cycle().take(CYCLES) {
        queue.add(key.clone()).expect("there is room");
    }
    each(began, CYCLES)
}

/// Producers and workers on one queue: nanoseconds a key, until all is done. Each key is added once:
/// otherwise whoever is slow to take keys would have less to do, as adds of keys that wait cost little.
fn crowd(runtime: &Runtime, keys: &Arc<[ObjectKey]>, producers: usize, workers: usize) -> f64 {
    let queue = WorkQueue::<ObjectKey>::new(Settings::default());
    let (mut adding, mut working) = (JoinSet::new(), JoinSet::new());
    let began = Instant::now();
    for _ in 0..workers {
        let queue = queue.clone();
        let work = async move {
            let mut work = queue.next().await;
            while let Some(done) = work {
                work = done.next().await;
            }
        };
        working.spawn_on(work, runtime.handle());
    }
    let share = CYCLES / producers;
    for producer in 0..producers {
        let (queue, keys) = (queue.clone(), keys.clone());
        let add = async move {
            for at in 0..share {
                let key = &keys[producer * share + at];
                queue.add(key.clone()).expect("there is room");
                if at % BURST == 0 {
                    yield_now().await;
                }
            }
        };
        adding.spawn_on(add, runtime.handle());
    }
    runtime.block_on(async {
        adding.join_all().await;
        queue.shutdown();
        working.join_all().await;
    });
    each(began, share * producers)
}

/// From add to get with a worker that waits for each key: the 99th percentile.
async fn delay(keys: Arc<[ObjectKey]>) -> f64 {
    let queue = WorkQueue::new(Settings::default());
    let (done, worker) = (Arc::new(Notify::new()), queue.clone());
    let told = done.clone();
    let (adds, mut added) = tokio::sync::mpsc::unbounded_channel::<Instant>();
    let working = tokio::spawn(async move {
        let mut delays = Vec::with_capacity(SAMPLES);
        while let Some(work) = worker.next().await {
            let now = Instant::now();
            let Some(began) = added.recv().await else { break };
            delays.push(now.saturating_duration_since(began));
            drop(work);
            told.notify_one();
        }
        delays
    });
    for key in keys.iter().cycle().take(SAMPLES) {
        let _ = adds.send(Instant::now());
        queue.add(key.clone()).expect("there is room");
        done.notified().await;
    }
    queue.shutdown();
    let mut delays: Vec<Duration> = working.await.expect("it does not panic");
    delays.sort_unstable();
    delays[delays.len() * 99 / 100].as_secs_f64() * 1e9
}
