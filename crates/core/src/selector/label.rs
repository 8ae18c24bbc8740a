//! Label selectors (W26).

use std::fmt;
use std::str::FromStr;

use super::{SelectorError, check_length};
use crate::Labels;
use crate::limits::{REQUIREMENTS_MAX, SELECTOR_VALUES_MAX};

mod parse;
mod valid;

/// Terms on labels that must all hold; without terms everything matches.
///
/// The grammar is that of Kubernetes: `k`, `!k`, `k=v`, `k==v`, `k!=v`, `k in (a,b)`, `k notin
/// (a,b)`, `k>1`, `k<1`, with commas between. `!=` and `notin` also match where the label is
/// absent.
///
/// The form is canonical: terms are sorted, values are sorted and unique, so that two texts with
/// the same terms are equal selectors. A term takes 24 bytes and one allocation.
///
/// ```
/// use std::collections::BTreeMap;
/// use masthead_core::LabelSelector;
///
/// let selector: LabelSelector = "tier notin (cache), app == web".parse()?;
/// assert_eq!(selector.to_string(), "app=web,tier notin (cache)");
/// let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
/// assert!(selector.matches(&labels));
/// # Ok::<(), masthead_core::SelectorError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct LabelSelector(Box<[LabelRequirement]>);

/// One term of a [`LabelSelector`].
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LabelRequirement {
    /// The key, and before each value a zero byte: neither can contain one.
    text: Box<str>,
    key_len: u16,
    operator: LabelOperator,
}

/// How a [`LabelRequirement`] looks at a label.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LabelOperator {
    /// `k`: the label is there.
    Exists,
    /// `!k`: the label is absent.
    DoesNotExist,
    /// `k=v`: the label has this value.
    Equals,
    /// `k!=v`: the label is absent or has another value.
    NotEquals,
    /// `k in (a,b)`: the label has one of these values.
    In,
    /// `k notin (a,b)`: the label is absent or has none of these values.
    NotIn,
    /// `k>1`: the label is an integer above this one.
    GreaterThan,
    /// `k<1`: the label is an integer below this one.
    LessThan,
}

impl LabelOperator {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Exists => "exists",
            Self::DoesNotExist => "!",
            Self::Equals => "=",
            Self::NotEquals => "!=",
            Self::In => " in ",
            Self::NotIn => " notin ",
            Self::GreaterThan => ">",
            Self::LessThan => "<",
        }
    }

    /// What it takes, and whether this many values are that.
    const fn takes(self, values: usize) -> (&'static str, bool) {
        match self {
            Self::Exists | Self::DoesNotExist => ("no value", values == 0),
            Self::In | Self::NotIn => ("at least one value", values > 0),
            _ => ("one value", values == 1),
        }
    }
}

impl LabelSelector {
    /// Reads a selector. The empty text matches everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        check_length(text)?;
        Self::new(parse::requirements(text)?)
    }

    /// A selector of these terms.
    pub fn new(mut requirements: Vec<LabelRequirement>) -> Result<Self, SelectorError> {
        if requirements.len() > REQUIREMENTS_MAX {
            return Err(SelectorError::TooLarge { what: "terms", limit: REQUIREMENTS_MAX });
        }
        requirements.sort_unstable_by(|a, b| {
            (a.key(), a.operator, &a.text).cmp(&(b.key(), b.operator, &b.text))
        });
        requirements.dedup();
        Ok(Self(requirements.into()))
    }

    /// Do all terms hold? Allocates nothing.
    #[inline]
    pub fn matches(&self, labels: &(impl Labels + ?Sized)) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels.label(requirement.key())))
    }

    /// Returns `true` if the selector has no term.
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// The terms, sorted by key.
    pub fn requirements(&self) -> impl ExactSizeIterator<Item = &LabelRequirement> {
        self.0.iter()
    }

    /// Bytes on the heap, allocator slack aside.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.0) + self.0.iter().map(|it| it.text.len()).sum::<usize>()
    }
}

impl LabelRequirement {
    /// A term from its parts, checked as the parser checks them.
    pub fn new<'v>(
        key: &str,
        operator: LabelOperator,
        values: impl IntoIterator<Item = &'v str>,
    ) -> Result<Self, SelectorError> {
        valid::key(key)?;
        let mut values: Vec<&str> = values.into_iter().take(SELECTOR_VALUES_MAX + 1).collect();
        if values.len() > SELECTOR_VALUES_MAX {
            return Err(SelectorError::TooLarge { what: "values", limit: SELECTOR_VALUES_MAX });
        }
        let (takes, fits) = operator.takes(values.len());
        if !fits {
            let (operator, found) = (operator.as_str().trim(), values.len());
            return Err(SelectorError::ValueCount { operator, takes, found });
        }
        for value in &values {
            valid::value(key, value)?;
        }
        if let LabelOperator::GreaterThan | LabelOperator::LessThan = operator {
            valid::integer(key, values[0])?;
        }
        values.sort_unstable();
        values.dedup();
        let key_len = u16::try_from(key.len()).expect("keys are limited to 317 bytes");
        let text: String = std::iter::once(key).chain(values).collect::<Vec<_>>().join("\0");
        Ok(Self { text: text.into(), key_len, operator })
    }

    /// The label that it looks at.
    pub fn key(&self) -> &str {
        &self.text[..usize::from(self.key_len)]
    }

    /// How it looks at it.
    pub fn operator(&self) -> LabelOperator {
        self.operator
    }

    /// What it compares with, sorted and unique; none for the two operators without values.
    pub fn values(&self) -> impl Iterator<Item = &str> + Clone {
        let values = self.text.get(usize::from(self.key_len) + 1..);
        values.into_iter().flat_map(|values| values.split('\0'))
    }

    /// The values of which the label must have one, if the term asks for that: what an index of
    /// interests can look up.
    pub fn any_of(&self) -> Option<impl Iterator<Item = &str> + Clone> {
        let positive = matches!(self.operator, LabelOperator::Equals | LabelOperator::In);
        positive.then(|| self.values())
    }

    /// Returns `true` if the term holds for a label with this value, or for an absent one.
    pub fn matches(&self, label: Option<&str>) -> bool {
        match self.operator {
            LabelOperator::Exists => label.is_some(),
            LabelOperator::DoesNotExist => label.is_none(),
            LabelOperator::Equals | LabelOperator::In => label.is_some_and(|it| self.has(it)),
            LabelOperator::NotEquals | LabelOperator::NotIn => {
                !label.is_some_and(|it| self.has(it))
            }
            LabelOperator::GreaterThan => self.compare(label) == Some(std::cmp::Ordering::Greater),
            LabelOperator::LessThan => self.compare(label) == Some(std::cmp::Ordering::Less),
        }
    }

    fn has(&self, label: &str) -> bool {
        // Sorted: the first that is not below decides.
        self.values().find(|&value| value >= label) == Some(label)
    }

    /// The label against the term's integer; none unless both are integers.
    fn compare(&self, label: Option<&str>) -> Option<std::cmp::Ordering> {
        let label: i64 = label?.parse().ok()?;
        let bound: i64 = self.values().next()?.parse().ok()?;
        Some(label.cmp(&bound))
    }
}

impl FromStr for LabelSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Self::parse(text)
    }
}

impl fmt::Display for LabelSelector {
    /// Canonical text: parsing it gives the same selector.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, operator) = (self.key(), self.operator.as_str());
        match self.operator {
            LabelOperator::Exists => f.write_str(key),
            LabelOperator::DoesNotExist => write!(f, "!{key}"),
            LabelOperator::In | LabelOperator::NotIn => {
                write!(f, "{key}{operator}(")?;
                for (at, value) in self.values().enumerate() {
                    let comma = if at == 0 { "" } else { "," };
                    write!(f, "{comma}{value}")?;
                }
                f.write_str(")")
            }
            _ => write!(f, "{key}{operator}{}", self.values().next().unwrap_or_default()),
        }
    }
}

impl fmt::Debug for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Debug for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_is_three_words_and_one_allocation() {
        assert_eq!(size_of::<LabelRequirement>(), 24);
        assert_eq!(size_of::<LabelSelector>(), 16);
        let selector: LabelSelector = "app in (web,api,web)".parse().unwrap();
        assert_eq!(selector.heap_bytes(), 24 + "app\0api\0web".len());
        assert_eq!(LabelSelector::default().heap_bytes(), 0);
    }

    #[test]
    fn terms_show_their_parts() {
        let selector: LabelSelector = "b,a in (y,,x),!c".parse().unwrap();
        let parts: Vec<_> = selector
            .requirements()
            .map(|it| (it.key(), it.operator(), it.values().collect::<Vec<_>>()))
            .collect();
        assert_eq!(parts[0], ("a", LabelOperator::In, vec!["", "x", "y"]));
        assert_eq!(parts[1], ("b", LabelOperator::Exists, vec![]));
        assert_eq!(parts[2], ("c", LabelOperator::DoesNotExist, vec![]));
        let any: Vec<_> = selector.requirements().filter_map(LabelRequirement::any_of).collect();
        assert_eq!(any.len(), 1);
    }

    #[test]
    fn operators_take_the_values_they_can_use() {
        for (operator, values) in [
            (LabelOperator::Exists, &["v"][..]),
            (LabelOperator::In, &[]),
            (LabelOperator::Equals, &[]),
            (LabelOperator::NotEquals, &["a", "b"]),
        ] {
            let made = LabelRequirement::new("k", operator, values.iter().copied());
            assert!(matches!(made, Err(SelectorError::ValueCount { .. })), "{operator:?}");
        }
    }

    #[test]
    fn limits_hold_at_n_and_break_at_n_plus_one() {
        let terms = |n: usize| (0..n).map(|i| format!("k{i}")).collect::<Vec<_>>().join(",");
        assert!(LabelSelector::parse(&terms(REQUIREMENTS_MAX)).is_ok());
        assert!(too_large(&terms(REQUIREMENTS_MAX + 1), "terms"));
        let values = |n: usize| {
            let list = (0..n).map(|i| format!("v{i}")).collect::<Vec<_>>().join(",");
            format!("k in ({list})")
        };
        assert!(LabelSelector::parse(&values(SELECTOR_VALUES_MAX)).is_ok());
        assert!(too_large(&values(SELECTOR_VALUES_MAX + 1), "values"));
        let padded = |n: usize| format!("{:n$}", "k");
        assert!(LabelSelector::parse(&padded(crate::limits::SELECTOR_BYTES_MAX)).is_ok());
        assert!(too_large(&padded(crate::limits::SELECTOR_BYTES_MAX + 1), "bytes"));
    }

    fn too_large(text: &str, of: &str) -> bool {
        let parsed = LabelSelector::parse(text);
        matches!(parsed, Err(SelectorError::TooLarge { what, .. }) if what == of)
    }
}
