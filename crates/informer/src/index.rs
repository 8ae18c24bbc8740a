//! Named ways to find objects.

use std::fmt;
use std::sync::Arc;

use masthead_cache::{IndexError, IndexValues};
use masthead_core::{Labels, Resource};
use serde::de::DeserializeOwned;

use crate::Entry;
use crate::entry::Reading;
use crate::user_calls::UserFunction;

type Function<K> = dyn Fn(&Entry<K>, &mut IndexValues) -> Result<(), IndexError> + Send + Sync;

/// An index of an informer: from a value to the objects that have it. A function that panics leaves the object
/// out of its index, and is logged and counted: see [`UserPanics`](crate::UserPanics).
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use masthead_informer::Index;
///
/// let by_node: Index<Pod> = Index::field("node", "spec.nodeName");
/// let by_app: Index<Pod> = Index::label("app", "app.kubernetes.io/name");
/// let by_image: Index<Pod> = Index::by("image", |pod: &Pod, values| {
///     let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
///     values.extend(containers.filter_map(|container| container.image.as_deref()));
/// });
/// ```
pub struct Index<K> {
    name: String,
    by: By<K>,
}

enum By<K> {
    Field(String),
    Label(String),
    Function(Arc<Function<K>>),
}

impl<K> Index<K> {
    /// By a field of the object: found without decoding it.
    pub fn field(name: &str, path: &str) -> Self {
        Self { name: name.to_owned(), by: By::Field(path.to_owned()) }
    }

    /// By a label.
    pub fn label(name: &str, label: &str) -> Self {
        Self { name: name.to_owned(), by: By::Label(label.to_owned()) }
    }

    /// By what a function makes of the object's head.
    pub fn by_entry(
        name: &str,
        function: impl Fn(&Entry<K>, &mut IndexValues) -> Result<(), IndexError> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.to_owned(), by: By::Function(Arc::new(function)) }
    }

    /// By what a function makes of the object. Unless it is held typed, it is decoded for it at every
    /// change.
    pub fn by(name: &str, function: impl Fn(&K, &mut IndexValues) + Send + Sync + 'static) -> Self
    where
        K: DeserializeOwned + Send + Sync + 'static,
    {
        Self::by_entry(name, move |entry, values| {
            let object = entry.decode().map_err(|error| IndexError(error.to_string()))?;
            function(&object, values);
            Ok(())
        })
    }

    /// What lookups call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The field that it needs.
    pub(crate) fn of_field(&self) -> Option<&str> {
        match &self.by {
            By::Field(path) => Some(path),
            _ => None,
        }
    }
}

impl<K: 'static> Index<K> {
    /// The index as the cache has it.
    pub(crate) fn cached(&self, resource: &Resource, reading: &Reading) -> masthead_cache::Index {
        match &self.by {
            By::Field(path) => match resource.field_index(path) {
                Some(at) => masthead_cache::Index::field(&self.name, at),
                None => by_path(&self.name, path),
            },
            By::Label(label) => {
                let label = label.clone();
                masthead_cache::Index::new(&self.name, move |object, values| {
                    values.extend(object.label(&label));
                    Ok(())
                })
            }
            By::Function(function) => {
                let (function, reading) = (function.clone(), reading.another());
                masthead_cache::Index::new(&self.name, move |object, values| {
                    let entry = Entry::new(object.clone(), &reading);
                    let key = Some(object.key());
                    let called = reading
                        .calls()
                        .contain(UserFunction::Index, key, || function(&entry, values));
                    called.unwrap_or_else(|panic| Err(IndexError(panic.to_string())))
                })
            }
        }
    }
}

/// For a field that was not asked for when the cache was made: read from the JSON.
fn by_path(name: &str, path: &str) -> masthead_cache::Index {
    let pointer = format!("/{}", path.replace('.', "/"));
    masthead_cache::Index::new(name, move |object, values| {
        let failed = |error: &dyn fmt::Display| IndexError(error.to_string());
        let json = crate::entry::json(object).map_err(|error| failed(&error))?;
        let value: serde_json::Value =
            serde_json::from_slice(&json).map_err(|error| failed(&error))?;
        match value.pointer(&pointer) {
            Some(serde_json::Value::String(text)) => values.push(text),
            None | Some(serde_json::Value::Null) => {}
            Some(other) => values.push(&other.to_string()),
        }
        Ok(())
    })
}

impl<K> Clone for Index<K> {
    fn clone(&self) -> Self {
        let by = match &self.by {
            By::Field(path) => By::Field(path.clone()),
            By::Label(label) => By::Label(label.clone()),
            By::Function(function) => By::Function(function.clone()),
        };
        Self { name: self.name.clone(), by }
    }
}

impl<K> fmt::Debug for Index<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Index").field(&self.name).finish()
    }
}
