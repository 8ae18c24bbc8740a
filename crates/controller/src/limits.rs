//! Every bound of this crate, with its reason. Those a user may set are defaults of the settings.

use std::time::Duration;

/// Keys that a queue knows at a time: waiting, delayed, worked on or remembered for their failures. A key
/// costs about 150 bytes beside itself, so this is 150 MB; who has more objects than that shards.
pub const QUEUE_KEYS_MAX: usize = 1_000_000;
/// Turns that a priority with something waiting is passed over before it has one (R30). Three priorities
/// have a turn at least once in `AGING_TURNS + 3`, so low items keep a tenth of the workers.
pub const AGING_TURNS: u32 = 8;
/// As many as there are priorities: with fewer those that have aged would keep each other from their turns.
pub const AGING_TURNS_MIN: u32 = 3;
/// First wait of a key that failed; each further one doubles (R29).
pub const BACKOFF_BASE: Duration = Duration::from_millis(5);
/// Longest wait of a key that failed.
pub const BACKOFF_MAX: Duration = Duration::from_secs(1000);
/// Retries a second over all keys, on average (R29).
pub const RETRIES_PER_SECOND: u32 = 10;
/// Retries that may come at once.
pub const RETRIES_BURST: u32 = 100;
/// Reconciles of a controller at a time, unless it says otherwise.
pub const WORKERS: usize = 4;
/// Most of them: each is a task.
pub const WORKERS_MAX: usize = 1024;
/// How long a reconcile may take. Twice the time-out of most requests, so that one that hangs is not all.
pub const RECONCILE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a key that wrote is parked: a bookmark comes once a minute at the latest (R33).
pub const PARKED_MAX: Duration = Duration::from_secs(75);
/// How long reconciles that are under way may still take after a stop.
pub const STOP_GRACE: Duration = Duration::from_secs(30);
/// Objects in quarantine that are listed with their errors.
pub const QUARANTINED_MAX: usize = 100_000;
/// How long a lease holds after its last renewal.
pub const LEASE_DURATION: Duration = Duration::from_secs(15);
/// How long a leader acts after the last renewal that succeeded. What is left of the lease is for requests
/// that are still on their way and for clocks that do not run equally fast.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Between two tries to get or keep a lease.
pub const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// Series of events that a recorder remembers.
pub const EVENT_SERIES_MAX: usize = 4096;
/// How long after its last event a series is over.
pub const EVENT_SERIES_IDLE: Duration = Duration::from_secs(360);
/// Events of one object that may come at once, and how often there is one more after that.
pub const EVENTS_BURST: u32 = 25;
/// See [`EVENTS_BURST`].
pub const EVENT_INTERVAL: Duration = Duration::from_secs(300);
/// Bytes of the note of an event: what the API takes.
pub const EVENT_NOTE_BYTES_MAX: usize = 1024;
/// Connections to the endpoints for health and metrics at a time.
pub const ENDPOINT_CONNECTIONS_MAX: usize = 64;
/// Between two tries to accept a connection to those, when that fails: the process may have no file descriptors left.
pub const ACCEPT_RETRY: Duration = Duration::from_millis(100);
