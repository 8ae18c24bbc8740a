//! The one number that orders every change of a store.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A position in the history of a store: what the wire calls `resourceVersion` (W5).
///
/// One counter for the whole store, strictly increasing, comparable across resources. Zero is
/// before everything: on the wire it means "whatever is cached".
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Revision(pub u64);

impl Revision {
    /// Before everything.
    pub const ZERO: Self = Self(0);
    /// After everything.
    pub const MAX: Self = Self(u64::MAX);

    /// The revision right after this one.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns `true` for [`Revision::ZERO`].
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Revision {
    type Err = ParseIntError;

    /// Decimal digits only: a sign is refused.
    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        if text.starts_with('+') { "+".parse::<u64>() } else { text.parse() }.map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::Revision;

    #[test]
    fn only_decimal_digits_are_a_revision() {
        assert_eq!("0".parse(), Ok(Revision::ZERO));
        assert_eq!("18446744073709551615".parse(), Ok(Revision::MAX));
        for bad in ["", "-1", "+1", "1.0", "0x1", "a", " 1", "18446744073709551616"] {
            assert!(bad.parse::<Revision>().is_err(), "{bad:?}");
        }
    }
}
