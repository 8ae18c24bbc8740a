//! Field selectors (W27).

use std::fmt;

use super::{SelectorError, check_length};
use crate::limits::REQUIREMENTS_MAX;
use crate::{Object, Resource};

/// Terms on fields that must all hold; without terms everything matches.
///
/// `metadata.name` and `metadata.namespace` can be named always, others if the [`Resource`] has
/// them. A value's backslash, comma and equals sign are written with a backslash before them.
///
/// Names are resolved when the selector is read, also what counts where an object does not have the
/// field: matching needs no resource. A term takes 24 bytes and one allocation.
///
/// ```
/// use masthead_core::{FieldSelector, Resource};
///
/// let pods = Resource::pods();
/// let selector = FieldSelector::parse("spec.nodeName=n1,metadata.namespace!=kube-system", &pods)?;
/// let node = pods.field_index("spec.nodeName").unwrap();
/// assert_eq!(selector.equalities().collect::<Vec<_>>(), [(node, "n1")]);
/// assert_eq!(selector.namespace(), None);
/// # Ok::<(), masthead_core::SelectorError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct FieldSelector(Box<[FieldRequirement]>);

/// One term of a [`FieldSelector`].
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FieldRequirement {
    /// What the field is called, then the value, unescaped.
    text: Box<str>,
    label_len: u16,
    target: FieldTarget,
    negated: bool,
    /// An object without the field is taken to have this very value.
    absent_equals: bool,
}

/// Which field a [`FieldRequirement`] looks at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FieldTarget {
    /// `metadata.name`.
    Name,
    /// `metadata.namespace`.
    Namespace,
    /// One of [`Resource::fields`], by position.
    Field(u16),
}

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

impl FieldSelector {
    /// Reads a selector on objects of a resource. The empty text matches everything.
    pub fn parse(text: &str, resource: &Resource) -> Result<Self, SelectorError> {
        check_length(text)?;
        let mut requirements = Vec::new();
        for term in Terms(Some(text)).filter(|term| !term.is_empty()) {
            if requirements.len() == REQUIREMENTS_MAX {
                return Err(SelectorError::TooLarge { what: "terms", limit: REQUIREMENTS_MAX });
            }
            requirements.push(FieldRequirement::parse(term, resource)?);
        }
        Ok(Self::of(requirements))
    }

    /// The selector of the one object with this name (W2).
    pub fn named(name: &str) -> Self {
        Self::of(vec![FieldRequirement::new(NAME, name, FieldTarget::Name, false, false)])
    }

    fn of(mut requirements: Vec<FieldRequirement>) -> Self {
        requirements.sort_unstable_by(|a, b| a.order().cmp(&b.order()));
        requirements.dedup();
        Self(requirements.into())
    }

    /// Do all terms hold? Allocates nothing. The object is of the resource given to
    /// [`FieldSelector::parse`].
    pub fn matches(&self, object: &Object) -> bool {
        self.0.iter().all(|requirement| requirement.matches(object))
    }

    /// Returns `true` if the selector has no term.
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// The terms, sorted by the field's name.
    pub fn requirements(&self) -> impl ExactSizeIterator<Item = &FieldRequirement> {
        self.0.iter()
    }

    /// The name that an object must have to match, if there is a term that says so.
    pub fn name(&self) -> Option<&str> {
        self.equal_to(FieldTarget::Name)
    }

    /// The namespace that an object must be in to match, if there is a term that says so.
    pub fn namespace(&self) -> Option<&str> {
        self.equal_to(FieldTarget::Namespace)
    }

    /// As [`FieldSelector::equalities`], without those that an object without the field also meets:
    /// what an index of interests can look up.
    pub fn present_equalities(&self) -> impl Iterator<Item = (usize, &str)> {
        let present = self.0.iter().filter(|it| !it.negated && !it.absent_equals);
        present.filter_map(|it| match it.target {
            FieldTarget::Field(index) => Some((usize::from(index), it.value())),
            _ => None,
        })
    }

    /// The fields of [`Resource::fields`] that must have a certain value, by position.
    pub fn equalities(&self) -> impl Iterator<Item = (usize, &str)> {
        self.0.iter().filter(|it| !it.negated).filter_map(|it| match it.target {
            FieldTarget::Field(index) => Some((usize::from(index), it.value())),
            _ => None,
        })
    }

    fn equal_to(&self, target: FieldTarget) -> Option<&str> {
        let found = self.0.iter().find(|it| it.target == target && !it.negated);
        found.map(FieldRequirement::value)
    }

    /// Bytes on the heap, allocator slack aside.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.0) + self.0.iter().map(|it| it.text.len()).sum::<usize>()
    }
}

impl FieldRequirement {
    fn parse(term: &str, resource: &Resource) -> Result<Self, SelectorError> {
        let (label, negated, value) =
            split_term(term).ok_or_else(|| SelectorError::Term { term: term.to_owned() })?;
        let value = unescape(value)?;
        let (target, default) = match label {
            NAME => (FieldTarget::Name, None),
            NAMESPACE => (FieldTarget::Namespace, None),
            _ => {
                let index = resource.field_index(label).ok_or_else(|| {
                    let (label, none) = (label.to_owned(), resource.fields().is_empty());
                    if none {
                        SelectorError::OnlyCommonFields { label }
                    } else {
                        SelectorError::UnknownField { label }
                    }
                })?;
                let short = u16::try_from(index).expect("resources have at most 64 fields");
                (FieldTarget::Field(short), Some(&resource.fields()[index].default))
            }
        };
        Ok(Self::new(label, &value, target, negated, default == Some(&value)))
    }

    fn new(
        label: &str,
        value: &str,
        target: FieldTarget,
        negated: bool,
        absent_equals: bool,
    ) -> Self {
        let label_len = u16::try_from(label.len()).expect("selectors are limited to 32 KiB");
        Self { text: [label, value].concat().into(), label_len, target, negated, absent_equals }
    }

    /// What the selector calls the field.
    pub fn label(&self) -> &str {
        &self.text[..usize::from(self.label_len)]
    }

    /// What the field is compared with.
    pub fn value(&self) -> &str {
        &self.text[usize::from(self.label_len)..]
    }

    /// Which field it is.
    pub fn target(&self) -> FieldTarget {
        self.target
    }

    /// Returns `true` for `!=`.
    pub fn negated(&self) -> bool {
        self.negated
    }

    fn order(&self) -> (&str, bool, &str) {
        (self.label(), self.negated, self.value())
    }

    fn matches(&self, object: &Object) -> bool {
        let found = match self.target {
            FieldTarget::Name => Some(object.key().name()),
            FieldTarget::Namespace => Some(object.key().namespace()),
            FieldTarget::Field(index) => object.field(usize::from(index)),
        };
        found.map_or(self.absent_equals, |found| found == self.value()) != self.negated
    }
}

/// The parts between commas that have no backslash before them.
struct Terms<'a>(Option<&'a str>);

impl<'a> Iterator for Terms<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.0?;
        let mut escaped = false;
        let comma = rest.bytes().position(|byte| {
            let found = byte == b',' && !escaped;
            escaped = byte == b'\\' && !escaped;
            found
        });
        self.0 = comma.map(|at| &rest[at + 1..]);
        Some(&rest[..comma.unwrap_or(rest.len())])
    }
}

/// Label, whether it is `!=`, value: parted by the first operator.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let equals = term.find('=')?;
    let (before, after) = (&term[..equals], &term[equals + 1..]);
    Some(match before.strip_suffix('!') {
        Some(label) => (label, true, after),
        None => (before, false, after.strip_prefix('=').unwrap_or(after)),
    })
}

fn unescape(text: &str) -> Result<String, SelectorError> {
    let mut value = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(character) = chars.next() {
        match character {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => value.push(escaped),
                other => {
                    let sequence = std::iter::once('\\').chain(other).collect();
                    return Err(SelectorError::Escape { sequence });
                }
            },
            ',' | '=' => return Err(SelectorError::Unescaped { character }),
            _ => value.push(character),
        }
    }
    Ok(value)
}

impl fmt::Display for FieldSelector {
    /// Canonical text: parsing it gives the same selector.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, it) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{}{}", it.label(), if it.negated { "!=" } else { "=" })?;
            for character in it.value().chars() {
                let escape = if matches!(character, '\\' | ',' | '=') { "\\" } else { "" };
                write!(f, "{escape}{character}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Debug for FieldRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{:?}", self.label(), if self.negated { "!=" } else { "=" }, self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SELECTOR_BYTES_MAX;

    #[test]
    fn a_term_is_three_words_and_one_allocation() {
        assert_eq!(size_of::<FieldRequirement>(), 24);
        let selector = FieldSelector::named("web");
        assert_eq!(selector.heap_bytes(), 24 + "metadata.nameweb".len());
        assert_eq!((selector.name(), selector.namespace()), (Some("web"), None));
    }

    #[test]
    fn the_first_operator_parts_a_term() {
        assert_eq!(split_term("a=b"), Some(("a", false, "b")));
        assert_eq!(split_term("a==b"), Some(("a", false, "b")));
        assert_eq!(split_term("a!=b"), Some(("a", true, "b")));
        assert_eq!(split_term("a!==b"), Some(("a", true, "=b")));
        assert_eq!(split_term("a"), None);
    }

    #[test]
    fn limits_hold_at_n_and_break_at_n_plus_one() {
        let pods = Resource::pods();
        let terms = |n: usize| vec!["metadata.name=a"; n].join(",");
        assert!(FieldSelector::parse(&terms(REQUIREMENTS_MAX), &pods).is_ok());
        assert!(too_large(&terms(REQUIREMENTS_MAX + 1), "terms"));
        let long = |n: usize| format!("{NAME}={}", "x".repeat(n - NAME.len() - 1));
        assert!(FieldSelector::parse(&long(SELECTOR_BYTES_MAX), &pods).is_ok());
        assert!(too_large(&long(SELECTOR_BYTES_MAX + 1), "bytes"));
    }

    fn too_large(text: &str, of: &str) -> bool {
        let parsed = FieldSelector::parse(text, &Resource::pods());
        matches!(parsed, Err(SelectorError::TooLarge { what, .. }) if what == of)
    }
}
