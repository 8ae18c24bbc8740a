//! Every bound that the checker holds a history to, and the bounds on the checker itself.
//!
//! All times are milliseconds of the history's own clock.

/// S9: a match is delivered within this time once no fault is on.
pub const DELIVERY_MS_MAX: u64 = 2_000;

/// S9: an idle stream that asked for bookmarks hears one within this time. Servers send one about
/// every 60 s; the rest is room for a timer that has just fired.
pub const BOOKMARK_MS_MAX: u64 = 75_000;

/// I4: a quiet world reaches every cache within this time: one backoff at its cap (30 s) that was
/// begun just before the quiet, and 5 s for the relist.
pub const CONVERGE_MS_MAX: u64 = 35_000;

/// I3: the cache's last change of a key has reached every handler after this time.
pub const HANDLER_MS_MAX: u64 = 2_000;

/// I7: the first wait after a failure.
pub const BACKOFF_MS_MIN: u64 = 800;

/// I7: where the doubling of waits stops (800 ms · 2⁶ would be 51 s).
pub const BACKOFF_MS_MAX: u64 = 30_000;

/// I7: a failure this long after the one before begins again at [`BACKOFF_MS_MIN`].
pub const BACKOFF_RESET_MS: u64 = 120_000;

/// I7: how much later than twice the wait (jitter 1.0 adds at most the wait itself) a retry may
/// leave, for scheduling in a real process.
pub const RETRY_LATE_MS_MAX: u64 = 1_000;

/// I7: how much earlier than its wait a retry may seem to leave when times are cut to whole
/// milliseconds.
pub const RETRY_EARLY_MS_MAX: u64 = 1;

/// I7: a watch without any event that ends within this time counts as failed.
pub const SHORT_WATCH_MS: u64 = 1_000;

/// I7: this many short watches in a row are a reason to list again.
pub const SHORT_WATCHES_TO_RELIST: u32 = 3;

/// S10: the factor by which stalled readers may worsen the others' 99th percentile.
pub const STALL_SLOWDOWN_MAX: u64 = 2;

/// S10: with fewer deliveries on either side a 99th percentile says nothing.
pub const LATENCY_SAMPLES_MIN: usize = 100;

/// S10: a calm percentile below this counts as this, or one tick of the clock would double it.
pub const LATENCY_MS_FLOOR: u64 = 10;

/// How many violations of one rule are reported. The first few tell the story; a history that is
/// broken from end to end would otherwise make a report larger than itself.
pub const VIOLATIONS_PER_RULE_MAX: usize = 100;
