//! Everything random in a world comes from here, and follows from its seed.

/// `SplitMix64` with the few draws that a world needs.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        // The constant keeps seed 0 away from the all-zero state.
        Self(seed ^ 0x6d61_7374_6865_6164)
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of `low..=high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.roll() % (high - low + 1)
    }

    /// True `percent` times of a hundred.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.roll() % 100 < percent
    }

    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        let place = self.between(0, choices.len() as u64 - 1);
        choices[usize::try_from(place).unwrap_or(0)]
    }

    /// Small numbers often, large ones sometimes: uniform in the number of digits.
    pub(crate) fn skewed(&mut self, low: u64, high: u64) -> u64 {
        let span = (high - low).max(1);
        let bits = self.between(0, u64::from(span.ilog2()));
        low + self.between(0, (1 << bits).min(span))
    }
}
