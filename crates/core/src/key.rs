//! Names of objects, in the order in which lists show them.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::limits::{NAME_BYTES_MAX, NAMESPACE_BYTES_MAX};

/// Namespace and name of an object, unique within its resource.
///
/// Stored as the text `namespace/name` (cluster-scoped: `name`) and ordered by that text's bytes, as
/// etcd orders keys and as continue tokens name positions (W10, W11). The order is therefore not that
/// of the pair: `a-b/x` sorts before `a/x`.
#[derive(Clone)]
pub struct ObjectKey(Arc<str>);

/// Why a namespace and a name make no [`ObjectKey`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The name is empty.
    #[error("an object needs a name")]
    EmptyName,
    /// The name or namespace is longer than the limit.
    #[error("name or namespace longer than {limit} bytes")]
    TooLong {
        /// The limit that was passed.
        limit: usize,
    },
    /// A character that would make the key ambiguous as a path.
    #[error(
        "name or namespace may not be \".\" or \"..\" nor contain '/', '%' or control characters: {0:?}"
    )]
    Malformed(String),
}

impl ObjectKey {
    /// The key of an object; `namespace` is empty for a cluster-scoped one.
    pub fn new(namespace: &str, name: &str) -> Result<Self, KeyError> {
        check(name, NAME_BYTES_MAX)?;
        if name.is_empty() {
            return Err(KeyError::EmptyName);
        }
        check(namespace, NAMESPACE_BYTES_MAX)?;
        if namespace.is_empty() {
            return Ok(Self(name.into()));
        }
        let mut text = String::with_capacity(namespace.len() + 1 + name.len());
        text.push_str(namespace);
        text.push('/');
        text.push_str(name);
        Ok(Self(text.into()))
    }

    /// The namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The name without the namespace.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }

    /// `namespace/name`, or `name` for a cluster-scoped object.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Bytes on the heap, for memory accounting.
    pub fn heap_bytes(&self) -> usize {
        // Two reference counts stand before the text.
        self.0.len() + 2 * size_of::<usize>()
    }
}

fn check(part: &str, limit: usize) -> Result<(), KeyError> {
    if part.len() > limit {
        return Err(KeyError::TooLong { limit });
    }
    let bad = |b: u8| b == b'/' || b == b'%' || b < 0x20 || b == 0x7f;
    if part == "." || part == ".." || part.bytes().any(bad) {
        return Err(KeyError::Malformed(part.to_owned()));
    }
    Ok(())
}

impl PartialEq for ObjectKey {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for ObjectKey {}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

impl Hash for ObjectKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Borrow<str> for ObjectKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back() {
        let key = ObjectKey::new("team", "web").unwrap();
        assert_eq!((key.namespace(), key.name(), key.as_str()), ("team", "web", "team/web"));
        let node = ObjectKey::new("", "node-1").unwrap();
        assert_eq!((node.namespace(), node.name(), node.as_str()), ("", "node-1", "node-1"));
    }

    #[test]
    fn order_is_that_of_the_stored_text() {
        let key = |ns, name| ObjectKey::new(ns, name).unwrap();
        assert!(key("a-b", "x") < key("a", "x"), "'-' sorts before '/'");
        assert!(key("a", "x") < key("ab", "x"));
        assert!(key("a", "x") < key("a", "y"));
    }

    #[test]
    fn what_could_climb_out_of_its_path_is_refused() {
        for (ns, name) in
            [("a/b", "x"), ("a", "x/y"), ("..", "x"), ("a", "."), ("a", "x\0"), ("a", "%2f")]
        {
            assert!(matches!(ObjectKey::new(ns, name), Err(KeyError::Malformed(_))), "{ns} {name}");
        }
        assert_eq!(ObjectKey::new("a", ""), Err(KeyError::EmptyName));
    }

    #[test]
    fn lengths_hold_at_the_limit_and_break_above_it() {
        let name = |n| "n".repeat(n);
        assert!(ObjectKey::new("", &name(NAME_BYTES_MAX)).is_ok());
        assert!(ObjectKey::new("", &name(NAME_BYTES_MAX + 1)).is_err());
        assert!(ObjectKey::new(&name(NAMESPACE_BYTES_MAX), "x").is_ok());
        assert!(ObjectKey::new(&name(NAMESPACE_BYTES_MAX + 1), "x").is_err());
    }
}
