//! What is served now: the built-in resources and those of CustomResourceDefinitions.

use std::sync::Arc;

use arc_swap::ArcSwap;
use masthead_core::Resource;

use crate::resources::{Kind, built_in};

/// The resources that are served. Readers see one state of it; it changes as a whole.
#[derive(Debug)]
pub(crate) struct Catalog(ArcSwap<Kinds>);

/// One state of the catalog, sorted by group, version and plural.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kinds(Vec<Arc<Kind>>);

impl Catalog {
    pub(crate) fn new() -> Self {
        let mut kinds: Vec<_> = built_in().into_iter().map(Arc::new).collect();
        kinds.sort_by(|one, other| path(one).cmp(&path(other)));
        Self(ArcSwap::from_pointee(Kinds(kinds)))
    }

    pub(crate) fn now(&self) -> Arc<Kinds> {
        self.0.load_full()
    }

    /// Serves a resource, or serves it anew. Only one task changes the catalog.
    pub(crate) fn put(&self, kind: Arc<Kind>) {
        let mut kinds = Kinds::clone(&self.0.load());
        match kinds.position(&kind.resource) {
            Ok(at) => kinds.0[at] = kind,
            Err(at) => kinds.0.insert(at, kind),
        }
        self.0.store(Arc::new(kinds));
    }

    /// Serves it no longer.
    pub(crate) fn remove(&self, resource: &Resource) {
        let mut kinds = Kinds::clone(&self.0.load());
        if let Ok(at) = kinds.position(resource) {
            kinds.0.remove(at);
            self.0.store(Arc::new(kinds));
        }
    }
}

impl Kinds {
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        let wanted = (group, version, plural);
        self.0.binary_search_by(|kind| path(kind).cmp(&wanted)).ok().map(|at| &self.0[at])
    }

    /// By what the store calls it: group and plural.
    pub(crate) fn stored(&self, group: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.0.iter().find(|it| it.resource.group() == group && it.resource.plural() == plural)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.0.iter()
    }

    /// The kinds of one group and version.
    pub(crate) fn of<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Kind>> {
        self.iter()
            .filter(move |it| it.resource.group() == group && it.resource.version() == version)
    }

    /// Groups with their versions, the newest version of each first.
    pub(crate) fn groups(&self) -> Vec<(&str, Vec<&str>)> {
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for kind in self.iter() {
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

    fn position(&self, resource: &Resource) -> Result<usize, usize> {
        let wanted = (resource.group(), resource.version(), resource.plural());
        self.0.binary_search_by(|kind| path(kind).cmp(&wanted))
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
        catalog.remove(&pods.resource);
        assert!(catalog.now().find("", "v1", "pods").is_none());
        catalog.put(pods);
        assert!(catalog.now().stored("", "pods").is_some());
    }
}
