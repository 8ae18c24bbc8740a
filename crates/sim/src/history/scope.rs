//! Where a request looks.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Which keys a request is about. In a history it is one word: `all`, `namespace:a`, `name:a/x`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Scope {
    /// Every object of the resource.
    #[default]
    All,
    /// The objects of one namespace.
    Namespace(String),
    /// One object, by its whole key.
    Name(String),
}

impl Scope {
    /// Whether `key` lies in the scope.
    pub fn covers(&self, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(wanted) => key.split_once('/').is_some_and(|(ns, _)| ns == wanted),
            Self::Name(wanted) => key == wanted,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Namespace(namespace) => write!(f, "namespace:{namespace}"),
            Self::Name(key) => write!(f, "name:{key}"),
        }
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        scope.to_string()
    }
}

impl TryFrom<String> for Scope {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "all" => Ok(Self::All),
            Some(("namespace", namespace)) => Ok(Self::Namespace(namespace.to_owned())),
            Some(("name", key)) => Ok(Self::Name(key.to_owned())),
            _ => Err(format!("`{text}` is no scope: all, namespace:<ns> or name:<ns>/<name>")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_does_not_cover_one_that_it_is_a_prefix_of() {
        let scope = Scope::Namespace("a".into());
        assert!(scope.covers("a/x"));
        assert!(!scope.covers("ab/x"));
        assert!(!scope.covers("a"));
    }

    #[test]
    fn scopes_are_one_word_and_read_back() {
        for scope in
            [Scope::All, Scope::Namespace("a".into()), Scope::Name("system:a/x".to_owned())]
        {
            assert_eq!(Scope::try_from(scope.to_string()), Ok(scope));
        }
        assert!(Scope::try_from("a/x".to_owned()).is_err());
    }
}
