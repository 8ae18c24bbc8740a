//! From an event of a watch to the reconcile that it leads to, through the cache and the queue.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use masthead_controller::{Action, Context, Controller, Manager};
use masthead_core::{Object, Resource, Scope};
use masthead_informer::Factory;
use masthead_reflector::WatchItem;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::super::fed::{Fed, synced};

const KEYS: usize = 10_000;

fn event(number: usize) -> anyhow::Result<WatchItem> {
    let maps = Resource::new("", "v1", "configmaps", "ConfigMap", Scope::Namespaced);
    let (name, version) = (format!("map-{number}"), number + 2);
    let body = format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"it","uid":"{name}","resourceVersion":"{version}"}}}}"#
    );
    Ok(WatchItem::Added(Object::parse(&maps, body.into())?))
}

/// One event after the other: each is sent when the reconcile of the one before has begun.
pub(super) async fn median() -> anyhow::Result<Duration> {
    let (feed, server) = Fed::new();
    let factory = Factory::new(server);
    let (begun, mut begins) = unbounded_channel();
    let maps = Controller::<ConfigMap>::new(&factory, "maps")?;
    let maps = maps.reconcile(move |_: Context<ConfigMap>| {
        let _ = begun.send(Instant::now());
        std::future::ready(Ok(Action::Done))
    });
    feed.send(synced(1))?;
    let stop = CancellationToken::new();
    let running = tokio::spawn(Manager::new(&factory).with(maps).run(stop.clone()));
    let delays = send_each(&feed, &mut begins).await;
    stop.cancel();
    running.await??;
    delays
}

async fn send_each(
    feed: &UnboundedSender<WatchItem>,
    begins: &mut UnboundedReceiver<Instant>,
) -> anyhow::Result<Duration> {
    let mut delays = Vec::with_capacity(KEYS);
    for number in 0..KEYS {
        let event = event(number)?;
        let sent = Instant::now();
        feed.send(event)?;
        let Some(begun) = begins.recv().await else { break };
        delays.push(begun.saturating_duration_since(sent));
    }
    delays.sort_unstable();
    anyhow::ensure!(delays.len() == KEYS, "the controller ended after {} keys", delays.len());
    Ok(delays[KEYS / 2])
}
