//! From Rust types to resources.

use kube_core::{ClusterResourceScope, NamespaceResourceScope};
use masthead_core::{Resource, Scope};
use serde::de::DeserializeOwned;

/// A type whose objects can be followed: `k8s-openapi`'s, `#[derive(CustomResource)]`'s, or one's own.
pub trait Kind: DeserializeOwned + Send + Sync + 'static {
    /// The resource that its objects are of.
    fn resource() -> Resource;
}

/// Scopes that are known to the compiler.
pub trait KnownScope {
    /// The scope as a value.
    const SCOPE: Scope;
}

impl KnownScope for NamespaceResourceScope {
    const SCOPE: Scope = Scope::Namespaced;
}

impl KnownScope for ClusterResourceScope {
    const SCOPE: Scope = Scope::Cluster;
}

impl<K> Kind for K
where
    K: kube_core::Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    K::Scope: KnownScope,
{
    fn resource() -> Resource {
        let (group, version) = (K::group(&()), K::version(&()));
        let (plural, kind) = (K::plural(&()), K::kind(&()));
        Resource::new(&group, &version, &plural, &kind, K::Scope::SCOPE)
    }
}
