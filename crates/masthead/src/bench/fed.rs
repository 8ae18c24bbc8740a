//! A server whose one watch is fed from here.

use std::sync::Arc;

use futures_util::StreamExt as _;
use masthead_informer::upstream::SourceError;
use masthead_informer::{Connector, Pack, Packed, Wanted};
use masthead_reflector::{
    BoxFuture, Events, Failure, ListRequest, Meter, Page, ServerMemory, Source, WatchItem,
    WatchRequest,
};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Events that are read together if they are there.
const TOGETHER: usize = 100;

#[derive(Clone)]
pub(super) struct Fed(Arc<Mutex<Option<UnboundedReceiver<WatchItem>>>>);

impl Fed {
    /// The server, and what feeds it: initial events, a bookmark that ends them, events.
    pub(super) fn new() -> (UnboundedSender<WatchItem>, Self) {
        let (feed, watched) = unbounded_channel();
        (feed, Self(Arc::new(Mutex::new(Some(watched)))))
    }
}

/// The end of the initial events.
pub(super) fn synced(revision: u64) -> WatchItem {
    WatchItem::Bookmark { resource_version: revision.to_string(), initial_events_end: true }
}

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
            Ok(items.ready_chunks(TOGETHER).map(Ok).boxed() as Events)
        })
    }
}
