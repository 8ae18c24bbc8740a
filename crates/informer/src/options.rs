//! What an informer is asked for.

use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use masthead_cache::HistoryLimits;
use masthead_core::{
    FieldSelector, LabelSelector, Resource, SelectableField, SelectorError, Selectors,
    ShardSelector,
};
use masthead_upstream::SourceError;
use serde::de::DeserializeOwned;

use crate::connector::Wanted;
use crate::entry::Reading;
use crate::factory::Factory;
use crate::informer::Informer;
use crate::limits::{FIELDS_MAX, HISTORY_BYTES, HISTORY_CHANGES, NAMESPACES_MAX, UNREAD_BYTES};
use crate::part::{Demand, PartKey, Plan};
use crate::representation::{Packer, held_type};
use crate::{Index, Projection, Representation, Transform};

/// Why an informer cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A selector that does not parse.
    #[error(transparent)]
    Selector(#[from] SelectorError),
    /// The server cannot be asked so.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// More namespaces than one informer follows one by one.
    #[error(
        "an informer follows at most {NAMESPACES_MAX} namespaces one by one: follow all and select"
    )]
    TooManyNamespaces,
    /// More fields than objects have room for.
    #[error("an informer knows at most {FIELDS_MAX} fields")]
    TooManyFields,
    /// An index that the cache does not take.
    #[error(transparent)]
    Index(#[from] masthead_cache::AddIndexError),
    /// A place on disk for what is held decoded.
    #[error("caches that hold decoded objects cannot be saved: use Raw, Compact or Metadata")]
    TypedSaved,
    /// A place on disk for more than one cache.
    #[error("a cache is saved for one namespace or for all, not for several")]
    SeveralSaved,
}

/// Describes an informer: see [`Factory::informer`]. Everything has a default.
#[must_use]
pub struct InformerBuilder<K> {
    factory: Factory,
    resource: Resource,
    namespaces: Vec<String>,
    labels: String,
    fields: String,
    shard: String,
    known: Vec<String>,
    representation: Representation,
    projection: Projection,
    transform: Option<Transform>,
    indexes: Vec<Index<K>>,
    history: HistoryLimits,
    demand: Demand,
    saved: Option<PathBuf>,
    kind: PhantomData<fn() -> K>,
}

impl<K: DeserializeOwned + Send + Sync + 'static> InformerBuilder<K> {
    pub(crate) fn new(factory: Factory, resource: Resource, metadata_only: bool) -> Self {
        let representation =
            if metadata_only { Representation::Metadata } else { Representation::Raw };
        Self {
            factory,
            resource,
            namespaces: Vec::new(),
            labels: String::new(),
            fields: String::new(),
            shard: String::new(),
            known: Vec::new(),
            representation,
            projection: Projection::default(),
            transform: None,
            indexes: Vec::new(),
            history: HistoryLimits {
                changes: HISTORY_CHANGES,
                bytes: HISTORY_BYTES,
                unread_bytes: UNREAD_BYTES,
                ..HistoryLimits::default()
            },
            demand: Demand { required: true, critical: false, sync_timeout: None },
            saved: None,
            kind: PhantomData,
        }
    }

    /// Only this namespace; several calls make it several, each with a list and a watch of its own.
    pub fn namespace(mut self, name: &str) -> Self {
        if !self.namespaces.iter().any(|other| other == name) {
            self.namespaces.push(name.to_owned());
        }
        self
    }

    /// Only what this label selector matches: `app=web,tier in (a, b)`.
    pub fn labels(mut self, selector: &str) -> Self {
        selector.clone_into(&mut self.labels);
        self
    }

    /// Only what this field selector matches: `spec.nodeName=n1`. The server decides which fields it
    /// takes.
    pub fn fields(mut self, selector: &str) -> Self {
        selector.clone_into(&mut self.fields);
        self
    }

    /// Only one shard: `shardRange(object.metadata.uid, '0x0', '0x8')`.
    pub fn shard(mut self, selector: &str) -> Self {
        selector.clone_into(&mut self.shard);
        self
    }

    /// How objects are held.
    pub fn representation(mut self, representation: Representation) -> Self {
        self.representation = representation;
        self
    }

    /// What of each object is held.
    pub fn project(mut self, projection: Projection) -> Self {
        self.projection = projection;
        self
    }

    /// Changes each object before it is held. Informers share a cache only if they have the same one.
    pub fn transform(mut self, transform: Transform) -> Self {
        self.transform = Some(transform);
        self
    }

    /// An index from the start.
    pub fn index(mut self, index: Index<K>) -> Self {
        self.known.extend(index.of_field().map(str::to_owned));
        self.indexes.push(index);
        self
    }

    /// How much history is kept for handlers that are slow.
    pub fn history(mut self, history: HistoryLimits) -> Self {
        self.history = history;
        self
    }

    /// A wait for the factory does not fail if this one does not sync.
    pub fn optional(mut self) -> Self {
        self.demand.required = false;
        self
    }

    /// Synced before those that are not.
    pub fn critical(mut self) -> Self {
        self.demand.critical = true;
        self
    }

    /// How long a wait for the factory waits for this one.
    pub fn sync_timeout(mut self, timeout: Duration) -> Self {
        self.demand.sync_timeout = Some(timeout);
        self
    }

    /// Where the cache is saved and, at the next start, resumed from: the server is asked only for what
    /// has changed since, and for everything only if it does not know that any more.
    pub fn saved_at(mut self, path: impl Into<PathBuf>) -> Self {
        self.saved = Some(path.into());
        self
    }

    /// The informer. If its factory runs, it runs too.
    pub fn build(self) -> Result<Informer<K>, BuildError> {
        let resource = self.resource_with_fields()?;
        let selectors = Selectors {
            labels: LabelSelector::parse(&self.labels)?,
            fields: FieldSelector::parse(&self.fields, &resource)?,
            shard: ShardSelector::parse(&self.shard)?,
        };
        if self.namespaces.len() > NAMESPACES_MAX {
            return Err(BuildError::TooManyNamespaces);
        }
        if self.saved.is_some() && self.representation == Representation::Typed {
            return Err(BuildError::TypedSaved);
        }
        if self.saved.is_some() && self.namespaces.len() > 1 {
            return Err(BuildError::SeveralSaved);
        }
        let namespaces = match self.namespaces.as_slice() {
            [] => vec![None],
            names => names.iter().cloned().map(Some).collect(),
        };
        let parts = namespaces.into_iter().map(|namespace| {
            let metadata_only = self.representation == Representation::Metadata;
            let (resource, selectors) = (resource.clone(), selectors.clone());
            let wanted = Wanted { resource, namespace, selectors, metadata_only };
            self.factory.part(self.key(&wanted), || self.plan(wanted), self.demand)
        });
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let informer = Informer::new(self.factory, parts);
        // Indexes of a cache that was there before.
        for index in &self.indexes {
            informer.ensure_index(index)?;
        }
        Ok(informer)
    }

    /// The resource with every field that selectors or indexes name.
    fn resource_with_fields(&self) -> Result<Resource, BuildError> {
        let mut fields = self.resource.fields().to_vec();
        let named = self.fields.split(',').filter_map(|term| term.split(['=', '!']).next());
        for label in named.map(str::trim).chain(self.known.iter().map(String::as_str)) {
            let known = matches!(label, "" | "metadata.name" | "metadata.namespace");
            if !known && !fields.iter().any(|field| field.label == label) {
                fields.push(SelectableField::at(label));
            }
        }
        if fields.len() > FIELDS_MAX {
            return Err(BuildError::TooManyFields);
        }
        Ok(self.resource.with_fields(fields))
    }

    fn key(&self, wanted: &Wanted) -> PartKey {
        let resource = &wanted.resource;
        let names = [resource.group(), resource.version(), resource.plural()];
        PartKey {
            resource: names.map(str::to_owned).into(),
            fields: resource.fields().iter().map(|field| field.label.clone()).collect(),
            namespace: wanted.namespace.clone(),
            selectors: texts(&wanted.selectors),
            representation: self.representation,
            held_type: held_type::<K>(self.representation),
            projection: self.projection.clone(),
            transform: self.transform.as_ref().map(Transform::address),
        }
    }

    fn plan(&self, wanted: Wanted) -> Plan {
        let reading = Arc::new(Reading::new(&wanted.resource));
        let resource = wanted.held_resource();
        let indexes = self.indexes.iter().map(|index| index.cached(&resource, &reading)).collect();
        let (projection, transform) = (self.projection.clone(), self.transform.clone());
        let reader = reading.another();
        let packer = Packer::new::<K>(resource, self.representation, projection, transform, reader);
        let (history, demand, saved) = (self.history, self.demand, self.saved.clone());
        let settings = self.factory.reflector_settings();
        let (seed, on_error) = (self.factory.seed(), self.factory.error_callback());
        Plan { wanted, packer, history, indexes, settings, demand, saved, reading, seed, on_error }
    }
}

/// Selectors as they go over the wire.
pub(crate) fn texts(selectors: &Selectors) -> [String; 3] {
    let Selectors { labels, fields, shard } = selectors;
    [labels.to_string(), fields.to_string(), shard.to_string()]
}
