//! Every bound of this crate, with its reason. Those a user may set are defaults of the settings.

use std::time::Duration;

/// Changes that a cache keeps for its handlers: what is missed beyond is told as a difference (R20).
pub const HISTORY_CHANGES: usize = 4096;
/// Bytes of those changes: a tenth of what 10,000 pods take.
pub const HISTORY_BYTES: usize = 8 * 1024 * 1024;
/// Bytes of changes that are kept beyond those two while a handler has not read them: about 6,000 changes
/// of pods that come at once. To tell a handler the difference between two states of a cache takes longer
/// than to tell it the changes, and what it was told last is kept for it anyway.
pub const UNREAD_BYTES: usize = 64 * 1024 * 1024;
/// Bytes that handlers may pin in one cache before the slowest loses its place: about 7,000 pods that
/// changed while it was busy.
pub const PINNED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How often pinned bytes are looked at, and how long a handler that hears nothing keeps an old place.
pub const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// Events that a handler takes from the cache at a time.
pub const BATCH_EVENTS: usize = 128;
/// Shortest time between two resyncs of a handler (R22).
pub const RESYNC_MIN: Duration = Duration::from_secs(1);
/// Objects whose decoded form is kept for the next reader, each in a place of its own.
pub const DECODED_MAX: usize = 256;
/// Fields beside the metadata that an informer may index or select by.
pub const FIELDS_MAX: usize = masthead_core::limits::SELECTABLE_FIELDS_MAX;
/// Namespaces that one informer may follow one by one; each has a watch of its own. Whoever needs more
/// follows all of them.
pub const NAMESPACES_MAX: usize = 64;
/// States of objects that a handler's filter chose by a panic, which are remembered: a filter that panics
/// differently at each call is wrong about the oldest of more.
pub const FILTER_PANICS_KEPT: usize = 4096;
/// Calls of a handler's filter for a state that it has judged before. It panics then only if it is not a function
/// of the object, so another call is enough for most that do so now and then.
pub const FILTER_TRIES: usize = 3;
/// Tasks that ended unexpectedly and are listed: the first of them say what is wrong.
pub const TASKS_ENDED_MAX: usize = 64;
/// Handlers and streams of one informer.
pub const HANDLERS_MAX: usize = 1024;
/// Largest saved state that is read: 100,000 pods of 10 KB.
pub const SAVED_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Between two savings of a cache.
pub const SAVE_INTERVAL: Duration = Duration::from_secs(300);
/// The time-outs in their order (R27); each leaves room for several of the one before.
pub const CONNECT: Duration = Duration::from_secs(10);
/// See [`CONNECT`]: no byte for this long.
pub const PROGRESS: Duration = Duration::from_secs(30);
/// See [`CONNECT`]: one page. Load balancers and proxies cut at 60 to 90 s.
pub const REQUEST: Duration = Duration::from_secs(50);
/// See [`CONNECT`]: one resource in a wait.
pub const RESOURCE_SYNC: Duration = Duration::from_secs(300);
/// See [`CONNECT`]: a whole wait.
pub const WHOLE_SYNC: Duration = Duration::from_secs(600);
