//! Where informers get their objects from.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use masthead_core::{Object, Resource, Selectors, contain};
use masthead_reflector::{
    BoxFuture, Events, Failure, ListRequest, Meter, Page, ServerMemory, Source, WatchItem,
    WatchRequest,
};
use masthead_upstream::{Namespaces, SourceError, Upstream};
use tracing::error;

/// What is done to every object before it is stored, exactly once (R16). It panics if a transform of the user
/// does: such an object is to be skipped, as [`Packed`] does.
pub type Pack = Arc<dyn Fn(Object) -> Object + Send + Sync>;

/// What a source is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The resource, with the fields that are to be found in its objects' heads.
    pub resource: Resource,
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// Only what these match.
    pub selectors: Selectors,
    /// Only the metadata.
    pub metadata_only: bool,
}

impl Wanted {
    /// What its objects say they are.
    pub fn held_resource(&self) -> Resource {
        if !self.metadata_only {
            return self.resource.clone();
        }
        let (plural, scope) = (self.resource.plural(), self.resource.scope());
        Resource::new("meta.k8s.io", "v1", plural, "PartialObjectMetadata", scope)
    }
}

/// Makes sources. An [`Upstream`] is one; tests bring their own.
pub trait Connector: Send + Sync + 'static {
    /// A source whose every object passes through `pack`.
    fn source(&self, wanted: &Wanted, pack: Pack) -> Result<Arc<dyn Source>, SourceError>;

    /// What is known of the server, for all of its sources (R2).
    fn memory(&self) -> ServerMemory;
}

impl Connector for Upstream {
    fn source(&self, wanted: &Wanted, pack: Pack) -> Result<Arc<dyn Source>, SourceError> {
        let namespaces = wanted.namespace.clone().map_or(Namespaces::All, Namespaces::One);
        let representation = if wanted.metadata_only {
            masthead_upstream::Representation::Metadata
        } else {
            masthead_upstream::Representation::Full
        };
        let source =
            Self::source(self, &wanted.resource, &namespaces, &wanted.selectors, representation)?;
        Ok(Arc::new(source.with_transform(move |object| pack(object))))
    }

    fn memory(&self) -> ServerMemory {
        Self::memory(self)
    }
}

/// A source whose objects are packed after it has made them, for connectors of one's own.
pub struct Packed<S> {
    source: S,
    pack: Pack,
}

impl<S> Packed<S> {
    /// Everything that `source` gives passes through `pack`.
    pub fn new(source: S, pack: Pack) -> Self {
        Self { source, pack }
    }
}

impl<S: Source> Source for Packed<S> {
    fn list(&self, request: ListRequest, meter: Meter) -> BoxFuture<Result<Page, Failure>> {
        let (list, pack) = (self.source.list(request, meter), self.pack.clone());
        Box::pin(async move {
            let mut page = list.await?;
            let received = page.objects.len();
            let objects = page.objects.into_iter();
            page.objects = objects.filter_map(|object| packed(&pack, object)).collect();
            page.skipped += received - page.objects.len();
            Ok(page)
        })
    }

    fn watch(&self, request: WatchRequest, meter: Meter) -> BoxFuture<Result<Events, Failure>> {
        let (watch, pack) = (self.source.watch(request, meter), self.pack.clone());
        Box::pin(async move {
            let events = PackedEvents { events: watch.await?, pack };
            Ok(Box::pin(events) as Events)
        })
    }
}

struct PackedEvents {
    events: Events,
    pack: Pack,
}

impl Stream for PackedEvents {
    type Item = Result<Vec<WatchItem>, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let items = self.events.as_mut().poll_next(cx);
        let pack = &self.pack;
        let pack = |item| packed_item(pack, item);
        items.map(|items| {
            items.map(|items| items.map(|items| items.into_iter().map(pack).collect()))
        })
    }
}

/// An object as it is to be held; none if it is skipped, because the user's transform panicked (R13).
fn packed(pack: &Pack, object: Object) -> Option<Object> {
    let key = object.key().clone();
    let packed = contain(|| pack(object)).inspect_err(|panic| {
        if !panic.is_reported() {
            error!(%key, %panic, "object cannot be packed: it is skipped");
        }
    });
    packed.ok()
}

fn packed_item(pack: &Pack, item: WatchItem) -> WatchItem {
    match item {
        WatchItem::Added(object) => {
            packed(pack, object).map_or(WatchItem::Skipped, WatchItem::Added)
        }
        WatchItem::Modified(object) => {
            packed(pack, object).map_or(WatchItem::Skipped, WatchItem::Modified)
        }
        // It is gone whatever became of its last state.
        WatchItem::Deleted(object) => packed(pack, object.clone())
            .map_or(WatchItem::DeletedUnread(object), WatchItem::Deleted),
        other => other,
    }
}
