//! Objects as readers get them.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use masthead_compact::Packed;
use masthead_core::{Labels, Object, ObjectKey, OwnerReference, Resource, Revision};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use crate::limits::DECODED_MAX;
use crate::user_calls::UserCalls;

/// An object of an informer: its head at hand, the whole of it decoded when asked for.
///
/// Cheap to clone. It stays what it is, whatever happens to the object afterwards.
pub struct Entry<K> {
    object: Object,
    reading: Arc<Reading>,
    kind: PhantomData<fn() -> K>,
}

/// An object that is not what its informer takes it for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Its JSON does not fit the type.
    #[error("{key} cannot be read as {kind}; follow the resource untyped, or mend the type")]
    Type {
        /// Which object.
        key: ObjectKey,
        /// The type.
        kind: &'static str,
        /// What does not fit.
        #[source]
        source: serde_json::Error,
    },
    /// Its compressed body cannot be opened.
    #[error("the compressed body of {key} is damaged")]
    Damaged {
        /// Which object.
        key: ObjectKey,
        /// What the decompressor says.
        #[source]
        source: std::io::Error,
    },
    /// It is held decoded as another type, and its JSON is gone.
    #[error("{key} is held decoded: its JSON is not there")]
    Held {
        /// Which object.
        key: ObjectKey,
    },
}

/// A reader's way to what the readers of one cache share. Entries count it, so each reader has one of its
/// own: otherwise all of them, on all processors, would write to one line of memory for each entry.
pub(crate) struct Reading(Arc<Shared>);

/// What was decoded last, and how often that failed.
struct Shared {
    hasher: RandomState,
    decoded: Box<[Mutex<Option<Decoded>>]>,
    failures: AtomicU64,
    calls: UserCalls,
}

type Decoded = (Object, Arc<dyn std::any::Any + Send + Sync>);

impl Reading {
    pub(crate) fn new(resource: &Resource) -> Self {
        let decoded = (0..DECODED_MAX).map(|_| Mutex::default()).collect();
        let (hasher, failures) = (RandomState::new(), AtomicU64::new(0));
        let calls = UserCalls::new(resource.to_string());
        Self(Arc::new(Shared { hasher, decoded, failures, calls }))
    }

    /// The same for one more reader.
    pub(crate) fn another(&self) -> Arc<Self> {
        Arc::new(Self(self.0.clone()))
    }

    /// Where functions of the user are called for the cache.
    pub(crate) fn calls(&self) -> &UserCalls {
        &self.0.calls
    }

    pub(crate) fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    fn place(&self, object: &Object) -> &Mutex<Option<Decoded>> {
        let hash = self.0.hasher.hash_one(object.key().as_str());
        let places = self.0.decoded.len() as u64;
        &self.0.decoded[usize::try_from(hash % places).expect("below the number of places")]
    }
}

impl<K> Entry<K> {
    pub(crate) fn new(object: Object, reading: &Arc<Reading>) -> Self {
        Self { object, reading: reading.clone(), kind: PhantomData }
    }

    /// Namespace and name.
    pub fn key(&self) -> &ObjectKey {
        self.object.key()
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.key().name()
    }

    /// The namespace; empty where there are none.
    pub fn namespace(&self) -> &str {
        self.key().namespace()
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> &str {
        self.object.uid()
    }

    /// `metadata.resourceVersion`.
    pub fn resource_version(&self) -> &str {
        self.object.resource_version()
    }

    /// The same as a number; zero if it is none.
    pub fn revision(&self) -> Revision {
        self.object.revision()
    }

    /// `metadata.deletionTimestamp`, if the object is being deleted.
    pub fn deletion_timestamp(&self) -> Option<&str> {
        self.object.deletion_timestamp()
    }

    /// All labels.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.object.labels()
    }

    /// One label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.object.label(name)
    }

    /// The objects that own this one.
    pub fn owners(&self) -> impl Iterator<Item = OwnerReference<'_>> {
        self.object.owners()
    }

    /// Returns `true` if both are one object in memory.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.object.ptr_eq(&other.object)
    }

    /// The bytes and the head, as the cache has them.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// The JSON, where it is held.
    pub fn json(&self) -> Result<Bytes, DecodeError> {
        json(&self.object)
    }
}

/// The JSON of an object, where it is held.
pub(crate) fn json(object: &Object) -> Result<Bytes, DecodeError> {
    let key = || object.key().clone();
    if let Some(packed) = object.content::<Packed>() {
        let opened = packed.open().map(Bytes::from);
        return opened.map_err(|source| DecodeError::Damaged { key: key(), source });
    }
    if object.is_held() {
        return Err(DecodeError::Held { key: key() });
    }
    Ok(object.body().clone())
}

impl<K: DeserializeOwned + Send + Sync + 'static> Entry<K> {
    /// The object as its type. Free where it is held so; otherwise decoded, unless somebody just did.
    pub fn decode(&self) -> Result<Arc<K>, DecodeError> {
        if let Some(held) = self.object.content::<K>() {
            return Ok(held);
        }
        let place = self.reading.place(&self.object);
        let known = place.lock().clone().filter(|(object, _)| object.ptr_eq(&self.object));
        if let Some(value) = known.and_then(|(_, value)| value.downcast::<K>().ok()) {
            return Ok(value);
        }
        let value = self.decode_anew().inspect_err(|_| {
            self.reading.0.failures.fetch_add(1, Ordering::Relaxed);
        })?;
        *place.lock() = Some((self.object.clone(), value.clone()));
        Ok(value)
    }

    fn decode_anew(&self) -> Result<Arc<K>, DecodeError> {
        let json = self.json()?;
        serde_json::from_slice(&json).map(Arc::new).map_err(|source| DecodeError::Type {
            key: self.key().clone(),
            kind: std::any::type_name::<K>(),
            source,
        })
    }
}

impl<K> Clone for Entry<K> {
    fn clone(&self) -> Self {
        Self::new(self.object.clone(), &self.reading)
    }
}

impl<K> fmt::Debug for Entry<K> {
    /// Key and version, never content: bodies may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object.fmt(f)
    }
}
