//! Shard selectors (W28).

use std::fmt;
use std::str::FromStr;

use super::{SelectorError, check_length};
use crate::Object;
use crate::limits::SHARD_RANGES_MAX;

/// A share of all objects, by the hash of a field: how several controllers part the work.
///
/// `shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')`, several of them
/// with `||` between; all name the same field. The start belongs to the range, the end does not,
/// and `0x10000000000000000` is the end of the last shard. Ranges are kept sorted and merged.
///
/// ```
/// use masthead_core::ShardSelector;
///
/// let half: ShardSelector =
///     "shardRange(object.metadata.uid,'0x8000000000000000','0x10000000000000000')".parse()?;
/// assert!(half.matches_text("a"), "its hash is 0xaf63dc4c8601ec8c");
/// # Ok::<(), masthead_core::SelectorError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct ShardSelector {
    ranges: Box<[ShardRange]>,
    field: ShardField,
}

/// Hashes from the first to the last, both included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ShardRange {
    /// The lowest hash of the range.
    pub first: u64,
    /// The highest.
    pub last: u64,
}

/// The field that is hashed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum ShardField {
    /// `object.metadata.uid`.
    #[default]
    Uid,
    /// `object.metadata.namespace`: a shard has whole namespaces.
    Namespace,
}

impl ShardField {
    const ALL: [Self; 2] = [Self::Uid, Self::Namespace];

    const fn path(self) -> &'static str {
        match self {
            Self::Uid => "object.metadata.uid",
            Self::Namespace => "object.metadata.namespace",
        }
    }
}

impl ShardSelector {
    /// Reads a selector. The empty text matches everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        check_length(text)?;
        let mut parser = Parser { text, at: 0 };
        parser.skip_space();
        if parser.at == text.len() {
            return Ok(Self::default());
        }
        let mut ranges = Vec::new();
        let mut field = None;
        loop {
            let (named, range) = parser.term()?;
            if *field.get_or_insert(named) != named {
                return parser.fail("all ranges must be of the same field");
            }
            ranges.push(range);
            parser.skip_space();
            if parser.at == text.len() {
                break;
            }
            parser.expect("||", "expected '||' or the end")?;
        }
        let ranges = merged(ranges);
        if ranges.len() > SHARD_RANGES_MAX {
            return Err(SelectorError::TooLarge { what: "ranges", limit: SHARD_RANGES_MAX });
        }
        Ok(Self { ranges: ranges.into(), field: field.unwrap_or_default() })
    }

    /// Does the object belong to the share? Allocates nothing.
    pub fn matches(&self, object: &Object) -> bool {
        match self.field {
            _ if self.is_everything() => true,
            ShardField::Uid => self.matches_text(object.uid()),
            ShardField::Namespace => self.matches_text(object.key().namespace()),
        }
    }

    /// Returns `true` if an object with this text in the field belongs to the shard.
    pub fn matches_text(&self, text: &str) -> bool {
        let hash = fnv1a(text.as_bytes());
        let below = self.ranges.partition_point(|range| range.last < hash);
        self.is_everything() || self.ranges.get(below).is_some_and(|range| range.first <= hash)
    }

    /// Returns `true` if the selector has no range.
    pub fn is_everything(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Which field counts.
    pub fn field(&self) -> ShardField {
        self.field
    }

    /// The ranges, sorted, with gaps between them.
    pub fn ranges(&self) -> &[ShardRange] {
        &self.ranges
    }

    /// Bytes on the heap, allocator slack aside.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.ranges)
    }
}

fn merged(mut ranges: Vec<ShardRange>) -> Vec<ShardRange> {
    ranges.sort_unstable();
    ranges.dedup_by(|next, kept| {
        let touches = kept.last.checked_add(1).is_none_or(|after| next.first <= after);
        if touches {
            kept.last = kept.last.max(next.last);
        }
        touches
    });
    ranges
}

/// FNV-1a with 64 bits.
fn fnv1a(bytes: &[u8]) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(BASIS, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn fail<T>(&self, what: &'static str) -> Result<T, SelectorError> {
        Err(SelectorError::Shard { what, at: self.at })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_ascii_start().len();
    }

    fn expect(&mut self, word: &str, what: &'static str) -> Result<(), SelectorError> {
        self.skip_space();
        if !self.rest().starts_with(word) {
            return self.fail(what);
        }
        self.at += word.len();
        Ok(())
    }

    fn term(&mut self) -> Result<(ShardField, ShardRange), SelectorError> {
        self.expect("shardRange", "only shardRange() and || are allowed")?;
        self.expect("(", "expected '('")?;
        self.skip_space();
        let named = ShardField::ALL.into_iter().find(|it| self.rest().starts_with(it.path()));
        let Some(field) = named else {
            return self.fail("expected object.metadata.uid or object.metadata.namespace");
        };
        self.at += field.path().len();
        self.expect(",", "expected ',' behind the field")?;
        let first = self.bound()?;
        self.expect(",", "expected ',' behind the start")?;
        let end = self.bound()?;
        if first >= end {
            return self.fail("the start must be below the end");
        }
        self.expect(")", "expected ')'")?;
        // Below 2^64 both, since the end is at most that.
        let narrow = |bound: u128| u64::try_from(bound).expect("at most 2^64 - 1");
        Ok((field, ShardRange { first: narrow(first), last: narrow(end - 1) }))
    }

    /// A quoted number with up to 16 hexadecimal digits, or 2^64.
    fn bound(&mut self) -> Result<u128, SelectorError> {
        self.skip_space();
        let quote = self.rest().chars().next().filter(|c| matches!(c, '\'' | '"'));
        let inner = quote.and_then(|quote| self.rest()[1..].split_once(quote));
        let Some((literal, _)) = inner else {
            return self.fail("expected a quoted number like '0x8000000000000000'");
        };
        let Some(digits) = literal.strip_prefix("0x") else {
            return self.fail("expected '0x' before the digits");
        };
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if digits.is_empty() || digits.len() > 17 || !digits.bytes().all(is_digit) {
            return self.fail("expected up to 16 lower case hexadecimal digits");
        }
        let bound = u128::from_str_radix(digits, 16).ok().filter(|&bound| {
            let is_end = bound == 1 << 64;
            (digits.len() <= 16) || is_end
        });
        let Some(bound) = bound else {
            return self.fail("the only number with 17 digits is 0x10000000000000000");
        };
        self.at += literal.len() + 2;
        Ok(bound)
    }
}

impl FromStr for ShardSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Self::parse(text)
    }
}

impl fmt::Display for ShardSelector {
    /// Canonical text: parsing it gives the same selector.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, range) in self.ranges.iter().enumerate() {
            let or = if at == 0 { "" } else { " || " };
            let (path, end) = (self.field.path(), u128::from(range.last) + 1);
            write!(f, "{or}shardRange({path}, '0x{:016x}', '0x{end:016x}')", range.first)?;
        }
        Ok(())
    }
}

impl fmt::Debug for ShardSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SELECTOR_BYTES_MAX;

    #[test]
    fn fnv1a_gives_the_published_hashes() {
        for (text, hash) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(fnv1a(text.as_bytes()), hash, "{text}");
        }
    }

    #[test]
    fn shards_part_everything_without_overlap() {
        let shard = |from: &str, to: &str| {
            let text = format!("shardRange(object.metadata.uid, '{from}', '{to}')");
            ShardSelector::parse(&text).unwrap()
        };
        let shards = [
            shard("0x0000000000000000", "0x4000000000000000"),
            shard("0x4000000000000000", "0xaf63dc4c8601ec8c"),
            shard("0xaf63dc4c8601ec8c", "0x10000000000000000"),
        ];
        for uid in (0..1000).map(|i| format!("uid-{i}")).chain(["a".into()]) {
            let count = shards.iter().filter(|shard| shard.matches_text(&uid)).count();
            assert_eq!(count, 1, "{uid}");
        }
        assert!(shards[2].matches_text("a"), "the start belongs to the range");
    }

    #[test]
    fn limits_hold_at_n_and_break_at_n_plus_one() {
        let rings = |n: usize| {
            let term = |i: usize| {
                let (start, end) = (2 * i, 2 * i + 1);
                format!("shardRange(object.metadata.uid,'0x{start:x}','0x{end:x}')")
            };
            (0..n).map(term).collect::<Vec<_>>().join("||")
        };
        let most = ShardSelector::parse(&rings(SHARD_RANGES_MAX)).unwrap();
        assert_eq!(most.heap_bytes(), 16 * SHARD_RANGES_MAX);
        let ranges = ShardSelector::parse(&rings(SHARD_RANGES_MAX + 1));
        assert!(matches!(ranges, Err(SelectorError::TooLarge { what: "ranges", .. })));
        let bytes = ShardSelector::parse(&" ".repeat(SELECTOR_BYTES_MAX + 1));
        assert!(matches!(bytes, Err(SelectorError::TooLarge { what: "bytes", .. })));
        assert!(ShardSelector::parse(&" ".repeat(SELECTOR_BYTES_MAX)).unwrap().is_everything());
    }
}
