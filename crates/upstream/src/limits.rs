//! Every bound of this crate, with its reason.

use std::time::Duration;

use masthead_core::limits::OBJECT_BYTES_MAX;

/// Streams on one HTTP/2 connection. kube-apiserver allows about 100, and a proxy before it has the
/// same number for everybody behind it.
pub const STREAMS_PER_CONNECTION: usize = 80;
/// From the name's look-up to the end of the TLS handshake. Below the reflector's deadline on progress
/// (30 s), so that a server that cannot be reached is told apart from one that does not answer.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a watch's HTTP/2 connection is asked whether it is still there: what client-go does.
pub const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long the answer to that may take. 45 s after a peer has vanished it counts as dead.
pub const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// The same for connections without pings of their own: probes of the kernel, this many.
pub const TCP_PROBES: u32 = 3;

/// Bytes that a server may send on one HTTP/2 stream before we have read them: 100 ms of a round trip
/// at 40 MB/s.
pub const STREAM_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
/// The same for all streams of a connection together, which also bounds what slow readers of one
/// connection hold: four bulk answers at once.
pub const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
/// Largest frame that a server may send: fewer, larger chunks are fewer wake-ups. A 64th of a window.
pub const FRAME_BYTES: u32 = 64 * 1024;

/// A secured socket of which this much comes within [`BUSY_PERIOD`], 8 MB/s, is left alone for [`PAUSE`] at a
/// time and then read with all that has come. Less is read as it comes.
pub const BUSY_BYTES: usize = 64 * 1024;
/// See [`BUSY_BYTES`].
pub const BUSY_PERIOD: Duration = Duration::from_millis(8);
/// See [`BUSY_BYTES`]: so much later what comes may be heard of while much comes. Two ticks of tokio's clock.
pub const PAUSE: Duration = Duration::from_millis(2);
/// After a pause in which less than this came, what comes is read as it comes again: the same 8 MB/s.
pub const PAUSE_BYTES: usize = 16 * 1024;
/// What is read from a busy socket at a time. While it is full there is no pause, so this bounds nothing but
/// memory, and only while much comes.
pub const READ_BUFFER_BYTES: usize = 256 * 1024;

/// HTTP/1.1 connections of one sort that are kept for the next request. More only pays where more than
/// this many resources are listed at the same moment, again and again.
pub const IDLE_CONNECTIONS_MAX: usize = 8;
/// How long one is kept. Load balancers let go of idle connections after 60 s and more.
pub const IDLE_MAX: Duration = Duration::from_secs(50);
/// Longest answer of a proxy to `CONNECT`: a status line and a few headers.
pub const PROXY_ANSWER_BYTES_MAX: usize = 16 * 1024;

/// Largest item of a list: what the parser of objects takes. A list in one piece of any length needs
/// no more than this beside its objects.
pub const ITEM_BYTES_MAX: usize = OBJECT_BYTES_MAX;
/// What stands around the items of a list: kind, version, metadata with a token of at most 2 KiB; room
/// for members that we do not know.
pub const ENVELOPE_BYTES_MAX: usize = 1024 * 1024;
/// Compressed bytes that are unpacked at a time. Deflate makes at most 1,032 of one: 16.5 MiB, after
/// which the limits above have their say.
pub const GUNZIP_BYTES: usize = 16 * 1024;
/// A buffer for what is cut off at a chunk's end is kept if it is not larger than this: most objects
/// fit, and 10,000 watches that all had one keep 640 MB at the very most.
pub const KEPT_BUFFER_BYTES: usize = 64 * 1024;
/// Longest answer that is read into one piece: discovery of some thousand custom resources is 5 MB.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest answer of a request that failed: the rest of a proxy's page is not worth reading.
pub const ERROR_BYTES_MAX: usize = 64 * 1024;
/// Most groups and versions that plain discovery asks for, one by one. Large clusters have 150.
pub const GROUP_VERSIONS_MAX: usize = 1000;
/// Near matches that an error names: a line.
pub const NEAR_MATCHES: usize = 5;
