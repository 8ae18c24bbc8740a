//! What objects are stored under.

use std::fmt;
use std::sync::Arc;

use masthead_core::Resource;

/// `pods`, `deployments.apps`: what is stored under one name, whatever the version it is served in.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceName(Arc<str>);

impl ResourceName {
    /// The name of a resource of this group, which is empty for the core group.
    pub fn new(group: &str, plural: &str) -> Self {
        if group.is_empty() {
            Self(plural.into())
        } else {
            Self(format!("{plural}.{group}").into())
        }
    }

    /// Plural and group, as in a URL: `deployments.apps`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A name read back from a store.
    pub(crate) fn stored(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<&Resource> for ResourceName {
    fn from(resource: &Resource) -> Self {
        Self::new(resource.group(), resource.plural())
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
