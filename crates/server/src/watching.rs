//! Sending a watch.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use masthead_cache::{Cache, Cursor, From, Gaps, Interest, Overtaken, SubscribeError, WaitFor};
use masthead_core::{
    Frame, Projection, Reason, Resource, Revision, Status, WatchFrom, WatchOptions,
};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::body::{BodyError, Slices};
use crate::flights::{Ending, Ticket};
use crate::limits::{
    BOOKMARK_BEFORE_END, BOOKMARK_INTERVAL, FRESH_WAIT, OPENED_BATCH_EVENTS, STREAM_BATCH_EVENTS,
    WATCH_BATCH_EVENTS,
};
use crate::metrics::WatchCounters;
use crate::told::Telling;

thread_local! {
    /// What the watch that is being polled reads into: a buffer a thread, none a watch.
    static TELLING: RefCell<Telling> = RefCell::default();
}

/// A watch on its way to a client: a cursor and a clock, no buffer.
pub(crate) struct WatchStream {
    resource: Resource,
    projection: Projection,
    /// Some objects are held compressed.
    compressed: bool,
    bookmarks: bool,
    initial_events_end: bool,
    framing: Framing,
    looked: Looked,
    state: State,
    ticket: Ticket,
    /// Who is woken when something happens.
    task: Waker,
    /// The next thing that the clock decides: a bookmark, the end, or giving up to wait.
    alarm: Pin<Box<Sleep>>,
    deadline: Instant,
    counters: WatchCounters,
}

/// What stands around events.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Nothing: whoever sends them has frames of its own.
    Lines,
    /// Chunks of HTTP/1.1.
    Chunks,
}

/// What a watch has looked at since its client was waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// Nothing else has happened to it.
    AtEvents,
    /// At everything.
    Around,
}

enum State {
    /// For the cache to have a revision (W9).
    Waiting(Box<Waiting>),
    Reading(Cursor),
    /// All that is left to say is this (W14).
    Failing(Status),
    Ended,
}

struct Waiting {
    wait: WaitFor,
    revision: Revision,
    cache: Cache,
    interest: Interest,
    from: WatchFrom,
}

/// What a watch is made from.
pub(crate) struct Start {
    pub(crate) resource: Resource,
    /// Filled: the one who asks a cache that is not is told so before the stream (W17).
    pub(crate) cache: Cache,
    pub(crate) interest: Interest,
    pub(crate) options: WatchOptions,
    /// The revision that the cache must have before the state may be shown.
    pub(crate) fresh: Revision,
    pub(crate) projection: Projection,
    pub(crate) compressed: bool,
    pub(crate) lifetime: Duration,
    pub(crate) ticket: Ticket,
    pub(crate) counters: WatchCounters,
}

type Next = Option<Result<Slices, BodyError>>;

impl WatchStream {
    pub(crate) fn new(start: Start) -> Self {
        let Start { cache, interest, options, fresh, .. } = start;
        let from = options.from;
        let now = Instant::now();
        let deadline = now + start.lifetime;
        let mut stream = Self {
            resource: start.resource,
            projection: start.projection,
            compressed: start.compressed,
            bookmarks: options.bookmarks,
            initial_events_end: matches!(from, WatchFrom::State { initial_events_end: true, .. }),
            framing: Framing::Lines,
            looked: Looked::AtEvents,
            state: State::Ended,
            ticket: start.ticket,
            task: Waker::noop().clone(),
            alarm: Box::pin(sleep_until(deadline)),
            deadline,
            counters: start.counters,
        };
        if !matches!(from, WatchFrom::After(_)) && cache.revision() < fresh {
            let wait = cache.wait_for(fresh);
            let waiting = Waiting { wait, revision: fresh, cache, interest, from };
            stream.state = State::Waiting(Box::new(waiting));
            stream.alarm.as_mut().reset(now + FRESH_WAIT);
        } else {
            stream.subscribe(&cache, interest, from);
        }
        stream
    }

    fn subscribe(&mut self, cache: &Cache, interest: Interest, from: WatchFrom) {
        let from = match from {
            WatchFrom::State { .. } => From::State,
            WatchFrom::Now(_) => From::After(cache.revision()),
            WatchFrom::After(revision) => From::After(revision),
        };
        self.state = match cache.subscribe(interest, from, Gaps::End) {
            Ok(cursor) => State::Reading(cursor),
            Err(SubscribeError::Expired { asked, oldest }) => {
                State::Failing(Status::too_old_resource_version(asked, oldest))
            }
            Err(_) => State::Failing(Status::cache_not_ready(0.0)),
        };
        if !matches!(from, From::State) {
            self.ticket.landed();
        }
        self.set_alarm();
    }

    /// To the next bookmark, or to the end.
    fn set_alarm(&mut self) {
        let last = self.deadline - BOOKMARK_BEFORE_END;
        let now = Instant::now();
        let next = if self.bookmarks && now < last {
            // Watches that began together do not all wake up together.
            let early = BOOKMARK_INTERVAL / 1000 * self.ticket.spread(100);
            (now + BOOKMARK_INTERVAL - early).min(last)
        } else {
            self.deadline
        };
        self.alarm.as_mut().reset(next);
    }

    pub(crate) fn set_framing(&mut self, framing: Framing) {
        self.framing = framing;
    }

    pub(crate) fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        self.ticket.asked();
        loop {
            match &mut self.state {
                State::Ended => return Poll::Ready(None),
                State::Failing(status) => {
                    let frame = Frame::error(status);
                    self.state = State::Ended;
                    return Poll::Ready(Some(Ok(self.one(&frame))));
                }
                State::Waiting(waiting) => {
                    if Pin::new(&mut waiting.wait).poll(cx).is_pending() {
                        ready!(self.alarm.as_mut().poll(cx));
                        let current = waiting.cache.revision();
                        let status = Status::too_large_resource_version(waiting.revision, current);
                        self.state = State::Failing(status);
                    } else if let State::Waiting(waiting) =
                        std::mem::replace(&mut self.state, State::Ended)
                    {
                        let Waiting { cache, interest, from, .. } = *waiting;
                        self.subscribe(&cache, interest, from);
                    }
                }
                State::Reading(_) => return self.poll_reading(cx),
            }
        }
    }

    fn poll_reading(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        match self.ticket.ending() {
            Some(Ending::Stalled) => {
                self.state = State::Ended;
                return Poll::Ready(Some(Err(BodyError::Stalled)));
            }
            Some(Ending::Rewound) => {
                let why = "the store went back to an earlier state: list again";
                self.state = State::Failing(Status::with(410, Reason::Expired, why));
                return self.poll_next(cx);
            }
            _ => {}
        }
        if let Some(events) = ready_some(self.poll_events(cx)) {
            return Poll::Ready(Some(Ok(events)));
        }
        let State::Reading(cursor) = &self.state else { return self.poll_next(cx) };
        // Most of the time only an event wakes it up, and nothing else is looked at.
        if self.task.will_wake(cx.waker()) && !self.ticket.is_stirred() {
            return Poll::Pending;
        }
        self.task.clone_from(cx.waker());
        self.ticket.calm(cx.waker());
        self.looked = Looked::Around;
        let ending = self.ticket.ending();
        if ending.is_none() {
            let alarm = self.alarm.as_mut();
            ready!(alarm.poll(&mut Context::from_waker(&self.ticket.stirs())));
        }
        // What comes of it is told first, and then everything is looked at again.
        self.ticket.stir();
        let shutdown = ending == Some(Ending::Shutdown);
        let over = ending == Some(Ending::Gone) || Instant::now() >= self.deadline;
        let progress = cursor.progress().filter(|_| self.bookmarks && (shutdown || !over));
        if shutdown || over {
            self.state = State::Ended;
        } else {
            self.set_alarm();
        }
        match progress {
            Some(revision) => Poll::Ready(Some(Ok(self.one(&self.bookmark(revision, false))))),
            None => self.poll_next(cx),
        }
    }

    /// What the client is to be waited for with: whatever it does then has everything looked at. None if
    /// nothing has happened since it was last asked for this, as the client is waited for already.
    pub(crate) fn looks_around(&mut self) -> Option<Waker> {
        let looked = std::mem::replace(&mut self.looked, Looked::AtEvents);
        (looked == Looked::Around).then(|| self.ticket.stirs())
    }

    /// Events that wait to be sent, all in one part.
    fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<Slices> {
        let max = match (self.compressed, self.framing) {
            (true, _) => OPENED_BATCH_EVENTS,
            (false, Framing::Lines) => STREAM_BATCH_EVENTS,
            (false, Framing::Chunks) => WATCH_BATCH_EVENTS,
        };
        loop {
            let told = TELLING.with_borrow_mut(|telling| {
                let State::Reading(cursor) = &mut self.state else { return Poll::Pending };
                if let Err(overtaken) = ready!(telling.poll_read(cx, cursor, max)) {
                    self.fail(&overtaken);
                    return Poll::Pending;
                }
                self.tell(telling)
            });
            let told = ready!(told);
            // An empty state without a mark for its end: there may be more to read already.
            if told.count() > 0 {
                return Poll::Ready(told);
            }
        }
    }

    fn fail(&mut self, &Overtaken { read, oldest }: &Overtaken) {
        self.counters.terminated.inc();
        self.state = State::Failing(Status::too_old_resource_version(read, oldest));
    }

    /// What was read, as it is sent.
    fn tell(&mut self, telling: &mut Telling) -> Poll<Slices> {
        let mut initial_end = telling.initial_end();
        if self.compressed
            && let Err(status) = telling.open()
        {
            self.state = State::Failing(status);
            if telling.count() == 0 {
                return Poll::Pending;
            }
            initial_end = None;
        }
        self.counters.events.inc_by(telling.count() as u64);
        if initial_end.is_none() && self.framing == Framing::Chunks {
            return Poll::Ready(telling.chunk(self.projection));
        }
        let mut frames = telling.frames(self.projection);
        if let Some(revision) = initial_end {
            self.ticket.landed();
            if self.initial_events_end {
                frames.push_frame(self.bookmark(revision, true));
            }
        }
        Poll::Ready(self.framed(frames))
    }

    fn bookmark(&self, revision: Revision, initial_events_end: bool) -> Frame {
        Frame::bookmark(&self.resource, revision, initial_events_end, self.projection)
    }

    fn framed(&self, frames: Slices) -> Slices {
        // A chunk of nothing would be the end.
        let chunk = self.framing == Framing::Chunks && frames.count() > 0;
        if chunk { frames.into_chunk() } else { frames }
    }

    fn one(&self, frame: &Frame) -> Slices {
        self.framed(frame.to_bytes().into())
    }
}

fn ready_some<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(it) => Some(it),
        Poll::Pending => None,
    }
}
