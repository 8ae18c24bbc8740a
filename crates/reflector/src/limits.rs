//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Objects on the first page of a list: what kubectl and client-go ask for (R2).
pub const PAGE_OBJECTS: usize = 500;
/// Smallest page. At 25 objects of 100 KB even 1 Mbit/s takes 20 s, which is below [`PROGRESS`].
pub const PAGE_OBJECTS_MIN: usize = 25;
/// Largest page: 1,000 pods are about 10 MB, held once as an answer and once as objects.
pub const PAGE_OBJECTS_MAX: usize = 1000;
/// A page that is whole after this time was quick, and the next one may be twice as large (R4).
pub const QUICK_PAGE: Duration = Duration::from_secs(1);
/// Where requests are cut after a time, a page should take at most this part of it: twice that and
/// it still arrives.
pub const PAGE_TIME_PART: u32 = 4;
/// Objects on the first page where requests are cut after a time and nothing is known of the link.
pub const PAGE_OBJECTS_CAUTIOUS: usize = 100;
/// How often a list may go on at a newer revision, as it does when its token expires (R3). Each time what
/// was read has to be read again, so a list with more of them hardly comes to an end.
pub const PAGE_MOVES_MAX: u32 = 20;
/// A page is tiny if it has fewer objects than the smallest page and fewer bytes than this, and is not the
/// last one. Servers that we know send such pages now and then at most.
pub const TINY_PAGE_BYTES: usize = 64 * 1024;
/// Tiny pages of one list that are followed by the next request at once.
pub const TINY_PAGES_MAX: u32 = 20;
/// The wait after each further tiny page: a server that sends them without end is asked ten times a second.
pub const TINY_PAGE_PAUSE: Duration = Duration::from_millis(100);
/// Bytes of memory that the objects of one list may hold. etcd holds at most 8 GiB of everything, and
/// half of that is 400,000 pods of 10 KB. A server that sends more than this sends without end.
pub const LIST_BYTES_MAX: usize = 4 * 1024 * 1024 * 1024;
/// What an initial event counts for at the least, so that events without objects cannot go on for ever.
pub const INITIAL_EVENT_BYTES: usize = 64;
/// How often one page is asked for before the list begins again: with the backoff at its cap this
/// is four minutes, and no server keeps a continue token for longer than its history (5 min).
pub const PAGE_TRIES_MAX: u32 = 8;

/// The first wait after a failure (R6).
pub const BACKOFF_MIN: Duration = Duration::from_millis(800);
/// The longest wait, jitter included: 800 ms doubled six times would be 51 s.
pub const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// So long after a failure the next one is a first one again.
pub const BACKOFF_RESET: Duration = Duration::from_secs(120);
/// The longest `Retry-After` that is believed. Kubernetes asks for at most 30 s.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// Shortest life of a watch that is asked for (R5).
pub const WATCH_TIMEOUT_MIN: Duration = Duration::from_secs(300);
/// A watch is asked to live shorter than this. Between the two the watches of many clients spread.
pub const WATCH_TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// How much longer than asked for a watch may live before it counts as dead: a server ends it on
/// its own clock, and the answer travels.
pub const WATCH_GRACE: Duration = Duration::from_secs(30);
/// A watch whose server sends bookmarks is never quiet for this long: three of them are missing.
pub const WATCH_SILENCE: Duration = Duration::from_secs(180);
/// So many silent watches in a row mean that the server waits for a revision that it had and lost.
pub const SILENT_WATCHES_MAX: u32 = 2;
/// Where the server has never sent a bookmark the number above doubles with each list that found
/// nothing, up to this: 64 watches of 5 to 10 minutes are about eight hours.
pub const SILENT_WATCHES_CAP: u32 = 64;
/// A watch without any event that ends within this time counts as failed (R7).
pub const SHORT_WATCH: Duration = Duration::from_secs(1);
/// Time between two lists that are begun without the backoff, where a watch had news in between.
pub const RELIST_PAUSE: Duration = Duration::from_secs(5);
/// A watch that ends within [`SHORT_WATCH`] although it had news is followed by the next one at once this
/// often in a row. From then on one watch is opened in that time.
pub const BRIEF_WATCHES_MAX: u32 = 2;
/// So many short watches in a row are a reason to list again.
pub const SHORT_WATCHES_MAX: u32 = 3;
/// So many lists below the mark, one after the other, mean that the server really went back (R11).
pub const OLDER_LISTS_MAX: u32 = 3;

/// No byte of a list for this long: the request is given up (R4). Not shorter than the longest
/// backoff, so that trying again at once after it cannot hurt a server.
pub const PROGRESS: Duration = Duration::from_secs(30);

/// Events that are taken from a stream before they are applied: about 5 ms of applying, after which
/// readers see them.
pub const BATCH_EVENTS_MAX: usize = 4096;

/// Events of all resources that a multiplexer keeps for lanes that open or come back: 100 changes a
/// second make it two and a half minutes.
pub const REPLAY_EVENTS_MAX: usize = 16 * 1024;
/// Batches that wait for one lane's reader. A lane that has more waiting is cut off.
pub const LANE_BATCHES_MAX: usize = 1024;
/// How often a quiet lane hears where the upstream is, like the bookmarks of an API server (W20).
pub const LANE_BOOKMARK: Duration = Duration::from_secs(60);
