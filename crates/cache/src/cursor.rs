//! Readers of the history: a position each, and no buffer.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use masthead_core::{Cause, EventType, Object, ObjectKey, Revision, planted};

use crate::history::{Entry, Segment};
use crate::interest::Interest;
use crate::limits::SCAN_MAX;
use crate::shared::Shared;
use crate::sync::{AtomicU64, Ordering, WakerCell, fence};
use crate::version::{Seq, Version};
use crate::view::{Query, Snapshot, View};

/// From where a reader wants to follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum From {
    /// The present state as initial events, then every change after it. On a cache that has not been
    /// filled yet it waits for the first list.
    State,
    /// Every change after this revision. One in the future is waited for silently.
    After(Revision),
}

/// What a reader wants when a relist has bridged a gap in the history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gaps {
    /// To end: its consumer needs every change (a watch over the network).
    End,
    /// To go on with the difference between before and after (a handler in this process).
    Bridge,
}

/// Why there is no reading from a revision.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The history no longer reaches back that far. Only a new list helps.
    #[error("history before revision {oldest} is gone, {asked} was asked for")]
    Expired {
        /// What was asked for.
        asked: Revision,
        /// From where history is kept.
        oldest: Revision,
    },
    /// The cache has not been filled yet.
    #[error("the cache has not been filled yet")]
    NotReady,
}

/// The reader was too slow, or the history was replaced: changes that concern it are gone.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("overtaken: changes after revision {read} are gone, history begins at {oldest}")]
pub struct Overtaken {
    /// The last revision that it had read.
    pub read: Revision,
    /// From where history is kept.
    pub oldest: Revision,
}

/// A change as one reader sees it (W18).
#[derive(Clone, Debug)]
pub struct Event {
    /// Whether the object came into view, changed in view, or left it.
    pub kind: EventType,
    /// The revision of the event; above the object's own where the object left the view.
    pub revision: Revision,
    /// The content to show: the new state, or the last one if it left the view.
    pub object: Object,
    /// The state before, if there was one.
    pub old: Option<Object>,
    /// Part of the state at the beginning.
    pub initial: bool,
    /// How it became known.
    pub cause: Cause,
}

/// What one read gave. The caller owns it and hands it in again: reading allocates nothing once it
/// has grown.
///
/// It may be handed to one reader after the other. Where the next is told the same, the events stay as
/// they are, and not even a count of references is touched that other cores touch as well.
#[derive(Debug, Default)]
pub struct Batch {
    /// Events in order.
    pub events: Vec<Event>,
    /// Set once, right after the last initial event: the revision of the initial state.
    pub initial_end: Option<Revision>,
    /// Events of the last read that found some, put aside by one that found none.
    aside: Vec<Event>,
    /// How many of the events are of this read; the rest is from the one before.
    read: usize,
    /// Some of the events were not there before.
    differs: bool,
}

impl Batch {
    /// Returns `true` if this read produced exactly the events already in the batch from the previous
    /// non-empty read.
    pub fn is_as_before(&self) -> bool {
        !self.differs
    }

    fn begin(&mut self) {
        if self.events.is_empty() {
            std::mem::swap(&mut self.events, &mut self.aside);
        }
        (self.read, self.differs, self.initial_end) = (0, false, None);
    }

    fn found_nothing(&mut self) {
        if !self.events.is_empty() {
            std::mem::swap(&mut self.events, &mut self.aside);
        }
        self.initial_end = None;
    }

    fn put(&mut self, sight: &Sight<'_>) {
        if !self.differs {
            self.differs = !self.events.get(self.read).is_some_and(|known| sight.is(known));
            if self.differs {
                self.events.truncate(self.read);
            }
        }
        if self.differs {
            self.events.push(sight.to_event());
        }
        self.read += 1;
    }

    fn end(&mut self) {
        self.differs |= self.read < self.events.len();
        self.events.truncate(self.read);
    }
}

/// An event that is looked at where it stands.
struct Sight<'a> {
    kind: EventType,
    object: &'a Object,
    version: &'a Version,
    before: Option<&'a Object>,
}

impl Sight<'_> {
    /// Returns `true` if both are the same event.
    fn is(&self, event: &Event) -> bool {
        // What else there is to an event follows from the change, and that from both of these.
        !event.initial
            && (self.kind, self.version.revision) == (event.kind, event.revision)
            && self.object.ptr_eq(&event.object)
    }

    fn to_event(&self) -> Event {
        Event {
            kind: self.kind,
            revision: self.version.revision,
            object: self.object.clone(),
            old: self.before.cloned(),
            initial: false,
            cause: self.version.cause,
        }
    }
}

/// The part of a cursor that the writer sees.
#[derive(Debug)]
pub(crate) struct CursorState {
    /// The first change that concerns the reader and that it has not read; [`NONE`] if there is none,
    /// however far the ring has turned since it last looked.
    unread: AtomicU64,
    waker: WakerCell,
    interest: Interest,
}

const NONE: u64 = u64::MAX;

impl CursorState {
    pub(crate) fn interest(&self) -> &Interest {
        &self.interest
    }

    pub(crate) fn has_unread(&self) -> bool {
        self.unread() != NONE
    }

    /// The first change that it has still to read.
    pub(crate) fn unread(&self) -> Seq {
        self.unread.load(Ordering::Acquire)
    }

    /// Notes the first unread change; gives the waker to wake if there was none before.
    pub(crate) fn mark(&self, seq: Seq) -> Option<Waker> {
        let first = self.unread.compare_exchange(NONE, seq, Ordering::AcqRel, Ordering::Acquire);
        first.is_ok().then(|| self.waker.take()).flatten()
    }
}

/// A reader of the cache's changes: see [`Cache::subscribe`](crate::Cache::subscribe).
///
/// It costs the cache one entry of the interest index and no buffer, however slow it is. Dropping it
/// ends the subscription.
#[derive(Debug)]
pub struct Cursor {
    shared: Arc<Shared>,
    state: Arc<CursorState>,
    initial: Option<Box<Initial>>,
    /// The next change to look at, unless the state says a later one.
    next: Seq,
    /// The last revision handed out, or the one it began after.
    read: Revision,
    epoch: u32,
    id: u32,
    gaps: Gaps,
    /// It began above everything there was; until `read` is passed there is nothing to say.
    in_future: bool,
}

#[derive(Debug)]
enum Initial {
    /// The cache has not been filled yet.
    Awaited,
    /// Handed out up to `after`.
    Reading { snapshot: Snapshot, after: Option<ObjectKey> },
    /// Handed out whole. Kept until the next read, for [`Cursor::position`].
    Read(Snapshot),
}

/// Bytes of a waiting cursor besides its interest: both halves and its place in the index.
pub(crate) const CURSOR_BYTES: usize = size_of::<Cursor>()
    + size_of::<CursorState>()
    + 2 * size_of::<usize>()
    + crate::interest::READER_BYTES;

impl Cursor {
    pub(crate) fn subscribe(
        shared: &Arc<Shared>,
        interest: Interest,
        from: From,
        gaps: Gaps,
    ) -> Result<Self, SubscribeError> {
        let state = Arc::new(CursorState {
            unread: AtomicU64::new(NONE),
            waker: WakerCell::default(),
            interest,
        });
        // Filed first: a change that is not in the view taken below will find the reader.
        let id = shared.interests.lock().add(state.clone());
        let mut cursor = Self {
            shared: shared.clone(),
            state,
            initial: None,
            next: 0,
            read: Revision::ZERO,
            epoch: 0,
            id,
            gaps,
            in_future: false,
        };
        match from {
            From::State => cursor.initial = Some(Box::new(Initial::Awaited)),
            From::After(revision) => cursor.start_after(revision)?,
        }
        Ok(cursor)
    }

    fn start_after(&mut self, revision: Revision) -> Result<(), SubscribeError> {
        loop {
            let view = self.shared.view();
            if view.epoch == 0 {
                return Err(SubscribeError::NotReady);
            }
            let oldest = view.oldest;
            let asked = if planted::on("expired_off_by_one") { revision.next() } else { revision };
            if asked < oldest {
                return Err(SubscribeError::Expired { asked: revision, oldest });
            }
            let Some(next) = view.first_after(revision) else { continue };
            let edge = planted::on("event_skipped_at_window_edge") && revision == oldest;
            self.next = if edge { next + 1 } else { next };
            (self.read, self.epoch) = (revision, view.epoch);
            self.in_future = revision > view.revision;
            if planted::on("duplicate_on_resume") {
                self.next = (next - 1).max(view.tail);
            }
            if self.next <= view.seq {
                self.state.unread.fetch_min(self.next, Ordering::AcqRel);
            }
            return Ok(());
        }
    }

    /// What this cursor follows.
    pub fn interest(&self) -> &Interest {
        &self.state.interest
    }

    /// A look at how far it is behind.
    pub fn lag(&self) -> Lag {
        Lag { shared: self.shared.clone(), state: self.state.clone() }
    }

    /// Bytes that it costs while it waits.
    pub fn bytes(&self) -> usize {
        CURSOR_BYTES + self.state.interest.heap_bytes()
    }

    /// Everything that concerns this reader up to the returned revision has been handed out; none if
    /// something is unread or it began in the future. This is what a bookmark may say (S4).
    pub fn progress(&self) -> Option<Revision> {
        let settled = if planted::on("bookmark_before_mark") {
            self.shared.revision()
        } else {
            self.shared.settled()
        };
        let unread = self.state.has_unread() && !planted::on("bookmark_before_flush");
        let quiet = !self.is_initial() && !unread;
        let current = self.epoch == self.shared.view().epoch;
        let reached = !self.in_future || settled > self.read;
        (quiet && current && reached).then(|| settled.max(self.read))
    }

    /// The state after the events that were read last: the whole initial state while that is being
    /// read, otherwise the one that the next event changes. None if nothing was read yet, or if the
    /// history has gone on so far that it cannot be told any more.
    ///
    /// A reader that holds it can say what it missed when it is overtaken: the difference between this
    /// and the snapshot of [`Cursor::rebase`]. Only right after a read; for one that found nothing for a
    /// long time [`Cursor::progress`] is newer.
    pub fn position(&self) -> Option<Snapshot> {
        match self.initial.as_deref() {
            Some(Initial::Awaited) => return None,
            Some(Initial::Reading { snapshot, .. } | Initial::Read(snapshot)) => {
                return Some(snapshot.clone());
            }
            None => {}
        }
        let (view, seq) = (self.shared.view(), self.next - 1);
        // Pinned before the history is looked at once more, as for an exact snapshot.
        view.pin(seq);
        fence(Ordering::SeqCst);
        let reaches_back = self.shared.view().tail <= self.next;
        reaches_back.then(|| Snapshot { seq: seq.min(view.seq), revision: self.read, view })
    }

    /// Gives up everything that is unread and goes on after the state that is returned.
    pub fn rebase(&mut self) -> Snapshot {
        // Claimed before the snapshot is taken: what is not in it will be marked.
        self.state.unread.swap(NONE, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let snapshot = self.shared.snapshot();
        self.initial = None;
        self.in_future = false;
        (self.next, self.read) = (snapshot.seq + 1, snapshot.revision);
        self.epoch = snapshot.view.epoch;
        snapshot
    }

    /// Reads up to `max` events into `batch`, in place of what is there; waits if there are none.
    pub async fn read(&mut self, batch: &mut Batch, max: usize) -> Result<(), Overtaken> {
        poll_fn(|cx| self.poll_read(cx, batch, max)).await
    }

    /// As [`Cursor::read`], for those who poll.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        batch: &mut Batch,
        max: usize,
    ) -> Poll<Result<(), Overtaken>> {
        if self.scan(batch, max)? {
            return Poll::Ready(Ok(()));
        }
        self.state.waker.register(cx.waker());
        // A mark from before the registration woke nobody: look again.
        let unread = self.state.has_unread() || self.is_filled_meanwhile();
        if !unread || planted::on("lost_wakeup") {
            return Poll::Pending;
        }
        if self.scan(batch, max)? {
            return Poll::Ready(Ok(()));
        }
        // There is more to look through: let others go first.
        if self.state.has_unread() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Returns `true` while the cursor reads the initial state.
    fn is_initial(&self) -> bool {
        matches!(self.initial.as_deref(), Some(Initial::Awaited | Initial::Reading { .. }))
    }

    fn is_filled_meanwhile(&self) -> bool {
        matches!(self.initial.as_deref(), Some(Initial::Awaited)) && self.shared.view().epoch > 0
    }

    /// Reads without waiting; `false` if there was nothing.
    pub fn try_read(&mut self, batch: &mut Batch, max: usize) -> Result<bool, Overtaken> {
        loop {
            if self.scan(batch, max)? {
                return Ok(true);
            }
            if self.is_initial() || !self.state.has_unread() {
                return Ok(false);
            }
        }
    }

    /// Looks through a part of what is unread; `true` if something was found.
    fn scan(&mut self, batch: &mut Batch, max: usize) -> Result<bool, Overtaken> {
        if self.is_initial() {
            batch.begin();
            self.read_initial(batch, max);
            batch.end();
        } else {
            self.initial = None;
            // The common case of a wake-up for nothing, without a write to what the writer reads.
            if !self.state.has_unread() {
                batch.found_nothing();
                return Ok(false);
            }
            batch.begin();
            let read = self.read_changes(batch, max);
            batch.end();
            read?;
        }
        Ok(!batch.events.is_empty() || batch.initial_end.is_some())
    }

    fn read_initial(&mut self, batch: &mut Batch, max: usize) {
        if let Some(Initial::Awaited) = self.initial.as_deref() {
            // Claimed before the snapshot is taken: what is not in it will be marked.
            self.state.unread.swap(NONE, Ordering::AcqRel);
            fence(Ordering::SeqCst);
            let snapshot = self.shared.snapshot();
            if snapshot.view.epoch == 0 {
                return;
            }
            self.next = snapshot.seq + 1;
            self.epoch = snapshot.view.epoch;
            self.read = snapshot.revision;
            self.initial = Some(Box::new(Initial::Reading { snapshot, after: None }));
        }
        let Some(Initial::Reading { snapshot, after }) = self.initial.as_deref_mut() else {
            return;
        };
        let interest = &self.state.interest;
        let start = after.as_ref().map(|key| format!("{key}\0"));
        let query = Query { namespace: interest.walk(), start: start.as_deref(), selectors: None };
        let cause = Cause::Watch;
        let objects = snapshot.list(query).filter(|object| interest.matches(object));
        batch.events.clear();
        batch.events.extend(objects.take(max).map(|object| Event {
            kind: EventType::Added,
            revision: object.revision(),
            object,
            old: None,
            initial: true,
            cause,
        }));
        (batch.read, batch.differs) = (batch.events.len(), true);
        if batch.read < max {
            batch.initial_end = Some(snapshot.revision);
            let read = Initial::Read(snapshot.clone());
            self.initial = Some(Box::new(read));
        } else if let Some(last) = batch.events.last() {
            *after = Some(last.object.key().clone());
        }
    }

    fn read_changes(&mut self, batch: &mut Batch, max: usize) -> Result<(), Overtaken> {
        // Claimed before the view is taken: what is published later is marked again.
        let first = self.state.unread.swap(NONE, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let view = self.shared.look();
        let view = view.as_deref().expect("a view is always published");
        if view.epoch != self.epoch {
            // A gap below where it begins does not concern it.
            let ahead = self.in_future && self.read >= view.oldest;
            if self.gaps == Gaps::End && !ahead {
                return Err(self.overtaken(view));
            }
            self.epoch = view.epoch;
            self.in_future = ahead;
            if ahead {
                self.next = self.next.max(view.barrier + 1);
            }
        }
        let mut at = first.max(self.next);
        if self.in_future && self.read >= view.oldest {
            // What was marked before it began may be gone.
            at = at.max(view.tail);
        }
        let end = view.seq.min(at.saturating_add(SCAN_MAX - 1)) + 1;
        let history = view.history();
        let mut segment = history.segment_of(at);
        while at < end {
            let silently = planted::on("slow_cursor_dropped_silently");
            let Some(reading) = segment.take() else {
                if silently {
                    at = end;
                    break;
                }
                return Err(self.overtaken(view));
            };
            if !self.see_segment(&reading, &mut at, end, batch, max) {
                break;
            }
            segment = history.after(&reading);
        }
        self.next = at;
        if at <= view.seq {
            self.state.unread.store(at, Ordering::Release);
        }
        if let Some(event) = batch.events[..batch.read].last() {
            self.read = event.revision;
            self.in_future = false;
        }
        Ok(())
    }

    /// Looks through one segment; `false` if the batch is full and `at` is the first that is left.
    fn see_segment(
        &self,
        segment: &Segment,
        at: &mut Seq,
        end: Seq,
        batch: &mut Batch,
        max: usize,
    ) -> bool {
        for entry in segment.between(*at, end) {
            let wanted = !self.in_future || entry.version.revision > self.read;
            if let Some(sight) = wanted.then(|| see(&self.state.interest, entry)).flatten() {
                if batch.read == max {
                    return false;
                }
                batch.put(&sight);
            }
            *at += 1;
        }
        true
    }

    fn overtaken(&self, view: &View) -> Overtaken {
        Overtaken { read: self.read, oldest: view.oldest.max(self.shared.view().oldest) }
    }
}

/// How far a cursor is behind, also for those who do not hold it.
#[derive(Clone, Debug)]
pub struct Lag {
    shared: Arc<Shared>,
    state: Arc<CursorState>,
}

impl Lag {
    /// Changes from the first that concerns the reader and is unread to the newest; zero if none is.
    pub fn changes(&self) -> u64 {
        let first = self.state.unread.load(Ordering::Acquire);
        if first == NONE { 0 } else { (self.shared.view().seq + 1).saturating_sub(first) }
    }
}

/// A change through the eyes of an interest.
fn see<'a>(interest: &Interest, entry: &'a Entry) -> Option<Sight<'a>> {
    let (version, before) = (&entry.version, entry.before());
    let was_in_view = before.is_some_and(|object| interest.matches(object));
    let is_in_view = version.live().is_some_and(|object| interest.matches(object));
    let kind = EventType::of_transition(was_in_view, is_in_view)?;
    let left = kind == EventType::Deleted && !version.gone;
    if left && planted::on("deleted_dropped_on_leave") {
        return None;
    }
    let object = match before {
        // It left the view but is still there: show what it was.
        Some(before) if left && !planted::on("leaving_shows_new_content") => before,
        _ => &version.object,
    };
    Some(Sight { kind, object, version, before })
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.shared.interests.lock().remove(self.id);
    }
}
