//! What a seed has in store: how big the world is and how badly it behaves.

use masthead_reflector::{FirstList, Settings, Strategy};

use crate::dice::Dice;

/// The draw of one run.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent draws")]
pub(super) struct Plan {
    pub settings: Settings,
    /// Keys that objects may have.
    pub keys: u64,
    /// Objects that are there at the start.
    pub objects: u64,
    /// When the faults end, in milliseconds.
    pub calm_at: u64,
    /// Longest time between two writes.
    pub write_ms_max: u64,
    /// Of a hundred requests so many go wrong.
    pub list_faults: u64,
    pub watch_faults: u64,
    /// Most watches are closed as soon as they are granted.
    pub storm: bool,
    /// Of a hundred streams so many break before their time.
    pub breaks: u64,
    /// Time between compactions, if there are any, and the revisions that they leave.
    pub compact_ms: Option<u64>,
    pub keep: u64,
    /// A second server that is up to so many revisions behind.
    pub lag: Option<u64>,
    /// That server answers consistent lists from its own past.
    pub lying: bool,
    /// Initial events are refused.
    pub no_streaming: bool,
    /// A restore from a backup at this time.
    pub restore_at: Option<u64>,
    /// A restart of the client at this time, with or without its saved mark.
    pub restart_at: Option<u64>,
    pub saves_mark: bool,
}

impl Plan {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        let calm_at = dice.between(15_000, 75_000);
        let limit = dice.between(2, 12);
        let limit = usize::try_from(limit).unwrap_or(2);
        let some =
            |dice: &mut Dice, percent| dice.chance(percent).then(|| dice.between(1, calm_at));
        Self {
            settings: Settings {
                strategy: dice.one_of(&[Strategy::Streaming, Strategy::Pages]),
                first_list: if dice.chance(20) { FirstList::Cached } else { FirstList::Consistent },
                page_objects: limit,
                page_objects_min: limit.min(3),
                page_objects_max: 2 * limit,
                ..Settings::default()
            },
            keys: dice.between(4, 30),
            objects: dice.between(0, 25),
            calm_at,
            write_ms_max: dice.skewed(400, 8_000),
            list_faults: dice.one_of(&[0, 10, 30, 60]),
            watch_faults: dice.one_of(&[0, 10, 30, 60]),
            storm: dice.chance(12),
            breaks: dice.one_of(&[0, 20, 60, 90]),
            compact_ms: dice.chance(60).then(|| dice.one_of(&[100, 1_000, 10_000])),
            keep: dice.skewed(0, 40),
            lag: dice.chance(30).then(|| dice.skewed(5, 10_000)),
            lying: dice.chance(40),
            no_streaming: dice.chance(25),
            restore_at: some(dice, 20),
            restart_at: some(dice, 25),
            saves_mark: dice.chance(60),
        }
    }
}

/// How a list request goes wrong.
#[derive(Clone, Copy, Debug)]
pub(super) enum ListFault {
    Refused,
    /// An HTTP error, some with a `Retry-After` in seconds.
    Code(u16, Option<u32>),
    /// No answer at all.
    Hang,
    /// The answer takes its time, in milliseconds, and comes in drops.
    Slow(u64),
    /// A 500 after so many milliseconds, when the client has given up.
    TooLate(u64),
    Truncated,
    Reset,
    /// 410 for a token that is not that old.
    Expired,
    /// The same answer twice.
    Twice,
}

/// How a watch goes wrong before its first event.
#[derive(Clone, Copy, Debug)]
pub(super) enum WatchFault {
    Refused,
    Code(u16, Option<u32>),
    Hang,
    /// Granted and closed without a word.
    Empty,
    Expired,
    /// Events are held back for so long.
    Stall(u64),
    /// Nothing comes any more, not even the end.
    HalfOpen,
}

impl Plan {
    pub(super) fn list_fault(&self, dice: &mut Dice) -> Option<ListFault> {
        if !dice.chance(self.list_faults) {
            return None;
        }
        Some(match dice.between(0, 11) {
            0 => ListFault::Refused,
            1 => ListFault::Code(429, Some(u32::try_from(dice.between(1, 15)).unwrap_or(1))),
            2 => ListFault::Code(429, None),
            3 => ListFault::Code(dice.one_of(&[500, 503, 504]), None),
            4 => ListFault::Code(dice.one_of(&[401, 403]), None),
            5 => ListFault::Hang,
            6 if dice.chance(20) => ListFault::Slow(dice.between(30_000, 40_000)),
            6 if dice.chance(50) => ListFault::TooLate(dice.between(30_000, 40_000)),
            6 => ListFault::Slow(dice.between(100, 5_000)),
            7 => ListFault::Truncated,
            8 => ListFault::Reset,
            9 | 10 => ListFault::Expired,
            _ => ListFault::Twice,
        })
    }

    pub(super) fn watch_fault(&self, dice: &mut Dice) -> Option<WatchFault> {
        if self.storm && dice.chance(80) {
            return Some(WatchFault::Empty);
        }
        if !dice.chance(self.watch_faults) {
            return None;
        }
        Some(match dice.between(0, 10) {
            0 => WatchFault::Refused,
            1 => WatchFault::Code(429, Some(u32::try_from(dice.between(1, 15)).unwrap_or(1))),
            2 => WatchFault::Code(dice.one_of(&[429, 500, 503, 504]), None),
            3 => WatchFault::Hang,
            4..=6 => WatchFault::Empty,
            7 | 8 => WatchFault::Expired,
            9 => WatchFault::Stall(dice.between(1_000, 60_000)),
            _ => WatchFault::HalfOpen,
        })
    }
}
