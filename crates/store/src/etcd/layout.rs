//! Where objects are in etcd: `/{prefix}/{group}/{resource}/{namespace}/{name}`.

use bytes::Bytes;
use masthead_core::ObjectKey;

use crate::ResourceName;

/// What stands for the group that has no name.
const CORE: &str = "core";

/// The keys of one prefix. What the store keeps for itself begins with a dot, as no group does.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// With a slash at both ends.
    prefix: String,
}

/// All keys from the first to before the second.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KeyRange {
    pub(crate) start: Bytes,
    pub(crate) end: Bytes,
}

impl Layout {
    pub(crate) fn new(prefix: &str) -> Self {
        let prefix = prefix.trim_matches('/');
        let slash = if prefix.is_empty() { "" } else { "/" };
        Self { prefix: format!("/{prefix}{slash}") }
    }

    /// Everything.
    pub(crate) fn all(&self) -> KeyRange {
        below(self.prefix.clone())
    }

    /// The objects of a resource.
    pub(crate) fn resource(&self, resource: &ResourceName) -> KeyRange {
        below(self.folder(resource))
    }

    /// The objects of a resource whose key is after this one.
    pub(crate) fn after(&self, resource: &ResourceName, key: &ObjectKey) -> KeyRange {
        let start = format!("{}{}\0", self.folder(resource), key.as_str());
        KeyRange { start: start.into(), ..self.resource(resource) }
    }

    /// One object.
    pub(crate) fn object(&self, resource: &ResourceName, key: &ObjectKey) -> Bytes {
        (self.folder(resource) + key.as_str()).into()
    }

    /// Something of the store's own.
    pub(crate) fn own(&self, name: &str) -> Bytes {
        format!("{}.{name}", self.prefix).into()
    }

    fn folder(&self, resource: &ResourceName) -> String {
        let (plural, group) =
            resource.as_str().split_once('.').unwrap_or((resource.as_str(), CORE));
        format!("{}{group}/{plural}/", self.prefix)
    }

    /// Which object a key is of; none if it is no object's.
    pub(crate) fn read(&self, key: &[u8]) -> Option<(ResourceName, ObjectKey)> {
        let [group, plural, object] = self.parts(key)?;
        let resource = match group {
            CORE => ResourceName::stored(plural),
            group => ResourceName::stored(&format!("{plural}.{group}")),
        };
        Some((resource, object_key(object)?))
    }

    /// The same where the resource is known.
    pub(crate) fn key(&self, key: &[u8]) -> Option<ObjectKey> {
        object_key(self.parts(key)?[2])
    }

    /// Group, resource, and the rest.
    fn parts<'a>(&self, key: &'a [u8]) -> Option<[&'a str; 3]> {
        let path = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        let mut parts = path.splitn(3, '/');
        let parts = [parts.next()?, parts.next()?, parts.next()?];
        (!parts[0].starts_with('.')).then_some(parts)
    }
}

fn object_key(text: &str) -> Option<ObjectKey> {
    let (namespace, name) = text.split_once('/').unwrap_or(("", text));
    ObjectKey::new(namespace, name).ok()
}

/// All keys that begin with a text that ends with a slash.
fn below(prefix: String) -> KeyRange {
    debug_assert!(prefix.ends_with('/'), "the byte behind a slash is a zero digit");
    let mut end = prefix.clone().into_bytes();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    KeyRange { start: prefix.into(), end: end.into() }
}

#[cfg(test)]
mod tests {
    use masthead_core::{Resource, Scope};

    use super::*;

    #[test]
    fn keys_read_as_they_were_written() {
        let layout = Layout::new("masthead");
        let key = |namespace: &str, name: &str| ObjectKey::new(namespace, name).expect("is valid");
        let deployments =
            Resource::new("apps", "v1", "deployments", "Deployment", Scope::Namespaced);
        let pods = ResourceName::from(&Resource::pods());
        let written = layout.object(&pods, &key("shop", "web"));
        assert_eq!(written, "/masthead/core/pods/shop/web");
        assert_eq!(layout.read(&written), Some((pods.clone(), key("shop", "web"))));
        let resource = ResourceName::from(&deployments);
        let written = layout.object(&resource, &key("", "web"));
        assert_eq!(written, "/masthead/apps/deployments/web");
        assert_eq!(layout.read(&written), Some((resource, key("", "web"))));
        let range = layout.after(&pods, &key("shop", "web"));
        assert_eq!(
            (&range.start[..], &range.end[..]),
            (&b"/masthead/core/pods/shop/web\0"[..], &b"/masthead/core/pods0"[..])
        );
    }

    #[test]
    fn what_is_no_object_is_read_as_none() {
        let layout = Layout::new("/a/b/");
        for key in [
            "/a/b/.tick",
            "/a/b/core/pods",
            "/a/bc/core/pods/x/y",
            "/a/b/core/pods/",
            "/a/b/.fences/x/y",
        ] {
            assert_eq!(layout.read(key.as_bytes()), None, "{key}");
        }
        assert_eq!(layout.own("tick"), "/a/b/.tick");
        assert_eq!(Layout::new("").own("tick"), "/.tick");
    }
}
