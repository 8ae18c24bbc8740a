//! Objects as they are stored.

use std::fmt;

use bytes::Bytes;
use masthead_core::{Object, ObjectKey, ParseError, Resource, Revision, Scope};
use serde::Deserialize;

/// An object as stored: its bytes, and its head if somebody has read it already.
///
/// What comes from a live write carries the object that was written, as its writer parsed it; what
/// comes from disk is bytes only. A clone is a reference count or two.
#[derive(Clone)]
pub struct Value {
    revision: Revision,
    body: Bytes,
    object: Option<Object>,
}

impl Value {
    /// Bytes that were stored at a revision, which they also say themselves.
    pub(crate) fn stored(revision: Revision, body: Bytes) -> Self {
        Self { revision, body, object: None }
    }

    /// When the object became this; of a deleted one, when it went.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The JSON.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The object; its head is read only if nobody has done so yet.
    pub fn object(&self, resource: &Resource) -> Result<Object, ParseError> {
        match &self.object {
            Some(object) => Ok(object.clone()),
            None => Object::parse(resource, self.body.clone()),
        }
    }

    /// The same at another revision.
    pub(crate) fn at(&self, key: &ObjectKey, revision: Revision) -> Result<Self, ParseError> {
        if let Some(object) = &self.object {
            return Ok(object.with_revision(revision).into());
        }
        // The head is read only to find the digits. It is not kept: selectable fields are declared
        // with the resource, which the store does not know.
        let object = Object::parse(&own_resource(&self.body, key), self.body.clone())?;
        Ok(Self::stored(revision, object.with_revision(revision).body().clone()))
    }
}

/// The resource that a body says it is of.
fn own_resource(body: &[u8], key: &ObjectKey) -> Resource {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct TypeMeta {
        kind: String,
        api_version: String,
    }
    // What is no JSON is refused by the parser right after this, with a better message.
    let meta: TypeMeta = serde_json::from_slice(body).unwrap_or_default();
    let (group, version) = meta.api_version.split_once('/').unwrap_or(("", &meta.api_version));
    let scope = if key.namespace().is_empty() { Scope::Cluster } else { Scope::Namespaced };
    Resource::new(group, version, "", &meta.kind, scope)
}

impl From<Object> for Value {
    fn from(object: Object) -> Self {
        Self { revision: object.revision(), body: object.body().clone(), object: Some(object) }
    }
}

impl fmt::Debug for Value {
    /// Revision and length, never content: bodies may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{} ({} bytes)", self.revision, self.body.len())
    }
}
