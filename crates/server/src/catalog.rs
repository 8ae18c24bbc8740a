//! What is served now: the built-in resources and those of CustomResourceDefinitions.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use masthead_store::ResourceName;

use crate::resources::{Kind, built_in};

/// The resources that are served. Readers see one state of it; it changes as a whole.
#[derive(Debug)]
pub(crate) struct Catalog(ArcSwap<Kinds>);

/// One state of the catalog.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    /// Sorted by group, version and plural.
    sorted: Vec<Arc<Kind>>,
    /// All versions of a resource by the name that the store has for it, the stored version first.
    by_name: HashMap<ResourceName, Vec<Arc<Kind>>>,
}

impl Catalog {
    pub(crate) fn new() -> Self {
        let kinds = built_in().into_iter().map(Arc::new).collect();
        Self(ArcSwap::from_pointee(Kinds::new(kinds)))
    }

    pub(crate) fn now(&self) -> Arc<Kinds> {
        self.0.load_full()
    }

    /// Serves these versions of a resource, and no others of it. Only one task changes the catalog.
    pub(crate) fn put(&self, versions: Vec<Arc<Kind>>) {
        let Some(name) = versions.first().map(|kind| ResourceName::from(&kind.resource)) else {
            return;
        };
        let mut kinds = self.0.load().without(&name);
        kinds.extend(versions);
        self.0.store(Arc::new(Kinds::new(kinds)));
    }

    /// Serves no version of a resource any longer.
    pub(crate) fn remove(&self, name: &ResourceName) {
        self.0.store(Arc::new(Kinds::new(self.0.load().without(name))));
    }
}

impl Kinds {
    fn new(mut sorted: Vec<Arc<Kind>>) -> Self {
        sorted.sort_by(|one, other| path(one).cmp(&path(other)));
        let mut by_name: HashMap<ResourceName, Vec<Arc<Kind>>> = HashMap::new();
        for kind in &sorted {
            by_name.entry((&kind.resource).into()).or_default().push(kind.clone());
        }
        for versions in by_name.values_mut() {
            versions.sort_by_key(|kind| !kind.storage);
        }
        Self { sorted, by_name }
    }

    fn without(&self, name: &ResourceName) -> Vec<Arc<Kind>> {
        let others = self.sorted.iter().filter(|kind| ResourceName::from(&kind.resource) != *name);
        others.cloned().collect()
    }

    /// A kind that is served under this path.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        let wanted = (group, version, plural);
        let found = self.sorted.binary_search_by(|kind| path(kind).cmp(&wanted)).ok();
        found.map(|at| &self.sorted[at]).filter(|kind| kind.served)
    }

    /// All versions of a resource that are followed, the stored one first.
    pub(crate) fn versions(&self, name: &ResourceName) -> &[Arc<Kind>] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// A resource in its stored version.
    pub(crate) fn stored(&self, group: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.versions(&ResourceName::new(group, plural)).first()
    }

    /// All kinds, in all versions that are followed.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.sorted.iter()
    }

    /// All kinds that clients see.
    pub(crate) fn served(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.iter().filter(|kind| kind.served)
    }

    /// The kinds of one group and version.
    pub(crate) fn of<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Kind>> {
        self.served()
            .filter(move |it| it.resource.group() == group && it.resource.version() == version)
    }

    /// Groups with their versions, the newest version of each first.
    pub(crate) fn groups(&self) -> Vec<(&str, Vec<&str>)> {
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for kind in self.served() {
            let (group, version) = (kind.resource.group(), kind.resource.version());
            match groups.last_mut().filter(|last| last.0 == group) {
                Some((_, versions)) if versions.contains(&version) => {}
                Some((_, versions)) => versions.push(version),
                None => groups.push((group, vec![version])),
            }
        }
        for (_, versions) in &mut groups {
            versions.sort_by_key(|version| std::cmp::Reverse(rank(version)));
        }
        groups
    }
}

fn path(kind: &Kind) -> (&str, &str, &str) {
    (kind.resource.group(), kind.resource.version(), kind.resource.plural())
}

/// Kubernetes' order of versions: `v2` before `v1` before `v1beta2` before `v1alpha1`, others last.
fn rank(version: &str) -> (u8, u64, u64) {
    let number = |text: &str| text.parse::<u64>().ok();
    let Some(rest) = version.strip_prefix('v') else { return (0, 0, 0) };
    if let Some(major) = number(rest) {
        return (3, major, 0);
    }
    for (stage, word) in [(2, "beta"), (1, "alpha")] {
        let Some((major, minor)) = rest.split_once(word) else { continue };
        if let (Some(major), Some(minor)) = (number(major), number(minor)) {
            return (stage, major, minor);
        }
    }
    (0, 0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ranked_as_kubernetes_ranks_them() {
        let mut versions = ["v1alpha1", "foo", "v1", "v2beta1", "v2", "v1beta2", "v1beta1"];
        versions.sort_by_key(|version| std::cmp::Reverse(rank(version)));
        assert_eq!(versions, ["v2", "v1", "v2beta1", "v1beta2", "v1beta1", "v1alpha1", "foo"]);
    }

    #[test]
    fn a_resource_is_found_until_it_is_removed() {
        let catalog = Catalog::new();
        let pods = catalog.now().find("", "v1", "pods").cloned().expect("is built in");
        assert!(catalog.now().find("", "v2", "pods").is_none());
        catalog.remove(&(&pods.resource).into());
        assert!(catalog.now().find("", "v1", "pods").is_none());
        catalog.put(vec![pods]);
        assert!(catalog.now().stored("", "pods").is_some());
    }

    #[test]
    fn versions_of_a_resource_come_and_go_together_and_only_served_ones_are_found() {
        let version = |name: &str, served, storage| {
            let pods = Catalog::new().now().find("", "v1", "pods").cloned().expect("is built in");
            let scope = masthead_core::Scope::Namespaced;
            let resource =
                masthead_core::Resource::new("ship.example", name, "sails", "Sail", scope);
            Arc::new(Kind { resource, served, storage, ..Kind::clone(&pods) })
        };
        let catalog = Catalog::new();
        catalog.put(vec![version("v1", false, false), version("v2", true, true)]);
        let kinds = catalog.now();
        assert!(kinds.find("ship.example", "v1", "sails").is_none());
        assert!(kinds.find("ship.example", "v2", "sails").is_some());
        let name = ResourceName::new("ship.example", "sails");
        assert_eq!(kinds.versions(&name).len(), 2);
        assert_eq!(
            kinds.stored("ship.example", "sails").map(|kind| kind.resource.version()),
            Some("v2")
        );
        catalog.put(vec![version("v3", true, true)]);
        assert_eq!(catalog.now().versions(&name).len(), 1);
        catalog.remove(&name);
        assert!(catalog.now().versions(&name).is_empty());
    }
}
