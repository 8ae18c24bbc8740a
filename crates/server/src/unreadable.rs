//! Stored objects that cannot be read: what is left out of a cache is not left out in silence.
//!
//! A body that is no object of its kind (damaged, or written into etcd by another program) cannot be in a
//! cache. A list without it would be taken for the whole state by a controller, which may delete what it
//! believes to be orphaned. So lists, and the object itself, are refused until it can be read or is gone.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};

use masthead_core::{Resource, Status};
use parking_lot::Mutex;
use tracing::error;

use crate::limits::UNREADABLE_MAX;

/// The unreadable objects of all resources. As long as there are none a check is one atomic load.
#[derive(Debug, Default)]
pub(crate) struct UnreadableObjects {
    count: AtomicUsize,
    resources: Mutex<HashMap<Resource, BTreeMap<String, String>>>,
}

impl UnreadableObjects {
    /// How many there are, up to the limit of each resource.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Remembers an object by its namespace and name.
    pub(crate) fn add(&self, resource: &Resource, key: &str, why: &dyn std::fmt::Display) {
        error!(%resource, key, %why, "a stored object cannot be read, so lists of its resource fail");
        let mut resources = self.resources.lock();
        let of_resource = resources.entry(resource.clone()).or_default();
        // Those beyond the limit change no answer: there are lists that fail already.
        if of_resource.len() < UNREADABLE_MAX {
            of_resource.insert(key.to_owned(), why.to_string());
        }
        self.recount(&resources);
    }

    /// The object can be read, or is gone.
    pub(crate) fn remove(&self, resource: &Resource, key: &str) {
        if self.count() == 0 {
            return;
        }
        let mut resources = self.resources.lock();
        if let Some(of_resource) = resources.get_mut(resource) {
            of_resource.remove(key);
        }
        self.recount(&resources);
    }

    /// The resource is read anew, or not served any longer.
    pub(crate) fn forget(&self, resource: &Resource) {
        if self.count() == 0 {
            return;
        }
        let mut resources = self.resources.lock();
        resources.remove(resource);
        self.recount(&resources);
    }

    fn recount(&self, resources: &HashMap<Resource, BTreeMap<String, String>>) {
        self.count.store(resources.values().map(BTreeMap::len).sum(), Ordering::Release);
    }

    /// Refuses to read one object if it is unreadable.
    pub(crate) fn check_object(&self, resource: &Resource, key: &str) -> Result<(), Status> {
        self.check(resource, |unreadable| unreadable == key)
    }

    /// Refuses to read a namespace, or with an empty one the whole resource, if an object in it is
    /// unreadable.
    pub(crate) fn check_all(&self, resource: &Resource, namespace: &str) -> Result<(), Status> {
        self.check(resource, |unreadable| {
            let within = |rest: &str| rest.starts_with('/');
            namespace.is_empty() || unreadable.strip_prefix(namespace).is_some_and(within)
        })
    }

    fn check(&self, resource: &Resource, concerns: impl Fn(&str) -> bool) -> Result<(), Status> {
        if self.count() == 0 {
            return Ok(());
        }
        let resources = self.resources.lock();
        let of_resource = resources.get(resource);
        let mut concerned = of_resource.into_iter().flatten().filter(|(key, _)| concerns(key));
        let Some((key, why)) = concerned.next() else { return Ok(()) };
        let more = match concerned.count() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        Err(Status::internal(format!(
            "the stored object {key} of {resource}{more} cannot be read: {why}. Nothing is listed \
             without it, as the list would be taken for all there is. Restore it, or remove it from \
             the store"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_that_concern_an_unreadable_object_are_refused_until_it_is_gone() {
        let objects = UnreadableObjects::default();
        let pods = Resource::pods();
        assert!(objects.check_all(&pods, "").is_ok());
        objects.add(&pods, "shop/a", &"no JSON");
        objects.add(&pods, "shop/b", &"no JSON");
        let refused = objects.check_all(&pods, "").unwrap_err();
        assert_eq!(refused.code(), 500);
        assert!(refused.message().contains("shop/a of pods and 1 more"), "{}", refused.message());
        assert!(objects.check_all(&pods, "shop").is_err());
        assert!(objects.check_all(&pods, "sho").is_ok(), "another namespace");
        assert!(objects.check_object(&pods, "shop/a").is_err());
        assert!(objects.check_object(&pods, "shop/c").is_ok());
        objects.remove(&pods, "shop/a");
        objects.remove(&pods, "shop/b");
        assert!(objects.check_all(&pods, "").is_ok());
        objects.add(&pods, "shop/a", &"no JSON");
        objects.forget(&pods);
        assert_eq!(objects.count(), 0);
    }

    #[test]
    fn keys_are_remembered_up_to_the_limit() {
        let objects = UnreadableObjects::default();
        for number in 0..=UNREADABLE_MAX {
            objects.add(&Resource::pods(), &format!("shop/{number}"), &"no JSON");
        }
        assert_eq!(objects.count(), UNREADABLE_MAX);
    }
}
