//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Most writes in one call of [`Store::commit`](crate::Store::commit). A caller that has more sends
/// them in several calls; a call is never split over two groups.
pub const COMMIT_WRITES_MAX: usize = GROUP_WRITES_MAX;
/// Most bytes of bodies in one call: a full group. The largest object that is parsed at all is
/// larger; no server accepts one.
pub const COMMIT_BYTES_MAX: usize = GROUP_BYTES_MAX;
/// Most writes that one fsync covers. At 0.5 ms for an fsync and 5 µs for a write, 512 writes take
/// 3 ms: more would delay the first one and save nothing.
pub const GROUP_WRITES_MAX: usize = 512;
/// Most bytes of bodies that one fsync covers: two of the largest objects and then some. A disk that
/// writes 400 MB/s has it in 20 ms.
pub const GROUP_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most writes that wait for their group: eight full groups, which is 25 ms of work; whoever comes
/// later is told to come back.
pub const QUEUE_WRITES_MAX: usize = 8 * GROUP_WRITES_MAX;
/// Most bytes of bodies that wait for their group: eight full groups.
pub const QUEUE_BYTES_MAX: usize = 8 * GROUP_BYTES_MAX;
/// Most compactions that wait for the committer. One of them does the work of all.
pub const QUEUE_COMPACTIONS_MAX: usize = 64;
/// Most events that one batch of a watch holds, so that a batch of small ones stays a short hold of
/// the tail's lock (256 reference counts are some 10 µs).
pub const EVENTS_BATCH_MAX: usize = 256;
/// Most bytes of bodies that one batch of a watch holds, beyond its first event: what a replay from
/// disk has in memory at a time.
pub const EVENTS_BATCH_BYTES_MAX: usize = 1024 * 1024;
/// Bytes that a thread keeps for reading the log into: a full batch of a watch and its names. Larger
/// records get theirs for once.
pub const READ_BUFFER_BYTES: usize = EVENTS_BATCH_BYTES_MAX + 64 * 1024;
/// Most values in one page of a range. 10,000 pods of 9.4 KB are 94 MB.
pub const RANGE_VALUES_MAX: usize = 10_000;
/// Most bytes of bodies in one page of a range, beyond its first value; the page then ends early.
pub const RANGE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of recent events in memory. A live watch is at most a few groups behind and finds them
/// here; whoever is further behind reads from disk. Most of the bodies are the cache's as well.
pub const TAIL_BYTES_MAX: usize = 4 * 1024 * 1024;
/// What an event in the tail costs beside its body: the head of an object (300 bytes), key, links.
pub const TAIL_EVENT_BYTES: usize = 512;
/// How long superseded states are kept by default. Clients that lost their connection come back
/// within minutes; etcd under Kubernetes keeps 5 to 10 minutes.
pub const KEEP_AGE: Duration = Duration::from_secs(15 * 60);
/// Bytes of superseded states that are kept by default: 27,000 updates of pods of 9.4 KB.
pub const KEEP_BYTES: u64 = 256 * 1024 * 1024;
/// What a log entry counts as history beside the bytes that it superseded, so that a log of nothing
/// but creations is bounded too: revision, time, links and two names.
pub const LOG_ENTRY_BYTES: usize = 128;
/// Size at which a file of the log is followed by a new one: what has to be read and checked whole when
/// the store is opened (10 ms), and the grain in which space comes back. A new file costs a millisecond.
pub const SEGMENT_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Bytes of log above which its oldest changes are folded into the base, however young: 64 files.
pub const LOG_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Changes above which the oldest are folded into the base, however young. Their index is 200 to 350
/// bytes each, 45 MB at most, and 2 µs each when the store is opened.
pub const WINDOW_LINES_MAX: usize = 128 * 1024;
/// Most changes that one step of a fold moves, and most bytes of them: about 10 ms, in which an explicit
/// compaction and a drop have to wait.
pub const FOLD_LINES_MAX: usize = 512;
/// See [`FOLD_LINES_MAX`].
pub const FOLD_BYTES_MAX: usize = 1024 * 1024;
/// Files of the log that `REACHED` names, the newest: twice [`LOG_BYTES_MAX`] in files of
/// [`SEGMENT_BYTES_MAX`] are 128. Those before it are not named when they are missing.
pub const REACHED_FILES_MAX: usize = 256;
/// Bytes of `REACHED` that are read: 256 names of 25 bytes, the revision and the checksum.
pub const REACHED_BYTES_MAX: u64 = 8 * 1024;
/// How often a store without room looks whether there is some, embedded or in etcd.
pub const ROOM_CHECK_EVERY: Duration = Duration::from_secs(1);
/// Bytes for which there has to be room before a full store takes writes again: what a busy server writes in
/// a tenth of a second, and little enough to be written every second.
pub const ROOM_PROBE_BYTES: usize = 1024 * 1024;
/// Bytes that have to be free for history to be folded into the base: eight of its memtables, which are its
/// journal, what waits to be written and what a compaction writes.
pub const FOLD_ROOM_BYTES: u64 = 8 * BASE_MEMTABLE_BYTES_MAX;
/// How often the age of history is looked at: at an eighth of what is kept, within these bounds.
pub const KEEP_CHECK_MIN: Duration = Duration::from_millis(10);
/// See [`KEEP_CHECK_MIN`].
pub const KEEP_CHECK_MAX: Duration = Duration::from_secs(30);
/// States of objects that are remembered from decisions before they are looked through for those that
/// have arrived: two groups of 64 writers. There are more only while more is on its way.
pub const AHEAD_STATES_MAX: usize = 128;
/// Threads that read from disk: a long range leaves one for the others.
pub const READERS: usize = 2;
/// Most reads that wait for a thread. At 5 ms for a page of 1000 pods, 256 of them are a second.
pub const READS_WAITING_MAX: usize = 256;
/// Objects that a range reads while it holds up commits: 64 at 4 µs are a quarter of a millisecond.
pub const RANGE_CHUNK_VALUES: usize = 64;
/// Bytes of blocks that the base keeps in memory. Pages are read once, when a server starts; what
/// else is read, keys and pointers, is small.
pub const BASE_BLOCK_CACHE_BYTES: u64 = 2 * 1024 * 1024;
/// Bytes of folded changes that the base gathers in memory before it writes them out; up to four
/// times this waits to be written while much is folded.
pub const BASE_MEMTABLE_BYTES_MAX: u64 = 2 * 1024 * 1024;
/// Bytes of the base's own journals: the least that the tree allows.
pub const BASE_JOURNAL_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How long one call to etcd may take before another member is asked: etcd itself gives up on a
/// proposal after 7 s, and a new leader is there after 2.
pub const ETCD_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a call that may be made twice is made again: two members that hang, or one election.
pub const ETCD_PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries of such a call.
pub const ETCD_RETRY_PAUSE: Duration = Duration::from_millis(50);
/// How long a connection to a member may take.
pub const ETCD_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a silent connection is tried; etcd takes more than one ping in 5 s for an attack.
pub const ETCD_KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How long a member has to answer that.
pub const ETCD_KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Endpoints that may be named: etcd advises 7 members at most.
pub const ETCD_ENDPOINTS_MAX: usize = 64;
/// Requests that wait on a watch stream: one creation and a progress request now and then.
pub const ETCD_WATCH_REQUESTS_MAX: usize = 16;
/// Bytes that a member may send ahead on a connection: some pages.
pub const ETCD_CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
/// Bytes that a member may send ahead of one answer.
pub const ETCD_STREAM_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
/// Bytes of one object. etcd takes requests of 1.5 MiB; the rest is the key and the conditions.
pub const ETCD_OBJECT_BYTES_MAX: usize = 1536 * 1024 - 4096;
/// Values that a page asks etcd for at first; by the size of those the next pages are asked for.
pub const ETCD_PAGE_VALUES: usize = 500;
/// Bytes that a page is meant to have: what a member needs some 10 ms for.
pub const ETCD_PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Revisions that a start replays at most, whatever etcd still has: 20,000 pods of 9.4 KB, each with
/// its state before, are 380 MB.
pub const ETCD_REPLAY_REVISIONS_MAX: u64 = 20_000;
/// Transactions of one commit that are under way at a time.
pub const ETCD_COMMIT_PARALLEL: usize = 32;
/// How often a write whose outcome was unknown, and which then turned out not to have happened, is
/// made again.
pub const ETCD_WRITE_TRIES: usize = 3;
/// States of an object that are looked through for a write whose answer was lost.
pub const ETCD_WALK_BACK_MAX: usize = 16;
/// How long a fence stands: far longer than a proposal can be on its way.
pub const ETCD_FENCE_TTL: Duration = Duration::from_secs(600);
/// Requests for the current revision that wait for one answer.
pub const ETCD_CURRENT_WAITING_MAX: usize = 65_536;
/// How long a watch waits for a revision to come by itself before it asks for progress: events are
/// there within a millisecond or two.
pub const ETCD_NUDGE_FIRST: Duration = Duration::from_millis(5);
/// Between two requests for progress.
pub const ETCD_NUDGE_AGAIN: Duration = Duration::from_millis(100);
/// Requests for progress without an answer after which another member is watched: 2 s.
pub const ETCD_NUDGES_MAX: usize = 20;
/// Objects of a time to live that share a lease.
pub const ETCD_LEASE_OBJECTS_MAX: usize = 1000;
/// New objects are put on a lease for this part of its time: an event of an hour may stay a minute
/// longer.
pub const ETCD_LEASE_REUSE_PART: u32 = 60;
