//! How objects are held in memory, and the one place where they are made so (R16).

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use masthead_cache::Cache;
use masthead_compact::Compactor;
use masthead_core::{Object, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Projection;
use crate::entry::Reading;
use crate::exact;
use crate::user_calls::UserFunction;

/// How an informer holds its objects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Representation {
    /// Their JSON, decoded when somebody reads: about the size of the JSON. The default.
    #[default]
    Raw,
    /// Decoded, as `Arc<K>`: reads cost nothing, memory is several times the JSON.
    Typed,
    /// Their JSON, compressed with a dictionary that is learned from the kind: a fraction of the JSON,
    /// and some microseconds more to read than `Raw`.
    Compact,
    /// Only the metadata, which is also all that the server sends.
    Metadata,
}

type Change = dyn Fn(&mut Value) + Send + Sync;
type Decode = fn(&str) -> Result<Arc<dyn Any + Send + Sync>, serde_json::Error>;

/// Changes objects as JSON before they are stored. Two of them are the same if one is a clone of the
/// other.
#[derive(Clone)]
pub struct Transform(Arc<Change>);

impl Transform {
    /// It must be a function of the object alone and keep what identifies it. An object for which it panics is
    /// skipped: it is logged, and counted in the report (R13).
    pub fn new(change: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        Self(Arc::new(change))
    }

    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).cast::<()>() as usize
    }
}

impl fmt::Debug for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transform")
    }
}

/// Makes of what a server sends what a cache holds.
pub(crate) struct Packer {
    resource: Resource,
    projection: Projection,
    transform: Option<Transform>,
    form: Form,
    reading: Arc<Reading>,
}

enum Form {
    Raw,
    Typed(Decode),
    Compact(Box<Compactor>),
}

/// Typed caches are of one type; all others can be read as any.
pub(crate) fn held_type<K: 'static>(representation: Representation) -> Option<TypeId> {
    (representation == Representation::Typed).then(TypeId::of::<K>)
}

fn decode<K: DeserializeOwned + Send + Sync + 'static>(
    body: &str,
) -> Result<Arc<dyn Any + Send + Sync>, serde_json::Error> {
    Ok(Arc::new(exact::decode::<K>(body)?))
}

/// Decoded objects take about this many times their JSON: strings and vectors of their own for
/// everything. Only for the books.
const TYPED_FACTOR: usize = 6;

impl Packer {
    pub(crate) fn new<K: DeserializeOwned + Send + Sync + 'static>(
        resource: Resource,
        representation: Representation,
        projection: Projection,
        transform: Option<Transform>,
        reading: Arc<Reading>,
    ) -> Self {
        let form = match representation {
            Representation::Raw | Representation::Metadata => Form::Raw,
            Representation::Typed => Form::Typed(decode::<K>),
            Representation::Compact => Form::Compact(Box::default()),
        };
        Self { resource, projection, transform, form, reading }
    }

    /// What comes from the server: changed as the user wants it, then packed, unless `cache` has it
    /// already.
    ///
    /// Panics if the user's transform does, after that was logged and counted: the object is to be skipped.
    pub(crate) fn pack(&self, object: Object, cache: &Cache) -> Object {
        let (calls, key) = (self.reading.calls(), Some(object.key()));
        let changed = calls.contain(UserFunction::Transform, key, || self.changed(&object));
        let changed = changed.unwrap_or_else(|panic| panic.raise_again());
        let parsed = changed.and_then(|body| self.parse(body));
        let changed = parsed.filter(|changed| changed.key() == object.key());
        self.pack_changed(changed.unwrap_or(object), cache)
    }

    /// What was changed before, for example by the run that saved it.
    pub(crate) fn pack_changed(&self, object: Object, cache: &Cache) -> Object {
        if matches!(self.form, Form::Raw) {
            return object;
        }
        let digest = masthead_compact::digest(&object);
        // The digest has the resource version in it: a body that is the same is the same object.
        if let Some(cached) = cache.get(object.key()).filter(|cached| cached.has_digest(digest)) {
            return cached;
        }
        // What cannot be packed is kept as it is: whoever reads it is told why.
        self.held(&object, digest).unwrap_or(object)
    }

    /// The object in the form in which it is held.
    fn held(&self, object: &Object, digest: u64) -> Option<Object> {
        match &self.form {
            Form::Raw => None,
            Form::Typed(decode) => {
                let bytes = object.body().len() * TYPED_FACTOR;
                let (calls, key) = (self.reading.calls(), Some(object.key()));
                let decoded =
                    calls.contain(UserFunction::Decode, key, || decode(object.body_text()));
                Some(object.held_as(decoded.ok()?.ok()?, bytes, digest))
            }
            Form::Compact(compactor) => compactor.hold(object),
        }
    }

    fn changed(&self, object: &Object) -> Option<Bytes> {
        let body = object.body();
        let projected =
            if self.projection.is_everything() { None } else { self.projection.apply(body).ok() };
        let Some(Transform(change)) = &self.transform else { return projected.map(Bytes::from) };
        let mut value = serde_json::from_slice(projected.as_deref().unwrap_or(body)).ok()?;
        change(&mut value);
        serde_json::to_vec(&value).ok().map(Bytes::from)
    }

    fn parse(&self, body: Bytes) -> Option<Object> {
        Object::parse(&self.resource, body).ok()
    }
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer").field("resource", &self.resource).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use masthead_cache::Config;
    use masthead_compact::Packed;
    use masthead_core::{Labels, Revision, Time};
    use serde_json::json;

    use super::*;

    fn pod(n: usize) -> Object {
        let body = json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {
                "name": format!("web-{n}"), "namespace": "shop", "uid": format!("u{n}"), "resourceVersion": "7",
                "labels": {"app": "we\"b"}, "managedFields": [{"manager": "x"}],
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "o", "controller": true}],
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": format!("registry/{n}")}]},
        });
        Object::parse(&Resource::pods(), body.to_string().into()).unwrap()
    }

    fn packer(representation: Representation) -> Packer {
        let projection = Projection::dropping(["metadata.managedFields"]);
        let reading = Arc::new(Reading::new(&Resource::pods()));
        Packer::new::<Value>(Resource::pods(), representation, projection, None, reading)
    }

    fn pack(packer: &Packer, object: Object) -> Object {
        packer.pack(object, &Cache::new(Config::default()).1)
    }

    #[test]
    fn the_head_of_an_object_is_the_same_however_it_is_held() {
        let node = Resource::pods().field_index("spec.nodeName").unwrap();
        for representation in [Representation::Raw, Representation::Typed, Representation::Compact]
        {
            let (plain, held) = (pod(1), pack(&packer(representation), pod(1)));
            assert_eq!((held.key(), held.uid()), (plain.key(), plain.uid()));
            assert_eq!(held.resource_version(), plain.resource_version());
            assert_eq!((held.label("app"), held.field(node)), (Some("we\"b"), Some("n1")));
            assert_eq!(held.owners().collect::<Vec<_>>(), plain.owners().collect::<Vec<_>>());
        }
    }

    #[test]
    fn r16_what_is_left_out_is_left_out_before_anything_is_stored() {
        let raw = pack(&packer(Representation::Raw), pod(1));
        assert!(!String::from_utf8_lossy(raw.body()).contains("managedFields"));
        let typed = pack(&packer(Representation::Typed), pod(1)).content::<Value>().unwrap();
        assert_eq!(typed["metadata"]["managedFields"], Value::Null);
        assert_eq!(typed["spec"]["nodeName"], "n1");
    }

    #[test]
    fn compact_bodies_come_back_as_they_were_whatever_dictionary_they_had() {
        let compact = packer(Representation::Compact);
        let mut sizes = Vec::new();
        for n in 0..1100 {
            let packed = pack(&compact, pod(n)).content::<Packed>().unwrap();
            let body: Value = serde_json::from_slice(&packed.open().unwrap()).unwrap();
            assert_eq!(body["metadata"]["name"], format!("web-{n}"));
            assert_eq!(body["spec"]["containers"][0]["image"], format!("registry/{n}"));
            sizes.push(packed.bytes());
        }
        assert!(2 * sizes[1099] < sizes[0], "{} and {}", sizes[0], sizes[1099]);
    }

    #[test]
    fn r16_a_transform_that_breaks_an_object_is_not_believed() {
        let breaks = Transform::new(|value| value["metadata"] = Value::Null);
        let renames = Transform::new(|value| value["metadata"]["name"] = "other".into());
        for transform in [breaks, renames] {
            let (resource, raw) = (Resource::pods(), Representation::Raw);
            let (everything, reading) = (Projection::default(), Arc::new(Reading::new(&resource)));
            let packer = Packer::new::<Value>(resource, raw, everything, Some(transform), reading);
            assert_eq!(pack(&packer, pod(1)).body(), pod(1).body());
        }
    }

    #[test]
    fn what_the_cache_has_is_not_packed_again_and_other_content_of_the_same_version_is() {
        for representation in [Representation::Typed, Representation::Compact] {
            let packer = packer(representation);
            let (mut writer, cache) = Cache::new(Config::default());
            let first = packer.pack(pod(1), &cache);
            writer.replace(vec![first.clone()], Revision(7), Time(0)).unwrap();
            assert!(packer.pack(pod(1), &cache).ptr_eq(&first));
            let text = pod(1).body_text().replace("registry/1", "registry/2");
            let other = Object::parse(&Resource::pods(), text.into()).unwrap();
            let other = packer.pack(other, &cache);
            assert_eq!(other.resource_version(), first.resource_version());
            assert_ne!(other.body(), first.body(), "so that a cache takes it for news");
        }
    }
}
