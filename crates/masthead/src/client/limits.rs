//! Every bound of the commands that follow a cluster, with its reason.

use std::time::Duration;

use masthead_cache::HistoryLimits;

/// How often bars are drawn: often enough to look alive.
pub(crate) const REDRAW: Duration = Duration::from_millis(100);
/// How often a line is printed where there is no terminal.
pub(crate) const LINE: Duration = Duration::from_secs(2);
/// Over how long a rate is measured: a page on a slow link comes in bursts.
pub(crate) const RATE: Duration = Duration::from_secs(1);
/// How often it is looked whether a lost connection is back.
pub(crate) const RECOVERY: Duration = Duration::from_millis(250);
/// Changes that wait for whoever reads the output: at 100 a second a quarter of an hour in which a
/// terminal was stopped, or 256 MiB of objects. What is missed beyond is printed as one change a key.
pub(crate) const HISTORY: HistoryLimits = HistoryLimits {
    changes: 100_000,
    bytes: 256 * 1024 * 1024,
    age: Duration::from_secs(24 * 3600),
    unread_bytes: 0,
};
/// Rows that are aligned and written together: a screenful many times over, and less than a megabyte.
pub(crate) const ROWS: usize = 1000;
