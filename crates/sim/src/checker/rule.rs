//! The names of the rules.

use std::fmt;
use std::str::FromStr;

/// A rule that a history can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Watches: only what is in scope and selected.
    S1,
    /// Watches: revisions strictly rise, nothing twice.
    S2,
    /// Watches: exactly the projection of the log, with its types and contents.
    S3,
    /// Watches: a bookmark stands after all that it covers and before all else.
    S4,
    /// Watches: resuming begins at the next event, or is refused with 410 and nothing more.
    S5,
    /// Watches: a revision of the future is waited for in silence.
    S6,
    /// Watches: the initial events are one state, marked once, as fresh as asked for.
    S7,
    /// Watches: equal questions get equal answers.
    S8,
    /// Watches: delivered in time or ended with a reason.
    S9,
    /// Watches: a stalled reader costs the others little and its server a bounded amount.
    S10,
    /// Lists: one state.
    L1,
    /// Lists: as fresh as asked for.
    L2,
    /// Lists: pages are parts of one list.
    L3,
    /// Lists: a watch from a list's revision continues it.
    L4,
    /// Writes: one order that explains all answers.
    K1,
    /// Writes: what was acknowledged stays.
    K2,
    /// Informers: a cached key never goes back in time.
    I1,
    /// Informers: nothing cached that is not there.
    I2,
    /// Informers: a handler hears add, updates, delete, and ends up with the cache.
    I3,
    /// Informers: a quiet world is mirrored, and stays mirrored.
    I4,
    /// Informers: an index is what a scan would find.
    I5,
    /// Informers: in sync is said after the last handler heard the last initial object.
    I6,
    /// Informers: no needless lists, no hurried and no forgotten retries.
    I7,
    /// Informers: every size within its bound.
    I8,
}

impl Rule {
    /// All rules, in the order of their declaration.
    pub const ALL: [Self; 24] = [
        Self::S1,
        Self::S2,
        Self::S3,
        Self::S4,
        Self::S5,
        Self::S6,
        Self::S7,
        Self::S8,
        Self::S9,
        Self::S10,
        Self::L1,
        Self::L2,
        Self::L3,
        Self::L4,
        Self::K1,
        Self::K2,
        Self::I1,
        Self::I2,
        Self::I3,
        Self::I4,
        Self::I5,
        Self::I6,
        Self::I7,
        Self::I8,
    ];
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|rule| rule.to_string() == name);
        found.ok_or_else(|| format!("`{name}` is no rule"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_stands_at_its_place_and_reads_back() {
        for (place, rule) in Rule::ALL.into_iter().enumerate() {
            assert_eq!(rule as usize, place);
            assert_eq!(rule.to_string().parse(), Ok(rule));
        }
    }
}
