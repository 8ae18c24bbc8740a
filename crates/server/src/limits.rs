//! Every bound of this crate, with its reason. Those a user may set are defaults of [`Limits`].

use std::time::Duration;

use masthead_reflector::Pace;

/// What one server lets its clients use. Each has a flag of the same name on `masthead serve`.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections.
    pub connections: usize,
    /// Open watches.
    pub watches: usize,
    /// Open watches of one user.
    pub watches_per_user: usize,
    /// Open watches on one connection.
    pub watches_per_connection: usize,
    /// Reads being answered at once, watches aside.
    pub reads_in_flight: usize,
    /// Writes being answered at once.
    pub writes_in_flight: usize,
    /// Bytes of lists and initial events that are being sent at once, and so may be pinned.
    pub response_bytes_in_flight: usize,
    /// Bytes of request bodies that are being received and worked on at once.
    pub request_bytes_in_flight: usize,
    /// Bytes of compressed lists that are kept, so that the next list is not compressed all over again.
    pub zipped_bytes: usize,
    /// Bytes of queries of open watches, those up to 512 bytes aside: their selectors are kept and looked
    /// at for each event.
    pub selector_bytes: usize,
    /// Largest body of a request (W38).
    pub body_bytes: usize,
    /// Largest head of a request: request line and headers together.
    pub header_bytes: usize,
    /// Longest path and query of a request.
    pub uri_bytes: usize,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// How long the head of a request may take on HTTP/1.1.
    pub header_timeout: Duration,
    /// How long an HTTP/2 connection without a request is kept; up to twice this.
    pub idle_timeout: Duration,
    /// How long a body may take to arrive, and an ordinary request to be answered.
    pub request_timeout: Duration,
    /// A response whose bytes do not move for this long is reset.
    pub stall_timeout: Duration,
    /// Streams that one HTTP/2 connection may have open.
    pub streams_per_connection: u32,
    /// How long a stopping server takes to end its watches, so that not all of their clients come to
    /// the others at once; at most half of [`SHUTDOWN_GRACE`].
    pub handover: Duration,
    /// How long an event stays after it was last written.
    pub event_ttl: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // 100,000 watches of their own connection each, and some for everybody else.
            connections: 110_000,
            watches: 200_000,
            watches_per_user: 150_000,
            // More than the streams of a connection: on HTTP/1.1 there is one anyway.
            watches_per_connection: 1000,
            // kube-apiserver's 400 and 200; ours hold no decoded objects.
            reads_in_flight: 400,
            writes_in_flight: 400,
            // Ten lists of 10,000 pods.
            response_bytes_in_flight: 1024 * 1024 * 1024,
            // 85 bodies of the largest size; while one is worked on it takes some ten times its bytes.
            request_bytes_in_flight: 256 * 1024 * 1024,
            // Some 50,000 pods have 50 MB, and what is used stays in one half or the other.
            zipped_bytes: 128 * 1024 * 1024,
            // Some 20,000 selectors with 128 short requirements, which is 25 ms of matching an event.
            selector_bytes: 16 * 1024 * 1024,
            body_bytes: 3 * 1024 * 1024,
            header_bytes: 64 * 1024,
            uri_bytes: 60 * 1024,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(15),
            // As kube-apiserver; clients in Go close theirs after the same time.
            idle_timeout: Duration::from_secs(90),
            request_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(30),
            streams_per_connection: 1000,
            handover: Duration::ZERO,
            // As in Kubernetes.
            event_ttl: Duration::from_secs(3600),
        }
    }
}

/// How deep a JSON or YAML body may nest.
pub const JSON_DEPTH_MAX: usize = 64;
/// How long a read waits for a revision that is not there yet (W6, W7a).
pub const FRESH_WAIT: Duration = Duration::from_secs(3);
/// Life of a watch that names none: at least this and less than twice as long (W3).
pub const WATCH_TIMEOUT_MIN: Duration = Duration::from_secs(1800);
/// Between two bookmarks (W20).
pub const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// The last bookmark comes so long before the end of the watch (W20).
pub const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Events that a watch takes at a time: they go out in one write.
pub(crate) const WATCH_BATCH_EVENTS: usize = 64;
/// The same on an HTTP/2 connection, where they wait for the stream's window.
pub(crate) const STREAM_BATCH_EVENTS: usize = 16;
/// Bodies that are held compressed have at least so many bytes. Beside one the strings of the head are
/// held, some 500 bytes: of shorter ones little would be gained.
pub const COMPRESSED_BYTES_MIN: usize = 1024;
/// The same where bodies are held compressed: what is open for a client that does not read is its own, and
/// not the cache's.
pub(crate) const OPENED_BATCH_EVENTS: usize = 8;
/// Objects that a thread keeps open because the next watch is likely to be sent them, too: those of a few
/// batches of events.
pub(crate) const OPEN_OBJECTS_MAX: usize = 64;
/// Bytes of them, beyond the last one.
pub(crate) const OPEN_BYTES_MAX: usize = 512 * 1024;
/// Slices that are handed to the socket at a time, two for each object of a list; the kernel takes at
/// most 1,024.
pub(crate) const SLICES_PER_WRITE: usize = 256;
/// Lists of at least this length are sent over HTTP/1.1 without hyper: below, taking the connection
/// from it and giving it back costs more than its writes.
pub(crate) const TAKEN_LIST_BYTES_MIN: u64 = 256 * 1024;
/// Bytes of events that are put together once for all watches that are sent them: some pods. A thread
/// keeps the last.
pub(crate) const SHARED_CHUNK_BYTES_MAX: usize = 64 * 1024;
/// What a client may send ahead on the connection of an HTTP/1.1 watch: a next request's head.
pub(crate) const READ_AHEAD_MAX: usize = 8 * 1024;
/// Bytes that are handed to an HTTP/2 stream at a time, as they wait there for its window.
pub(crate) const STREAM_BUFFER_BYTES: usize = 32 * 1024;
/// Bytes of a list that are handed at a time to an HTTP/2 stream whose client reads quickly.
pub(crate) const STREAM_BYTES_MAX: usize = 1024 * 1024;
/// A stream that takes at most so long for what it is given is quick: at this pace the next, twice as
/// much, takes 2 s, far below any time for stalls.
pub(crate) const QUICK_STREAM_MS: u64 = 1000;
/// What fits into a frame of HTTP/2 unless the client asks for more.
pub(crate) const FRAME_BYTES: usize = 16 * 1024;
/// How often an HTTP/2 connection is polled before others get their turn: 16 MiB of a list at most.
pub(crate) const TURNS_MAX: usize = 16;
/// Bytes that an HTTP/2 connection gathers before it writes: 64 frames.
pub(crate) const GATHERED_BYTES_MAX: usize = 1024 * 1024;
/// Room for what is copied for it: the beginnings of 64 frames, 256 bytes each.
pub(crate) const COPIED_BYTES: usize = 16 * 1024;
/// What is shorter than this is copied for it: a slice of its own costs the kernel as much.
pub(crate) const HELD_SLICE_BYTES_MIN: usize = 1024;
/// Bytes that are handed to an HTTP/1.1 connection at a time.
pub(crate) const CONNECTION_BUFFER_BYTES: usize = 1024 * 1024;
/// Answers shorter than this are not compressed (W24).
pub const GZIP_BYTES_MIN: usize = 128 * 1024;
/// Objects of a compressed piece that is kept, at least. A piece begins with nothing to refer to: pods of
/// 9.4 KB in pieces of 8 take a third more than in one, in pieces of 16 a sixth. All of them are compressed
/// again for one that changed.
pub(crate) const PIECE_OBJECTS_MIN: usize = 8;
/// Of so many objects, one may be the last of a piece: pieces have 15 on average.
pub(crate) const PIECE_BORDERS: u64 = 8;
/// Bytes of such a piece before it is compressed: a millisecond's work, and an object.
pub(crate) const PIECE_BYTES_MAX: usize = 256 * 1024;
/// One in so many uses of a compressed piece is compared with its text: reading it takes a quarter of the
/// time of compressing it, so checks cost less than a hundredth.
pub(crate) const PIECE_CHECK_EVERY: u64 = 64;
/// One in so many shared chunks of events is compared with a fresh one.
pub(crate) const FRAMES_CHECK_EVERY: u64 = 1024;
/// One in so many compressed bodies is opened at once and compared. All are compared with their digest
/// whenever they are opened.
pub(crate) const BODY_CHECK_EVERY: u64 = 64;
/// Room that the compressor is given at least: with less, a flush takes many calls.
pub(crate) const FLUSH_ROOM_BYTES: usize = 1024;
/// Unreadable objects that are remembered of each resource: enough to name some, and to notice that they
/// are gone.
pub(crate) const UNREADABLE_MAX: usize = 100;
/// Bytes that are read of a request in plain HTTP on a port of TLS, before it is refused.
pub(crate) const PLAIN_REQUEST_BYTES: usize = 8 * 1024;
/// Queries of watches that count only as a watch: the selectors of almost all clients.
pub(crate) const SHORT_QUERY_BYTES: usize = 512;
/// A list in YAML is put together as a whole: its JSON, the values in it, and the text.
pub(crate) const YAML_LIST_FACTOR: usize = 10;
/// Bytes of JSON that the copies of one JSON patch may add, as many as a body may have: each copy may double
/// what is there.
pub(crate) const PATCH_COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Bytes of text that the anchors of a YAML body keep and its aliases repeat, as many as a body may have.
pub(crate) const YAML_COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Bytes that a key or a value of a body takes in memory at the most, besides its text: an entry of a map
/// with its place in the index. They count towards `max-request-bytes-in-flight`.
pub(crate) const JSON_VALUE_BYTES: usize = 250;
/// JSON values in one body, keys and values of maps counted apart: 125 MB in memory. The largest
/// definitions that are in use have some 100,000.
pub(crate) const JSON_VALUES_MAX: usize = 500_000;
/// How often a write is tried again when somebody else was faster (W36).
pub(crate) const WRITE_TRIES: usize = 16;
/// How often another generated name is tried (W34).
pub(crate) const NAME_TRIES: usize = 8;
/// Characters of `generateName` that are kept (W34).
pub(crate) const GENERATE_NAME_MAX: usize = 58;
/// Operations of one JSON patch, as in kube-apiserver.
pub(crate) const PATCH_OPERATIONS_MAX: usize = 10_000;
/// Objects that one `deletecollection` deletes in one group, and events whose time is over.
pub(crate) const DELETE_GROUP: usize = 256;
/// CustomResourceDefinitions that are served: each has a cache and a reflector.
pub const CUSTOM_RESOURCES_MAX: usize = 1000;
/// How long a new definition may take to be served before its creation is answered all the same.
pub(crate) const ESTABLISH_WAIT: Duration = Duration::from_secs(5);
/// Parts in which watches are ended over the time of a hand-over.
pub(crate) const HANDOVER_PARTS: u32 = 50;
/// How long a readiness check waits for the store to answer and for the caches to have what it has.
pub(crate) const READY_WAIT: Duration = Duration::from_secs(2);
/// How long requests under way have at a graceful shutdown before their connections are cut.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);
/// How long a stopping server waits for a client that neither finishes a request nor reads an answer.
pub(crate) const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(1);
/// How long the watches of a stopping server may take to send what they still have. Their clients resume
/// elsewhere or later, so a slow one does not hold up the end.
pub(crate) const SHUTDOWN_WATCHES: Duration = Duration::from_secs(2);
/// Panics of the server's tasks whose texts are kept: the first ones say what is wrong.
pub(crate) const TASK_PANICS_MAX: usize = 8;
/// Bearer tokens that a server knows.
pub const TOKENS_MAX: usize = 10_000;
/// Largest token file: 10,000 lines of 200 bytes, doubled.
pub const TOKEN_FILE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Events that are kept between the store's watch and the caches, for a cache that is opened or
/// falls behind; the store itself has all of them.
pub(crate) const KEPT_EVENTS_MAX: usize = 1024;
/// Batches that may wait for one cache before it has to read its resource anew.
pub(crate) const LANE_BATCHES_MAX: usize = 4096;
/// What a watch of a part of a resource is taken to send at its beginning; what it really pins is
/// less than what changes while it is read.
pub(crate) const SELECTIVE_WATCH_BYTES: usize = 64 * 1024;
/// Members standing twice that are told to the client.
pub(crate) const DUPLICATES_MAX: usize = 32;
/// Longest name of most objects, as in Kubernetes.
pub(crate) const NAME_BYTES_MAX: usize = 253;
/// Longest label name, label value, and name of those kinds that become part of a host name.
pub(crate) const LABEL_BYTES_MAX: usize = 63;
/// All annotations of one object together, as in Kubernetes.
pub const ANNOTATION_BYTES_MAX: usize = 256 * 1024;
/// Changes that housekeeping takes at a time.
pub(crate) const HOUSEKEEPING_BATCH: usize = 256;
/// First wait before a namespace that is not empty yet is looked at again, or a store is asked again that
/// refused to delete events. It doubles up to [`HOUSEKEEPING_RETRY_MAX`].
pub(crate) const HOUSEKEEPING_RETRY: Duration = Duration::from_millis(100);
/// See [`HOUSEKEEPING_RETRY`]. So long is also waited before an event that could not be deleted is tried again.
pub(crate) const HOUSEKEEPING_RETRY_MAX: Duration = Duration::from_secs(5);
/// Connections above the limit that are told so; more than these are closed without a word.
pub(crate) const REFUSALS_MAX: usize = 256;
/// How soon the store is asked again after a failure. It has a handful of servers to answer, and every
/// client of this one waits for it: a second at the most, where a client of ours would wait for 30.
pub(crate) const STORE_PACE: Pace = Pace {
    first: Duration::from_millis(50),
    longest: Duration::from_secs(1),
    calm: Duration::from_secs(10),
};
/// Pause after a connection could not be accepted: out of file descriptors it would spin.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often a starting server looks whether its caches are filled.
pub(crate) const READY_POLL: Duration = Duration::from_millis(2);
/// Bytes that the kernel takes for a connection before the client has room for them.
pub(crate) const UNSENT_BYTES_MAX: u32 = 128 * 1024;
/// The same while a large list is sent: the fewer the waits, the cheaper it is. The bytes of all lists
/// under way have a bound of their own.
pub(crate) const UNSENT_LIST_BYTES_MAX: u32 = 1024 * 1024;
/// Watches at once for which the kernel takes as much as for a list, as they have much to catch up with.
pub(crate) const WIDE_WATCHES_MAX: usize = 64;
/// Definitions that are read from the store at a time.
pub(crate) const DEFINITIONS_PAGE: usize = 100;
