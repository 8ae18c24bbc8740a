//! What a list or watch wants to see.

use std::collections::BTreeMap;

use crate::limits::SELECTOR_BYTES_MAX;
use crate::{Labels, Object};

mod field;
mod label;
mod shard;

pub use field::{FieldRequirement, FieldSelector, FieldTarget};
pub use label::{LabelOperator, LabelRequirement, LabelSelector};
pub use shard::{ShardField, ShardRange, ShardSelector};

/// All selectors of one request; an object must match each.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Selectors {
    /// By label.
    pub labels: LabelSelector,
    /// By field.
    pub fields: FieldSelector,
    /// By hash.
    pub shard: ShardSelector,
}

impl Selectors {
    /// Does the object match all of them? Allocates nothing.
    pub fn matches(&self, object: &Object) -> bool {
        self.fields.matches(object) && self.labels.matches(object) && self.shard.matches(object)
    }

    /// Returns `true` if everything is selected.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything() && self.shard.is_everything()
    }

    /// Bytes on the heap, allocator slack aside.
    pub fn heap_bytes(&self) -> usize {
        self.labels.heap_bytes() + self.fields.heap_bytes() + self.shard.heap_bytes()
    }
}

impl Labels for BTreeMap<String, String> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }
}

/// Why a text is no selector.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectorError {
    /// A label selector has something else where its grammar wants a certain thing.
    #[error("unable to parse requirement: found '{found}' at byte {at}, expected: {expected}")]
    Unexpected {
        /// What stands there; empty at the end.
        found: String,
        /// Offset in the selector.
        at: usize,
        /// What could have stood there.
        expected: &'static str,
    },
    /// No label can have this key.
    #[error("unable to parse requirement: invalid label key {key:?}: {reason}")]
    Key {
        /// The key.
        key: String,
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// No label can have this value.
    #[error("unable to parse requirement: invalid value {value:?} for label key {key:?}: {reason}")]
    Value {
        /// The key it is compared with.
        key: String,
        /// The value.
        value: String,
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// An operator got more or fewer values than it takes.
    #[error(
        "unable to parse requirement: operator '{operator}' takes {takes}, found {found} values"
    )]
    ValueCount {
        /// The operator as selectors write it.
        operator: &'static str,
        /// How many it takes.
        takes: &'static str,
        /// How many there are.
        found: usize,
    },
    /// A term of a field selector has no operator.
    #[error("invalid field selector: can't understand '{term}'")]
    Term {
        /// The term.
        term: String,
    },
    /// A backslash stands before something that needs none.
    #[error("invalid field selector: invalid escape sequence: {sequence}")]
    Escape {
        /// Backslash and what follows it.
        sequence: String,
    },
    /// A value has a character that needs a backslash before it.
    #[error("invalid field selector: unescaped character in value: {character}")]
    Unescaped {
        /// The character.
        character: char,
    },
    /// The resource has selectable fields, but not this one.
    #[error("field label not supported: {label}")]
    UnknownField {
        /// What the selector calls it.
        label: String,
    },
    /// The resource has only the fields that all have.
    #[error(
        "{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    )]
    OnlyCommonFields {
        /// What the selector calls it.
        label: String,
    },
    /// A shard selector is not made of `shardRange(…)` terms.
    #[error("invalid shard selector at byte {at}: {what}")]
    Shard {
        /// What was found or missing.
        what: &'static str,
        /// Offset in the selector.
        at: usize,
    },
    /// Longer or with more parts than the named limit.
    #[error("selector has more than {limit} {what}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// The limit that was passed.
        limit: usize,
    },
}

fn check_length(text: &str) -> Result<(), SelectorError> {
    if text.len() > SELECTOR_BYTES_MAX {
        return Err(SelectorError::TooLarge { what: "bytes", limit: SELECTOR_BYTES_MAX });
    }
    Ok(())
}
