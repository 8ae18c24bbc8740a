//! Continue tokens: where the next page of a list begins (W10–W12).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::limits::TOKEN_BYTES_MAX;
use crate::{ObjectKey, Revision};

/// A position in a list that was begun.
///
/// On the wire it is `{"v":"meta.k8s.io/v1","rv":N,"start":"…"}` in base64, with the start relative
/// to what is listed: `namespace/name` for all namespaces, `name` within one. Clients may change
/// what they like in it: decoding refuses whatever would lead out of the list.
///
/// ```
/// use masthead_core::{ContinueToken, ObjectKey, Revision};
///
/// let last = ObjectKey::new("shop", "web")?;
/// let token = ContinueToken::after(&last, Some(Revision(7)));
/// let text = token.encode("shop");
/// assert_eq!(ContinueToken::decode(&text, "shop"), Ok(token));
/// # Ok::<(), masthead_core::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContinueToken {
    revision: Option<Revision>,
    start: String,
}

/// Why a text is no continue token of a list.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Longer than any token that a server gave out.
    #[error("continue key is not valid: longer than {limit} bytes")]
    TooLong {
        /// The limit that was passed.
        limit: usize,
    },
    /// It is not base64, or not what tokens are made of.
    #[error("continue key is not valid: it is not one that this server gave out")]
    Malformed,
    /// It is of another version.
    #[error("continue key is not valid: server does not recognize this encoded version {0:?}")]
    Version(String),
    /// It names no moment.
    #[error(
        "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)"
    )]
    Revision,
    /// It names no position.
    #[error("continue key is not valid: encoded start key empty (version meta.k8s.io/v1)")]
    EmptyStart,
    /// It names a position outside of the list.
    #[error("continue key is not valid: {0:?} is outside of the list")]
    Outside(String),
}

#[derive(Serialize, Deserialize)]
struct Wire<'a> {
    v: std::borrow::Cow<'a, str>,
    #[serde(default)]
    rv: i128,
    #[serde(default)]
    start: std::borrow::Cow<'a, str>,
}

const VERSION: &str = "meta.k8s.io/v1";

impl ContinueToken {
    /// The position right after an object, in the list of this moment; without one, in whatever the
    /// list is when the client comes back (W12).
    pub fn after(last: &ObjectKey, revision: Option<Revision>) -> Self {
        Self { revision, start: format!("{last}\0") }
    }

    /// The same position in whatever the list is when the client comes back (W12).
    pub fn without_revision(&self) -> Self {
        Self { revision: None, start: self.start.clone() }
    }

    /// The moment that the list shows; none for one that starts afresh.
    pub fn revision(&self) -> Option<Revision> {
        self.revision
    }

    /// Where the page begins: keys not below this text belong to it. As text of an [`ObjectKey`],
    /// with a zero byte behind to pass over the last object that was seen.
    pub fn start(&self) -> &str {
        &self.start
    }

    /// As it goes to the client, from a list of this namespace or (empty) of all.
    pub fn encode(&self, namespace: &str) -> String {
        let within = self.start.strip_prefix(namespace).and_then(|it| it.strip_prefix('/'));
        let start = if namespace.is_empty() { None } else { within }.unwrap_or(&self.start);
        let rv = self.revision.map_or(-1, |it| it.0.into());
        let wire = Wire { v: VERSION.into(), rv, start: start.into() };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&wire).expect("three plain members"))
    }

    /// Reads a token for a list of this namespace or (empty) of all.
    pub fn decode(text: &str, namespace: &str) -> Result<Self, TokenError> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLong { limit: TOKEN_BYTES_MAX });
        }
        let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::Malformed)?;
        let wire: Wire = serde_json::from_slice(&json).map_err(|_| TokenError::Malformed)?;
        if wire.v != VERSION {
            return Err(TokenError::Version(wire.v.into_owned()));
        }
        let revision = match wire.rv {
            0 => return Err(TokenError::Revision),
            ..0 => None,
            rv => Some(Revision(u64::try_from(rv).map_err(|_| TokenError::Revision)?)),
        };
        if wire.start.is_empty() {
            return Err(TokenError::EmptyStart);
        }
        let start = within(&wire.start, namespace);
        let start = start.ok_or_else(|| TokenError::Outside(wire.start.into_owned()))?;
        Ok(Self { revision, start })
    }
}

/// The start as a whole key, with its zero byte if it has one; none if it is not in the list.
fn within(start: &str, namespace: &str) -> Option<String> {
    let key = start.strip_suffix('\0').unwrap_or(start);
    let whole = match key.split_once('/') {
        Some((own, name)) if namespace.is_empty() && !own.is_empty() => ObjectKey::new(own, name),
        Some(_) => return None,
        None => ObjectKey::new(namespace, key),
    };
    let behind = &start[key.len()..];
    whole.ok().map(|whole| format!("{whole}{behind}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::NAME_BYTES_MAX;

    fn wire(json: &str) -> String {
        URL_SAFE_NO_PAD.encode(json)
    }

    fn token(start: &str) -> String {
        wire(&format!(r#"{{"v":"meta.k8s.io/v1","rv":7,"start":"{start}"}}"#))
    }

    #[test]
    fn w10_tokens_are_what_kube_apiserver_writes() {
        let key = ObjectKey::new("shop", "web").unwrap();
        let text = ContinueToken::after(&key, Some(Revision(7))).encode("");
        assert_eq!(text, wire(r#"{"v":"meta.k8s.io/v1","rv":7,"start":"shop/web\u0000"}"#));
        let text = ContinueToken::after(&key, Some(Revision(7))).encode("shop");
        assert_eq!(text, wire(r#"{"v":"meta.k8s.io/v1","rv":7,"start":"web\u0000"}"#));
        let node = ObjectKey::new("", "n1").unwrap();
        let text = ContinueToken::after(&node, None).encode("");
        assert_eq!(text, wire(r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"n1\u0000"}"#));
    }

    #[test]
    fn w12_a_fresh_token_names_no_moment() {
        let fresh =
            ContinueToken::decode(&wire(r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"a"}"#), "b");
        let fresh = fresh.unwrap();
        assert_eq!((fresh.revision(), fresh.start()), (None, "b/a"));
    }

    #[test]
    fn tokens_come_back_in_every_scope() {
        for (namespace, name) in [("shop", "web"), ("", "node"), ("a", "b.c"), ("ns", "q\"\\ü")] {
            let key = ObjectKey::new(namespace, name).unwrap();
            for revision in [None, Some(Revision(1)), Some(Revision::MAX)] {
                let token = ContinueToken::after(&key, revision);
                for scope in ["", namespace] {
                    assert_eq!(
                        ContinueToken::decode(&token.encode(scope), scope),
                        Ok(token.clone())
                    );
                }
                assert_eq!(token.start(), format!("{key}\0"));
            }
        }
    }

    #[test]
    fn w10_a_start_that_climbs_out_is_refused() {
        let outside = [
            "..",
            "../a",
            "a/..",
            "/a",
            "a/",
            "/",
            "a//b",
            "a/b/c",
            ".",
            "./a",
            "a\\u0000b",
            "\\u0000",
            "a/b\\u0000\\u0000",
            "%2e",
            "a/%2f",
        ];
        for start in outside {
            for scope in ["", "shop"] {
                let decoded = ContinueToken::decode(&token(start), scope);
                assert!(matches!(decoded, Err(TokenError::Outside(_))), "{start} in {scope:?}");
            }
        }
        let other = ContinueToken::decode(&token("other/a"), "shop");
        assert!(matches!(other, Err(TokenError::Outside(_))), "another namespace");
    }

    #[test]
    fn what_is_no_token_is_refused_with_the_reason() {
        let decode = |text: &str| ContinueToken::decode(text, "");
        let start = r#""start":"a""#;
        for (text, error) in [
            (String::new(), TokenError::Malformed),
            ("***".into(), TokenError::Malformed),
            (wire("{"), TokenError::Malformed),
            (wire("[]"), TokenError::Malformed),
            (wire(r#"{"v":"meta.k8s.io/v1","rv":"7","start":"a"}"#), TokenError::Malformed),
            (token("a") + "=", TokenError::Malformed),
            (wire(&format!(r#"{{"v":"v2","rv":7,{start}}}"#)), TokenError::Version("v2".into())),
            (wire(&format!(r#"{{"v":"meta.k8s.io/v1","rv":0,{start}}}"#)), TokenError::Revision),
            (wire(&format!(r#"{{"v":"meta.k8s.io/v1","rv":1.5,{start}}}"#)), TokenError::Malformed),
            (wire(&format!(r#"{{"v":"meta.k8s.io/v1",{start}}}"#)), TokenError::Revision),
            (wire(r#"{"v":"meta.k8s.io/v1","rv":7}"#), TokenError::EmptyStart),
            (token(""), TokenError::EmptyStart),
        ] {
            assert_eq!(decode(&text), Err(error), "{text}");
        }
    }

    #[test]
    fn the_longest_token_fits_and_a_longer_one_does_not() {
        let quotes = "\"".repeat(NAME_BYTES_MAX);
        let key = ObjectKey::new(&quotes, &quotes).unwrap();
        let text = ContinueToken::after(&key, Some(Revision::MAX)).encode("");
        assert!(text.len() <= TOKEN_BYTES_MAX);
        assert!(ContinueToken::decode(&text, "").is_ok());
        let decode = |n: usize| ContinueToken::decode(&"A".repeat(n), "");
        assert_eq!(decode(TOKEN_BYTES_MAX), Err(TokenError::Malformed));
        assert!(matches!(decode(TOKEN_BYTES_MAX + 1), Err(TokenError::TooLong { .. })));
    }
}
