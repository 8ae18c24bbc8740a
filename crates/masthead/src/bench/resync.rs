//! Handlers: a resync of everything to one, and a change on its way to four, against client-go.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Args;
use k8s_openapi::api::core::v1::Pod;
use masthead_core::Resource;
use masthead_informer::{Event, Factory, HandlerOptions, Index, Informer};
use masthead_reflector::WatchItem;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use super::fed::{Fed, synced};
use super::report::{Figure, Findings, number};
use super::{Common, machine, peers, pods};

/// Pods in the cache, and resyncs that are measured.
const PODS: u32 = 10_000;
const RESYNCS: usize = 5;
/// The shortest that both sides allow.
const PERIOD: Duration = Duration::from_secs(1);
/// Changes at a time, each of another pod so that none can be merged; and how often.
const AT_A_TIME: u32 = 5_000;
const TIMES: u32 = 10;
const HANDLERS: usize = 4;

#[derive(Args)]
pub(crate) struct ResyncArguments {
    /// Rounds of each measurement; the best counts, for us and for the peer
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(arguments: &ResyncArguments) -> anyhow::Result<()> {
    let runtime = Runtime::new()?;
    let rounds = arguments.rounds;
    let peer = arguments.common.peer(|| peers::client_go_handlers(PODS, rounds))?;
    let [mut resync, mut stay, mut moved] = [f64::INFINITY; 3];
    for _ in 0..rounds {
        resync = resync.min(runtime.block_on(resyncs())?);
        stay = stay.min(runtime.block_on(changes(false))?);
        moved = moved.min(runtime.block_on(changes(true))?);
    }
    let params = [("pods", PODS.into()), ("rounds", rounds.into())];
    let mut found = Findings::new("resync", &params);
    let against = |name, ours, key: &str, at_most| {
        let theirs = peer.as_ref().and_then(|it| it.get(key).copied());
        Figure::new(name, ours, "ns", ("client-go", theirs), at_most)
    };
    found.figures = vec![
        against("processor an object of a resync, one handler", resync, "resync", 0.2),
        against("processor a change, two indexes, four handlers", stay, "stay", 1.0 / 3.0),
        against("the same, an index value changes", moved, "moved", 1.0 / 3.0),
    ];
    found.show(arguments.common.output);
    Ok(())
}

/// An informer of pods with two indexes, fed from here.
struct World {
    factory: Factory,
    informer: Informer<Pod>,
    feed: UnboundedSender<WatchItem>,
    seen: Arc<Seen>,
}

/// Updates that handlers were told of, and somebody who waits for so many. Looking again and again would
/// cost more than what is measured.
#[derive(Default)]
struct Seen {
    updates: AtomicUsize,
    wanted: AtomicUsize,
    there: Notify,
}

impl Seen {
    fn one_more(&self) {
        if self.updates.fetch_add(1, Ordering::SeqCst) + 1 == self.wanted.load(Ordering::SeqCst) {
            self.there.notify_one();
        }
    }

    async fn until(&self, updates: usize) {
        self.wanted.store(updates, Ordering::SeqCst);
        while self.updates.load(Ordering::SeqCst) < updates {
            self.there.notified().await;
        }
    }
}

impl World {
    fn new() -> anyhow::Result<Self> {
        let (feed, server) = Fed::new();
        let factory = Factory::new(server);
        let by_owner = Index::by_entry("owner", |pod, values| {
            values.extend(pod.owners().map(|owner| owner.uid));
            Ok(())
        });
        let informer = factory.informer::<Pod>();
        let informer = informer.index(Index::field("node", "spec.nodeName")).index(by_owner);
        let (informer, seen) = (informer.build()?, Arc::default());
        Ok(Self { factory, informer, feed, seen })
    }

    fn handle(&self, options: &HandlerOptions<Pod>) -> anyhow::Result<()> {
        let seen = self.seen.clone();
        self.informer.add_handler(options, move |event| {
            if matches!(event, Event::Updated { .. }) {
                seen.one_more();
            }
            std::future::ready(())
        })?;
        Ok(())
    }

    async fn sync(&self) -> anyhow::Result<()> {
        let resource = Resource::pods();
        for i in 0..PODS {
            self.feed.send(WatchItem::Added(pods::pod(&resource, i, u64::from(i) + 1, 0)))?;
        }
        self.feed.send(synced(PODS.into()))?;
        self.factory.start();
        self.factory.wait_for_sync().await?;
        Ok(())
    }
}

/// Nanoseconds of processor for one object of a resync.
async fn resyncs() -> anyhow::Result<f64> {
    let world = World::new()?;
    world.handle(&HandlerOptions::default().resync(PERIOD))?;
    world.sync().await?;
    // The first is over, so that the time until the next is quiet.
    world.seen.until(PODS as usize).await;
    let before = machine::processor();
    world.seen.until(PODS as usize * (1 + RESYNCS)).await;
    let used = machine::processor() - before;
    world.factory.stop().await;
    Ok(used * 1e9 / number(RESYNCS as u64) / f64::from(PODS))
}

/// Nanoseconds of processor for one change, from the watch to the last of the handlers. Most changes of a
/// cluster leave index values as they are; one that moves a pod to another node does not.
async fn changes(moves: bool) -> anyhow::Result<f64> {
    let world = World::new()?;
    for _ in 0..HANDLERS {
        world.handle(&HandlerOptions::default())?;
    }
    world.sync().await?;
    let (resource, mut revision, mut best) = (Resource::pods(), u64::from(PODS), f64::INFINITY);
    for time in 1..=TIMES {
        let changes: Vec<_> = (0..AT_A_TIME)
            .map(|at| {
                revision += 1;
                let move_by = if moves { time } else { 0 };
                WatchItem::Modified(pods::pod(&resource, at * 7919 % PODS, revision, move_by))
            })
            .collect();
        let before = machine::processor();
        for change in changes {
            world.feed.send(change)?;
        }
        world.seen.until(HANDLERS * (AT_A_TIME * time) as usize).await;
        best = best.min((machine::processor() - before) * 1e9 / f64::from(AT_A_TIME));
    }
    world.factory.stop().await;
    Ok(best)
}
