//! How objects are held in memory, and the one place where they are made so (R16).

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use masthead_core::{Object, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::Projection;
use crate::compact::Compactor;

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
type Decode = fn(&[u8]) -> Result<Arc<dyn Any + Send + Sync>, serde_json::Error>;

/// Changes objects as JSON before they are stored. Two of them are the same if one is a clone of the
/// other.
#[derive(Clone)]
pub struct Transform(Arc<Change>);

impl Transform {
    /// It must be a function of the object alone and keep what identifies it.
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
    body: &[u8],
) -> Result<Arc<dyn Any + Send + Sync>, serde_json::Error> {
    Ok(Arc::new(serde_json::from_slice::<K>(body)?))
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
    ) -> Self {
        let form = match representation {
            Representation::Raw | Representation::Metadata => Form::Raw,
            Representation::Typed => Form::Typed(decode::<K>),
            Representation::Compact => Form::Compact(Box::default()),
        };
        Self { resource, projection, transform, form }
    }

    /// What comes from the server: changed as the user wants it, then packed.
    pub(crate) fn pack(&self, object: Object) -> Object {
        let changed = self.changed(&object).and_then(|body| self.parse(body));
        self.pack_changed(changed.unwrap_or(object))
    }

    /// What was changed before, for example by the run that saved it.
    pub(crate) fn pack_changed(&self, object: Object) -> Object {
        match &self.form {
            Form::Raw => object,
            // What cannot be decoded is kept as it is: whoever reads it is told why.
            Form::Typed(decode) => match decode(object.body()) {
                Ok(value) => self.skeleton(&object, value, object.body().len() * TYPED_FACTOR),
                Err(_) => object,
            },
            Form::Compact(compactor) => match compactor.pack(object.body()) {
                Some(packed) => {
                    let bytes = packed.bytes();
                    self.skeleton(&object, Arc::new(packed), bytes)
                }
                None => object,
            },
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

    /// A small object with the same head, and the rest beside it.
    fn skeleton(&self, object: &Object, rest: Arc<dyn Any + Send + Sync>, bytes: usize) -> Object {
        let body = skeleton(&self.resource, object).to_string();
        match self.parse(body.into()) {
            Some(small) => small.with_payload(rest, bytes),
            None => object.clone(),
        }
    }
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer").field("resource", &self.resource).finish_non_exhaustive()
    }
}

/// The part of an object that its head is made of.
fn skeleton(resource: &Resource, object: &Object) -> Value {
    let mut metadata = Map::new();
    let key = object.key();
    metadata.insert("name".into(), key.name().into());
    let texts = [
        ("namespace", key.namespace()),
        ("uid", object.uid()),
        ("resourceVersion", object.resource_version()),
        ("deletionTimestamp", object.deletion_timestamp().unwrap_or_default()),
    ];
    for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        metadata.insert(name.into(), text.into());
    }
    let labels: Map<_, _> =
        object.labels().map(|(name, value)| (name.to_owned(), value.into())).collect();
    if !labels.is_empty() {
        metadata.insert("labels".into(), labels.into());
    }
    let owners = object.owners().map(|owner| {
        json!({
            "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name,
            "uid": owner.uid, "controller": owner.controller,
        })
    });
    let owners = owners.collect::<Vec<Value>>();
    if !owners.is_empty() {
        metadata.insert("ownerReferences".into(), owners.into());
    }
    let mut whole = json!({"metadata": metadata});
    for (at, field) in resource.fields().iter().enumerate() {
        if let (Some(value), Some(path)) = (object.field(at), field.paths.first()) {
            let place = path.split('.').fold(&mut whole, |place, step| &mut place[step]);
            *place = value.into();
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use masthead_core::Labels;

    use super::*;
    use crate::compact::Packed;

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
        Packer::new::<Value>(Resource::pods(), representation, projection, None)
    }

    #[test]
    fn the_head_of_an_object_is_the_same_however_it_is_held() {
        let node = Resource::pods().field_index("spec.nodeName").unwrap();
        for representation in [Representation::Raw, Representation::Typed, Representation::Compact]
        {
            let (plain, held) = (pod(1), packer(representation).pack(pod(1)));
            assert_eq!((held.key(), held.uid()), (plain.key(), plain.uid()));
            assert_eq!(held.resource_version(), plain.resource_version());
            assert_eq!((held.label("app"), held.field(node)), (Some("we\"b"), Some("n1")));
            assert_eq!(held.owners().collect::<Vec<_>>(), plain.owners().collect::<Vec<_>>());
        }
    }

    #[test]
    fn r16_what_is_left_out_is_left_out_before_anything_is_stored() {
        let raw = packer(Representation::Raw).pack(pod(1));
        assert!(!String::from_utf8_lossy(raw.body()).contains("managedFields"));
        let typed = packer(Representation::Typed).pack(pod(1)).payload::<Value>().unwrap();
        assert_eq!(typed["metadata"]["managedFields"], Value::Null);
        assert_eq!(typed["spec"]["nodeName"], "n1");
    }

    #[test]
    fn compact_bodies_come_back_as_they_were_before_and_after_the_dictionary_is_learned() {
        let compact = packer(Representation::Compact);
        for n in 0..200 {
            let packed = compact.pack(pod(n));
            let body = packed.payload::<Packed>().unwrap().open().unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["metadata"]["name"], format!("web-{n}"));
            assert_eq!(body["spec"]["containers"][0]["image"], format!("registry/{n}"));
        }
    }

    #[test]
    fn r16_a_transform_that_breaks_an_object_is_not_believed() {
        let transform = Transform::new(|value| value["metadata"] = Value::Null);
        let (resource, raw) = (Resource::pods(), Representation::Raw);
        let packer = Packer::new::<Value>(resource, raw, Projection::default(), Some(transform));
        assert_eq!(packer.pack(pod(1)).body(), pod(1).body());
    }
}
