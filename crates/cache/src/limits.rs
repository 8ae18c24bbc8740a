//! Every bound of this crate, with its reason. Under shuttle, what grows begins small: its tests go
//! through growth in a few steps.

use std::time::Duration;

/// Default bound of the history window in changes. At 100 changes a second it is a quarter of an
/// hour; the ring costs 8 bytes for each.
pub const HISTORY_CHANGES: usize = 100_000;
/// Default bound of the history window in bytes: what superseded objects of one resource may hold.
pub const HISTORY_BYTES: usize = 256 * 1024 * 1024;
/// Default bound of the history window in time. Clients reconnect within minutes; kube-apiserver's
/// etcd keeps five.
pub const HISTORY_AGE: Duration = Duration::from_secs(15 * 60);
/// Slots allocated at a time: 64 KiB.
pub(crate) const SLOTS_PER_CHUNK: usize = if cfg!(shuttle) { 2 } else { 1024 };
/// Values of an index whose slots are allocated at a time: 2 KiB.
pub(crate) const VALUES_PER_CHUNK: usize = if cfg!(shuttle) { 2 } else { 256 };
/// Mutations of a batch that are looked at before the first of them is applied: what they wait for is then
/// fetched from memory side by side. The lines of so many, about ten each, are a third of the nearest cache.
pub(crate) const LOOK_AHEAD: usize = 16;
/// Versions that are looked at together: as many as `arc_swap` lends to a thread without counting.
pub(crate) const LENT: usize = 8;
/// Most changes in one segment of the history: what has left the window is freed by segments, so this
/// bounds by how much memory lags behind the books.
pub(crate) const SEGMENT_CHANGES_MAX: usize = 256;
/// Smallest ring, grown by doubling: 2 KiB.
pub(crate) const RING_MIN: usize = if cfg!(shuttle) { 2 } else { 256 };
/// Smallest table of keys: 2 KiB.
pub(crate) const TABLE_MIN: usize = if cfg!(shuttle) { 4 } else { 256 };
/// Ring entries that one read looks at before it yields to others, matching or not: about 100 µs.
pub const SCAN_MAX: u64 = 4096;
/// Superseded views that may wait behind a pinned one before all of them are looked through.
pub(crate) const VIEWS_BETWEEN_SWEEPS: usize = 64;
/// Most indexes of one cache: an update visits each.
pub const INDEXES_MAX: usize = 64;
/// Most values of one object in one index.
pub const INDEX_VALUES_MAX: usize = 1024;
/// Longest value of an index, in bytes.
pub const INDEX_VALUE_BYTES_MAX: usize = 1024;
