//! Strings that many heads have, kept once for all of them.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use triomphe::Arc;

use super::Span;
use crate::limits::{COMMON_AT, COMMON_BYTES_MAX, COMMON_MIN, COMMON_STRINGS_MAX};

/// What the heads of objects of one kind have in common: names of labels, owners' kinds, nodes. Learned
/// from the first of them, and again when more have been seen.
///
/// A body that is held as JSON has its strings anyway; only heads whose body is elsewhere need it:
/// [`Object::held_with`](super::Object::held_with).
#[derive(Debug, Default)]
pub struct CommonStrings {
    seen: usize,
    /// How often each string was seen, until there is nothing more to learn.
    counts: HashMap<Box<str>, usize, FixedState>,
    places: HashMap<Box<str>, Span, FixedState>,
    text: Option<Arc<Box<str>>>,
}

/// Spans from here on are in the common text. No text of a head is this long.
pub(super) const COMMON: u32 = 1 << 31;

impl CommonStrings {
    /// Looks at the strings of an object.
    pub(super) fn see<'a>(&mut self, strings: impl Iterator<Item = &'a str>) {
        let Some(last) = COMMON_AT.last().filter(|last| self.seen < **last) else { return };
        for string in strings {
            if let Some(count) = self.counts.get_mut(string) {
                *count += 1;
            } else if self.counts.len() < COMMON_STRINGS_MAX {
                self.counts.insert(string.into(), 1);
            }
        }
        self.seen += 1;
        if COMMON_AT.contains(&self.seen) {
            self.learn();
        }
        if self.seen == *last {
            self.counts = HashMap::default();
        }
    }

    fn learn(&mut self) {
        let mut text = String::new();
        self.places.clear();
        let mut common: Vec<_> =
            self.counts.iter().filter(|(_, count)| **count >= COMMON_MIN).collect();
        common.sort_unstable_by_key(|(string, count)| (std::cmp::Reverse(**count), *string));
        for (string, _) in common {
            if text.len() + string.len() <= COMMON_BYTES_MAX {
                let start = text.len();
                text.push_str(string);
                let Span { start, len } = Span::new(start, text.len());
                self.places.insert(string.clone(), Span { start: start | COMMON, len });
            }
        }
        self.text = Some(Arc::new(text.into()));
    }

    /// Where a string is in the common text.
    pub(super) fn place(&self, string: &str) -> Option<Span> {
        self.places.get(string).copied()
    }

    pub(super) fn text(&self) -> Option<Arc<Box<str>>> {
        self.text.clone()
    }
}
