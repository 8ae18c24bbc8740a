//! What Kubernetes accepts as keys and values of labels.

use super::SelectorError;
use crate::limits::{LABEL_NAME_BYTES_MAX, LABEL_PREFIX_BYTES_MAX};

const NAME: &str = "name part must be 1 to 63 characters of [A-Za-z0-9_.-] and begin and end with \
                    a letter or digit";
const PREFIX: &str = "prefix part must be a lower case DNS subdomain of 1 to 253 characters";
const SLASHES: &str = "there may be one '/', between prefix and name";
const VALUE: &str = "must be empty, or up to 63 characters of [A-Za-z0-9_.-] that begin and end \
                     with a letter or digit";
const INTEGER: &str = "'>' and '<' compare integers of 64 bits";

/// `[prefix/]name`.
pub(super) fn key(key: &str) -> Result<(), SelectorError> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let reason = if name.contains('/') {
        SLASHES
    } else if prefix.is_some_and(|prefix| !is_subdomain(prefix)) {
        PREFIX
    } else if name.is_empty() || !is_name(name) {
        NAME
    } else {
        return Ok(());
    };
    Err(SelectorError::Key { key: key.to_owned(), reason })
}

pub(super) fn value(key: &str, value: &str) -> Result<(), SelectorError> {
    if value.is_empty() || is_name(value) { Ok(()) } else { refuse(key, value, VALUE) }
}

pub(super) fn integer(key: &str, value: &str) -> Result<(), SelectorError> {
    if value.parse::<i64>().is_ok() { Ok(()) } else { refuse(key, value, INTEGER) }
}

fn refuse(key: &str, value: &str, reason: &'static str) -> Result<(), SelectorError> {
    Err(SelectorError::Value { key: key.to_owned(), value: value.to_owned(), reason })
}

fn is_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    text.len() <= LABEL_NAME_BYTES_MAX
        && ends_are(text, |b| b.is_ascii_alphanumeric())
        && text.bytes().all(inner)
}

fn is_subdomain(text: &str) -> bool {
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let label = |part: &str| ends_are(part, lower) && part.bytes().all(|b| lower(b) || b == b'-');
    text.len() <= LABEL_PREFIX_BYTES_MAX && text.split('.').all(label)
}

fn ends_are(text: &str, good: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|&b| good(b)) && bytes.last().is_some_and(|&b| good(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_hold_at_the_limit_and_break_above_it() {
        let name = |n| "n".repeat(n);
        assert!(key(&name(LABEL_NAME_BYTES_MAX)).is_ok());
        assert!(key(&name(LABEL_NAME_BYTES_MAX + 1)).is_err());
        assert!(key(&format!("{}/x", name(LABEL_PREFIX_BYTES_MAX))).is_ok());
        assert!(key(&format!("{}/x", name(LABEL_PREFIX_BYTES_MAX + 1))).is_err());
        assert!(value("k", &name(LABEL_NAME_BYTES_MAX)).is_ok());
        assert!(value("k", &name(LABEL_NAME_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn keys_are_qualified_names() {
        for good in ["a", "A_b.c-9", "x.io/A", "1/2", "a-b.c/d"] {
            assert_eq!(key(good), Ok(()), "{good}");
        }
        for bad in
            ["", "-a", "a-", "a b", "ä", "/a", "a/", "a/b/c", "X.io/a", "a..b/c", "-a/b", "a_b/c"]
        {
            assert!(key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn integers_are_those_of_64_bits() {
        assert!(integer("k", "9223372036854775807").is_ok());
        assert!(integer("k", "9223372036854775808").is_err());
        assert!(integer("k", "1.5").is_err() && integer("k", "").is_err());
    }
}
