//! Something to be done before an object goes.

use std::fmt::Debug;

use kube_client::api::{Patch, PatchParams};
use kube_client::{Api, Error};
use kube_core::Resource;
use serde::de::DeserializeOwned;
use serde_json::json;

/// Where an object is in its life, as far as one finalizer is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finalizer {
    /// It lives and does not have the finalizer: [`Finalizer::add`] it before there is something to clean up.
    Missing,
    /// It lives and has it.
    Present,
    /// It is to go, and waits: clean up, then [`Finalizer::remove`] it.
    CleanUp,
    /// It is to go, and does not wait for this finalizer.
    Gone,
}

impl Finalizer {
    /// Where an object is.
    pub fn of<K: Resource>(object: &K, name: &str) -> Self {
        let meta = object.meta();
        let has = meta.finalizers.iter().flatten().any(|it| it == name);
        match (meta.deletion_timestamp.is_some(), has) {
            (false, false) => Self::Missing,
            (false, true) => Self::Present,
            (true, true) => Self::CleanUp,
            (true, false) => Self::Gone,
        }
    }

    /// Adds the finalizer, on condition that the object is still the one that was read.
    pub async fn add<K>(api: &Api<K>, object: &K, name: &str) -> Result<K, Error>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        let others = object.meta().finalizers.iter().flatten().filter(|it| *it != name);
        let all: Vec<_> = others.map(String::as_str).chain([name]).collect();
        replace(api, object, &all).await
    }

    /// Removes it, on the same condition.
    pub async fn remove<K>(api: &Api<K>, object: &K, name: &str) -> Result<K, Error>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        let others = object.meta().finalizers.iter().flatten().filter(|it| *it != name);
        replace(api, object, &others.map(String::as_str).collect::<Vec<_>>()).await
    }
}

async fn replace<K>(api: &Api<K>, object: &K, finalizers: &[&str]) -> Result<K, Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let meta = object.meta();
    let patch = json!({"metadata": {
        "finalizers": finalizers, "resourceVersion": meta.resource_version, "uid": meta.uid,
    }});
    let name = meta.name.as_deref().unwrap_or_default();
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
}
