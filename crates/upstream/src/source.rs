//! One resource of an API server as a source.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use masthead_core::{Object, Resource, Scope, Selectors};
use masthead_reflector::{
    BoxFuture, Decoder, Events, Failure, ListRequest, Meter, Page, Source, WatchItem, WatchRequest,
};

use crate::Upstream;
use crate::answer::Chunks;
use crate::lines::Lines;
use crate::pool::Purpose;
use crate::query::Query;
use crate::split::Splitter;
use crate::upstream::Manner;

/// Which namespaces are looked at.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Namespaces {
    /// All of them, and what belongs to none.
    #[default]
    All,
    /// This one.
    One(String),
}

/// How much of each object is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Representation {
    /// All of it.
    #[default]
    Full,
    /// Its metadata, as a `PartialObjectMetadata`: a tenth of the bytes.
    Metadata,
}

impl Representation {
    const fn accept(self, purpose: Purpose) -> &'static str {
        match (self, purpose) {
            (Self::Full, _) => "application/json",
            (Self::Metadata, Purpose::List) => {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
            }
            (Self::Metadata, Purpose::Watch) => {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
            }
        }
    }

    /// What its objects say they are.
    fn resource(self, of: &Resource) -> Resource {
        match self {
            Self::Full => of.clone(),
            Self::Metadata => {
                Resource::new("meta.k8s.io", "v1", of.plural(), "PartialObjectMetadata", of.scope())
            }
        }
    }
}

/// Why there is no such source.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A namespace for what has none.
    #[error("{resource} belong to the whole cluster: ask for all namespaces")]
    NoNamespaces {
        /// What was asked for.
        resource: String,
    },
    /// A namespace without a name.
    #[error("the namespace has no name: ask for all namespaces, or name one")]
    EmptyNamespace,
}

/// Lists and watches of one resource.
///
/// A list is read as it arrives: each item becomes an object of its own as soon as it is whole, so a list
/// of any length needs its objects, one item and one chunk.
#[derive(Clone, Debug)]
pub struct ApiSource {
    upstream: Upstream,
    /// The collection's path.
    path: String,
    selectors: Query,
    representation: Representation,
    decoder: Decoder,
}

impl ApiSource {
    pub(crate) fn new(
        upstream: Upstream,
        resource: &Resource,
        namespaces: &Namespaces,
        selectors: &Selectors,
        representation: Representation,
    ) -> Result<Self, SourceError> {
        let path = path(resource, namespaces)?;
        let decoder = Decoder::new(representation.resource(resource));
        let selectors = Query::selecting(selectors);
        Ok(Self { upstream, path, selectors, representation, decoder })
    }

    /// Every object passes through `transform` before anything is stored (R16). It must keep the key.
    pub fn with_transform(
        self,
        transform: impl Fn(Object) -> Object + Send + Sync + 'static,
    ) -> Self {
        Self { decoder: self.decoder.with_transform(transform), ..self }
    }

    async fn open(&self, query: &Query, manner: Manner, meter: Meter) -> Result<Chunks, Failure> {
        let accept = self.representation.accept(manner.purpose);
        let outgoing = self.upstream.outgoing(&format!("{}?{query}", self.path), accept)?;
        self.upstream.send(&outgoing, manner, meter).await
    }
}

/// The path of a collection (W1).
fn path(resource: &Resource, namespaces: &Namespaces) -> Result<String, SourceError> {
    let root = match resource.group() {
        "" => format!("/api/{}", resource.version()),
        group => format!("/apis/{group}/{}", resource.version()),
    };
    let plural = resource.plural();
    match namespaces {
        Namespaces::All => Ok(format!("{root}/{plural}")),
        Namespaces::One(_) if resource.scope() == Scope::Cluster => {
            Err(SourceError::NoNamespaces { resource: resource.to_string() })
        }
        Namespaces::One(name) if name.is_empty() => Err(SourceError::EmptyNamespace),
        Namespaces::One(name) => {
            let name = crate::query::encoded(name);
            Ok(format!("{root}/namespaces/{name}/{plural}"))
        }
    }
}

impl Source for ApiSource {
    fn list(&self, request: ListRequest, meter: Meter) -> BoxFuture<Result<Page, Failure>> {
        let source = self.clone();
        Box::pin(async move {
            let query = source.selectors.clone().list(&request);
            let manner = Manner { purpose: Purpose::List, elsewhere: request.elsewhere };
            let chunks = source.open(&query, manner, meter).await?;
            read_page(chunks, &source.decoder, request.bytes_max).await
        })
    }

    fn watch(&self, request: WatchRequest, meter: Meter) -> BoxFuture<Result<Events, Failure>> {
        let source = self.clone();
        Box::pin(async move {
            let query = source.selectors.clone().watch(&request);
            let manner = Manner { purpose: Purpose::Watch, elsewhere: request.elsewhere };
            let chunks = source.open(&query, manner, meter).await?;
            let decoder = source.decoder;
            let events = Watching { chunks, lines: Some(Lines::default()), broken: None, decoder };
            Ok(Box::pin(events) as Events)
        })
    }
}

/// Reads a page whose objects may hold `bytes_max` bytes of memory.
async fn read_page(
    mut chunks: Chunks,
    decoder: &Decoder,
    bytes_max: usize,
) -> Result<Page, Failure> {
    let mut page = Page::default();
    let mut bytes = 0;
    let mut splitter = Splitter::new();
    while let Some(chunk) = chunks.next().await {
        splitter.feed(&chunk?, |item| {
            match decoder.item(item)? {
                Some(object) => {
                    bytes += object.body_bytes() + object.head_bytes();
                    if bytes > bytes_max {
                        return Err(Failure::TooLarge { limit: bytes_max });
                    }
                    page.objects.push(object);
                }
                None => page.skipped += 1,
            }
            Ok(())
        })?;
    }
    let about = splitter.finish()?;
    page.resource_version = about.resource_version;
    page.continue_token = about.continue_token;
    page.remaining = about.remaining;
    Ok(page)
}

/// The events of a watch, all of one chunk at a time.
struct Watching {
    chunks: Chunks,
    /// None when the stream is over.
    lines: Option<Lines>,
    /// What comes after the events before it were told.
    broken: Option<Failure>,
    decoder: Decoder,
}

impl Watching {
    /// What a chunk, or the end of the stream, makes of it.
    fn take(&mut self, chunk: Option<Result<Bytes, Failure>>) -> Vec<WatchItem> {
        let mut items = Vec::new();
        let mut lines = self.lines.take().expect("nothing comes after the end");
        let decoder = &self.decoder;
        let mut read = |line: &[u8]| {
            items.push(decoder.line(line)?);
            Ok(())
        };
        let taken = match chunk {
            Some(Ok(chunk)) => lines.feed(&chunk, &mut read).map(|()| Some(lines)),
            Some(Err(failure)) => Err(failure),
            None => lines.finish(&mut read).map(|()| None),
        };
        match taken {
            Ok(lines) => self.lines = lines,
            Err(failure) => self.broken = Some(failure),
        }
        items
    }
}

impl Stream for Watching {
    type Item = Result<Vec<WatchItem>, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while self.lines.is_some() {
            let chunk = ready!(self.chunks.poll_next(cx));
            let items = self.take(chunk);
            if !items.is_empty() {
                return Poll::Ready(Some(Ok(items)));
            }
        }
        Poll::Ready(self.broken.take().map(Err))
    }
}
