//! The list-and-watch machine: decides what to ask the server next.
//!
//! **Invariant:** no I/O, no clock, no async. Time and a seed are parameters, so the same inputs give
//! the same outputs, and a test can walk the machine through any interleaving.
//!
//! **Invariant:** at most one request is under way, and the state owns it. What carries another
//! number is dropped.
//!
//! **Invariant (I7):** no state asks again without progress or a wait. Progress is a page with keys that
//! the list did not have before, or a watch that had news or lived for a while. Everything else, whatever
//! a server answers, is followed by the backoff or a pause; the few exceptions (a first page that was cut,
//! a first expired token, a first relist) are counted.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use masthead_core::{Mutation, Object, ObjectKey, Revision, Time, planted};
use tracing::debug;

use crate::backoff::Backoff;
use crate::limits::{PAGE_OBJECTS_CAUTIOUS, PAGE_TIME_PART, SILENT_WATCHES_MAX, WATCH_GRACE};
use crate::random::Random;
use crate::report::{Phase, Report};
use crate::{Failure, Output, Page, RequestId, ServerMemory, Settings, WatchFrom, WatchRequest};

mod events;
mod lists;
mod marks;
mod pages;
mod recover;

use events::Hurried;
use marks::Marks;
use pages::Pages;

/// Where a reflector begins.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Start {
    /// Knowing nothing: list, then watch.
    #[default]
    Empty,
    /// The cache is empty, but an earlier run saw this revision: nothing older may be shown (R10).
    NotBefore(Revision),
    /// The cache already holds everything up to this resource version: watch from there.
    At(String),
}

/// Keeps a cache in step with a source, one request at a time.
///
/// Whatever drives it hands in what happened (`handle_*`), does what [`poll_output`] says, in that
/// order, and calls [`handle_timeout`] at [`poll_timeout`].
///
/// [`poll_output`]: Reflector::poll_output
/// [`handle_timeout`]: Reflector::handle_timeout
/// [`poll_timeout`]: Reflector::poll_timeout
///
/// ```
/// use masthead_core::{Revision, Time};
/// use masthead_reflector::{Output, Page, Reflector, Settings, Start, Strategy};
///
/// let settings = Settings { strategy: Strategy::Pages, ..Settings::default() };
/// let mut reflector = Reflector::new(settings, Start::Empty, 1, Time(0));
/// let Some(Output::List { id, request }) = reflector.poll_output() else { panic!() };
/// assert_eq!((request.at.resource_version(), request.limit), (None, 500));
///
/// let page = Page { resource_version: "7".into(), ..Page::default() };
/// reflector.handle_page(id, page, Time(20));
/// assert!(matches!(reflector.poll_output(), Some(Output::Replace { revision: Revision(7), .. })));
/// let Some(Output::Watch { request, .. }) = reflector.poll_output() else { panic!() };
/// assert_eq!(request.resource_version(), "7");
/// ```
#[derive(Debug)]
pub struct Reflector {
    settings: Settings,
    memory: ServerMemory,
    random: Random,
    backoff: Backoff,
    marks: Marks,
    state: State,
    out: VecDeque<Output>,
    /// Changes that go out as one, before anything else does.
    batch: Vec<Mutation>,
    next_id: u64,
    /// Objects on the next page.
    limit: usize,
    /// How long a page should take at most: requests that take longer have been cut, or will be.
    page_time: Option<Duration>,
    /// The next list is read in pages, whatever the settings say (R2).
    pages_next: bool,
    /// The last list that was begun without a wait, unless there was a wait since.
    hurried: Option<Hurried>,
    /// Ask another server, if there is one.
    elsewhere: bool,
    short_watches: u32,
    /// Watches in a row that had news and ended within [`SHORT_WATCH`](crate::limits::SHORT_WATCH).
    brief_watches: u32,
    silent_watches: u32,
    /// So many silent watches in a row are too many.
    patience: u32,
    /// The server has sent a bookmark, so its silence means something.
    bookmarks: bool,
    began: Time,
    report: Report,
}

/// What the machine waits for.
#[derive(Debug)]
enum State {
    /// For a time to come.
    Waiting { until: Time, then: Then },
    /// For a page.
    Paging { pending: Pending, pages: Pages },
    /// For initial events. The staged objects belong to this stream alone.
    Streaming {
        pending: Pending,
        consistent: bool,
        staged: BTreeMap<ObjectKey, Object>,
        bytes: usize,
        /// Bytes of all events, also of those that others replaced.
        came: usize,
    },
    /// For changes.
    Watching { pending: Pending },
}

/// What follows a wait.
#[derive(Debug)]
enum Then {
    List,
    /// The same page again; what came before it is kept (R4).
    Page(Pages),
    Watch,
}

/// The request that is under way.
#[derive(Clone, Copy, Debug)]
struct Pending {
    id: RequestId,
    asked: Time,
    /// When something last came.
    heard: Time,
    bytes: u64,
    /// Whether the stream has begun.
    open: bool,
    /// Events and bookmarks that came.
    items: u64,
    /// One of them was news.
    news: bool,
    /// How long the stream was asked to live.
    timeout: Duration,
}

impl Reflector {
    /// A machine that begins at once: its first request is the first output. The seed spreads the
    /// waits of many clients; give each its own.
    pub fn new(settings: Settings, start: Start, seed: u64, now: Time) -> Self {
        Self::with_memory(settings, ServerMemory::new(), start, seed, now)
    }

    /// The same with what is already known of the server.
    pub fn with_memory(
        settings: Settings,
        memory: ServerMemory,
        start: Start,
        seed: u64,
        now: Time,
    ) -> Self {
        let (marks, warm) = match start {
            Start::Empty => (Marks::default(), false),
            Start::NotBefore(revision) => (Marks::not_before(revision), false),
            Start::At(resource_version) => (Marks::at(&resource_version), true),
        };
        let cautious = settings.page_objects.min(PAGE_OBJECTS_CAUTIOUS);
        let mut it = Self {
            limit: if settings.request.is_some() { cautious } else { settings.page_objects },
            page_time: settings.request.map(|request| request / PAGE_TIME_PART),
            backoff: Backoff::new(settings.pace),
            settings,
            memory,
            random: Random::new(seed),
            marks,
            state: State::Waiting { until: now, then: Then::List },
            out: VecDeque::new(),
            batch: Vec::new(),
            next_id: 0,
            pages_next: false,
            hurried: None,
            elsewhere: false,
            short_watches: 0,
            brief_watches: 0,
            silent_watches: 0,
            patience: SILENT_WATCHES_MAX,
            bookmarks: false,
            began: now,
            report: Report::default(),
        };
        if warm {
            it.synced(now);
            it.watch(now);
        } else {
            it.list(now);
        }
        it
    }

    /// What is to be done next, if anything.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// When to call [`Reflector::handle_timeout`], unless something else happens before.
    pub fn poll_timeout(&self) -> Option<Time> {
        Some(match &self.state {
            State::Waiting { until, .. } => *until,
            State::Watching { pending } if pending.open => {
                let end = pending.asked + pending.timeout + WATCH_GRACE;
                let silence = pending.heard + self.settings.watch_silence;
                if self.bookmarks { end.min(silence) } else { end }
            }
            State::Paging { pending, .. } => {
                let silence = pending.heard + self.settings.progress;
                self.settings.request.map_or(silence, |most| silence.min(pending.asked + most))
            }
            State::Streaming { pending, .. } | State::Watching { pending } => {
                pending.heard + self.settings.progress
            }
        })
    }

    /// Time has passed. Nothing happens before [`Reflector::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Time) {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        match &mut self.state {
            State::Waiting { then, .. } => match std::mem::replace(then, Then::List) {
                Then::List => self.list(now),
                Then::Page(pages) => self.page(pages, now),
                Then::Watch => self.watch(now),
            },
            State::Watching { pending } if pending.open => self.watch_stopped(now),
            State::Paging { pending, .. }
            | State::Streaming { pending, .. }
            | State::Watching { pending } => {
                let (id, progress) = (pending.id, pending.bytes > 0 || pending.items > 0);
                self.emit(Output::Cancel { id });
                self.fail(&Failure::TimedOut { progress }, now);
            }
        }
    }

    /// A page arrived.
    pub fn handle_page(&mut self, id: RequestId, page: Page, now: Time) {
        if !self.is_current(id) {
            return;
        }
        let waiting = State::Waiting { until: now, then: Then::List };
        match std::mem::replace(&mut self.state, waiting) {
            State::Paging { pending, pages } => self.take_page(pending, pages, page, now),
            other => self.state = other,
        }
    }

    /// The server accepted a watch; events may follow.
    pub fn handle_watch_open(&mut self, id: RequestId, now: Time) {
        if !self.is_current(id) {
            return;
        }
        if let Some(pending) = self.state.pending_mut() {
            (pending.open, pending.heard) = (true, now);
        }
    }

    /// Bytes of an answer arrived, of which nothing can be made yet (R4).
    pub fn handle_bytes(&mut self, id: RequestId, bytes: u64, now: Time) {
        if !self.is_current(id) {
            return;
        }
        self.report.bytes += bytes;
        if let Some(pending) = self.state.pending_mut() {
            pending.bytes += bytes;
            pending.heard = now;
        }
    }

    /// A stream ended without a word: its time was over, or the connection was closed.
    pub fn handle_end(&mut self, id: RequestId, now: Time) {
        self.handle_failure(id, &Failure::Ended, now);
    }

    /// A request failed, or a stream broke.
    pub fn handle_failure(&mut self, id: RequestId, failure: &Failure, now: Time) {
        if self.is_current(id) {
            self.fail(failure, now);
        }
    }

    /// How far it is.
    pub fn report(&self, now: Time) -> Report {
        let mut report = self.report.clone();
        report.revision = self.marks.seen();
        report.opaque = self.marks.opaque();
        if !report.synced {
            report.elapsed = now.since(self.began);
        }
        report.phase = match &self.state {
            // Between two small pages nothing has failed.
            State::Waiting { then: Then::Page(pages), .. } if pages.tries == 0 => pages.phase(),
            State::Waiting { until, .. } => {
                report.next_try = Some(*until);
                Phase::Failed
            }
            State::Watching { .. } => Phase::Synced,
            State::Paging { pages, .. } => pages.phase(),
            State::Streaming { staged, .. } if staged.is_empty() => Phase::Connecting,
            State::Streaming { staged, .. } => Phase::Streaming { objects: staged.len() as u64 },
        };
        report
    }

    /// Bytes of memory that a list under way holds besides the cache (I8).
    pub fn staged_bytes(&self) -> usize {
        match &self.state {
            State::Paging { pages, .. } | State::Waiting { then: Then::Page(pages), .. } => {
                pages.bytes()
            }
            State::Streaming { bytes, .. } => *bytes,
            _ => 0,
        }
    }

    /// Returns `true` while a list is gathered.
    pub fn is_listing(&self) -> bool {
        matches!(self.state, State::Paging { .. } | State::Streaming { .. })
    }

    /// Returns `true` if the source's resource versions are no numbers (R10).
    pub fn is_opaque(&self) -> bool {
        self.marks.opaque()
    }

    /// The request that is under way.
    pub fn pending(&self) -> Option<RequestId> {
        self.state.pending().map(|pending| pending.id)
    }

    /// Is this the request that is under way? Counts what comes for others.
    fn is_current(&mut self, id: RequestId) -> bool {
        let current = self.pending() == Some(id)
            || (self.pending().is_some() && planted::on("late_answer_accepted"));
        self.report.late += u64::from(!current);
        current
    }

    fn emit(&mut self, output: Output) {
        if planted::on("bookmark_before_events") && matches!(output, Output::Bookmark(_)) {
            self.out.push_back(output);
            return;
        }
        self.flush();
        self.out.push_back(output);
    }

    fn flush(&mut self) {
        if !self.batch.is_empty() {
            self.out.push_back(Output::Apply(std::mem::take(&mut self.batch)));
        }
    }

    fn ask(&mut self, now: Time, timeout: Duration) -> Pending {
        self.next_id += 1;
        let id = RequestId(self.next_id);
        Pending {
            id,
            asked: now,
            heard: now,
            bytes: 0,
            open: false,
            items: 0,
            news: false,
            timeout,
        }
    }

    /// Follows changes from where the cache is; lists if it is nowhere.
    fn watch(&mut self, now: Time) {
        let Some(from) = self.marks.watch_from() else { return self.list(now) };
        let pending = self.open(WatchFrom::After(from), now);
        self.state = State::Watching { pending };
    }

    fn open(&mut self, from: WatchFrom, now: Time) -> Pending {
        let (least, most) = (self.settings.watch_timeout_min, self.settings.watch_timeout_max);
        let spread = u64::try_from(most.saturating_sub(least).as_millis()).unwrap_or(u64::MAX);
        // Whole seconds, as `timeoutSeconds` has it.
        let timeout = least + Duration::from_secs(self.random.below(spread) / 1000);
        let pending = self.ask(now, timeout);
        let request = WatchRequest { from, timeout, elsewhere: self.elsewhere };
        debug!(id = %pending.id, from = ?request.from, "watching");
        self.emit(Output::Watch { id: pending.id, request });
        pending
    }
}

impl State {
    fn pending(&self) -> Option<&Pending> {
        match self {
            Self::Waiting { .. } => None,
            Self::Paging { pending, .. }
            | Self::Streaming { pending, .. }
            | Self::Watching { pending } => Some(pending),
        }
    }

    fn pending_mut(&mut self) -> Option<&mut Pending> {
        match self {
            Self::Waiting { .. } => None,
            Self::Paging { pending, .. }
            | Self::Streaming { pending, .. }
            | Self::Watching { pending } => Some(pending),
        }
    }
}
