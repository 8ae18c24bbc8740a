//! From an event of a watch to the reconcile that it leads to, through the cache and the queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use masthead_controller::{Action, Context, Controller, Manager};
use masthead_core::{Object, Resource, Scope};
use masthead_informer::upstream::SourceError;
use masthead_informer::{Connector, Factory, Pack, Packed, Wanted};
use masthead_reflector::{
    BoxFuture, Events, Failure, ListRequest, Meter, Page, ServerMemory, Source, WatchItem,
    WatchRequest,
};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

const KEYS: usize = 10_000;

/// A server with nothing in it whose watch is fed from here.
#[derive(Clone)]
struct Fed(Arc<Mutex<Option<UnboundedReceiver<WatchItem>>>>);

impl Connector for Fed {
    fn source(&self, _: &Wanted, pack: Pack) -> Result<Arc<dyn Source>, SourceError> {
        Ok(Arc::new(Packed::new(self.clone(), pack)))
    }

    fn memory(&self) -> ServerMemory {
        ServerMemory::new()
    }
}

impl Source for Fed {
    fn list(&self, _: ListRequest, _: Meter) -> BoxFuture<Result<Page, Failure>> {
        Box::pin(async { Err(Failure::Refused("this server streams".to_owned())) })
    }

    fn watch(&self, _: WatchRequest, _: Meter) -> BoxFuture<Result<Events, Failure>> {
        let fed = self.0.lock().take();
        Box::pin(async {
            let mut fed = fed.ok_or_else(|| Failure::Refused("there is one watch".to_owned()))?;
            let items = futures_util::stream::poll_fn(move |cx| fed.poll_recv(cx));
            Ok(items.map(|item| Ok(vec![item])).boxed() as Events)
        })
    }
}

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
    let (feed, watched) = unbounded_channel();
    let factory = Factory::new(Fed(Arc::new(Mutex::new(Some(watched)))));
    let (begun, mut begins) = unbounded_channel();
    let maps = Controller::<ConfigMap>::new(&factory, "maps")?;
    let maps = maps.reconcile(move |_: Context<ConfigMap>| {
        let _ = begun.send(Instant::now());
        std::future::ready(Ok(Action::Done))
    });
    let resource_version = "1".to_owned();
    feed.send(WatchItem::Bookmark { resource_version, initial_events_end: true })?;
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
