//! The events of an informer as a stream; handlers are read from one.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use masthead_cache::{Batch, Cursor, From, Gaps, Interest};
use masthead_core::{Cause, EventType, Object, planted};
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::entry::Reading;
use crate::filter::{Filter, Sees};
use crate::limits::{BATCH_EVENTS, HOUSEKEEPING, RESYNC_MIN};
use crate::part::Part;
use crate::place::{Before, Place, Step, objects_after};
use crate::subscriber::Subscriber;
use crate::{DeleteCause, Entry, Event, LastState};

/// The events of an informer, each key's in order: see [`Event`].
///
/// It holds no queue however slowly it is read: what it did not read in time is told as the difference
/// between what it was told and what is there (R20). Dropping it ends it.
pub struct Subscription<K> {
    readers: Vec<Reader<K>>,
    /// Who is asked first.
    turn: usize,
    queue: VecDeque<Event<K>>,
    resync: Option<(Duration, Instant)>,
    tick: Pin<Box<Sleep>>,
    subscriber: Arc<Subscriber>,
}

/// The reader of one cache.
struct Reader<K> {
    part: Arc<Part>,
    reading: Arc<Reading>,
    cursor: Cursor,
    batch: Batch,
    place: Arc<Mutex<Place>>,
    filter: Arc<Filter<K>>,
    selective: bool,
    initial: bool,
}

impl<K> Subscription<K> {
    pub(crate) fn new(
        parts: &[Arc<Part>],
        interest: &Interest,
        selective: bool,
        filter: Option<&Sees<K>>,
        resync: Option<Duration>,
        subscriber: Arc<Subscriber>,
    ) -> Self
    where
        K: 'static,
    {
        let reader = |part: &Arc<Part>| {
            let cursor = part.cache.subscribe(interest.clone(), From::State, Gaps::Bridge);
            let cursor = cursor.expect("the state can be read from at any time");
            let place = Arc::new(Mutex::new(Place::default()));
            let reading = part.reading.another();
            let filter = Arc::new(Filter {
                function: filter.cloned(),
                resource: part.resource().clone(),
                reading: reading.clone(),
                panics: subscriber.filter_panics().clone(),
            });
            let saw = saw(interest.clone(), filter.clone());
            subscriber.add_place(cursor.lag(), place.clone(), Box::new(saw));
            part.add_reader(&subscriber);
            let (part, batch) = (part.clone(), Batch::default());
            Reader { part, reading, cursor, batch, place, filter, selective, initial: true }
        };
        let readers = parts.iter().map(reader).collect();
        let now = Instant::now();
        let resync = resync.map(|period| period.max(RESYNC_MIN)).map(|it| (it, now + it));
        let tick = Box::pin(sleep_until(now + HOUSEKEEPING));
        Self { readers, turn: 0, queue: VecDeque::new(), resync, tick, subscriber }
    }

    pub(crate) fn subscriber(&self) -> &Arc<Subscriber> {
        &self.subscriber
    }

    /// What is due by the clock.
    fn poll_tick(&mut self, cx: &mut Context<'_>) {
        while self.tick.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            self.tick.as_mut().reset(now + HOUSEKEEPING);
            self.readers.iter_mut().for_each(Reader::refresh);
            if let Some((period, due)) = &mut self.resync
                && now >= *due
            {
                *due = now + *period;
                self.readers.iter_mut().for_each(Reader::begin_again);
            }
        }
    }

    /// Everything that was handed out has been dealt with, or more would not be asked for.
    fn settled(&mut self, cx: &mut Context<'_>) {
        if self.readers.iter().all(|reader| !reader.initial) || planted::on("handler_synced_early")
        {
            self.subscriber.set_synced();
        }
        self.poll_tick(cx);
    }
}

impl<K: Send + Sync + 'static> Stream for Subscription<K> {
    type Item = Event<K>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event<K>>> {
        let it = self.get_mut();
        loop {
            if let Some(event) = it.queue.pop_front() {
                it.subscriber.hand_out(it.queue.len());
                return Poll::Ready(Some(event));
            }
            it.settled(cx);
            let count = it.readers.len();
            let mut turns = (0..count).map(|turn| (it.turn + turn) % count);
            let ready = turns.find(|at| it.readers[*at].poll(cx, &mut it.queue).is_ready());
            let Some(at) = ready else {
                it.subscriber.caught_up();
                return Poll::Pending;
            };
            it.turn = at + 1;
        }
    }
}

impl<K> fmt::Debug for Subscription<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("subscriber", &self.subscriber).finish_non_exhaustive()
    }
}

fn saw<K: 'static>(
    interest: Interest,
    filter: Arc<Filter<K>>,
) -> impl Fn(&Object) -> bool + Send + Sync {
    move |object| interest.matches(object) && filter.chose(object)
}

impl<K> Reader<K> {
    fn poll(&mut self, cx: &mut Context<'_>, queue: &mut VecDeque<Event<K>>) -> Poll<()> {
        if self.go_on(queue) {
            return Poll::Ready(());
        }
        match self.cursor.poll_read(cx, &mut self.batch, BATCH_EVENTS) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) => {
                // What follows is known before these are told, or they are told as a difference.
                match self.cursor.position() {
                    Some(position) => self.tell(position, queue),
                    None => self.missed(),
                }
                Poll::Ready(())
            }
            Poll::Ready(Err(_)) => {
                self.missed();
                Poll::Ready(())
            }
        }
    }

    fn entry(&self, object: Object) -> Entry<K> {
        Entry::new(object, &self.reading)
    }

    /// Returns `true` if the reader is to hear of a new state of an object.
    fn sees(&self, object: &Object) -> bool {
        self.cursor.interest().matches(object) && self.filter.chooses(object)
    }

    /// Returns `true` if the reader heard of a state of an object that it has passed.
    fn saw(&self, object: &Object) -> bool {
        self.cursor.interest().matches(object) && self.filter.chose(object)
    }

    fn missed(&mut self) {
        let now = self.cursor.rebase();
        let mut place = self.place.lock();
        if planted::on("missed_not_told") {
            *place = Place::At(now);
        } else {
            place.walk_to(now);
        }
    }

    /// Goes on with what is told besides the history; false if there is nothing of the kind.
    fn go_on(&mut self, queue: &mut VecDeque<Event<K>>) -> bool {
        let shared = self.place.clone();
        let mut place = shared.lock();
        match &mut *place {
            Place::Between(walk) => {
                let (saw, sees) = (|object: &_| self.saw(object), |object: &_| self.sees(object));
                let steps = walk.steps(BATCH_EVENTS, saw, sees);
                if steps.is_empty() {
                    *place = Place::At(walk.end());
                }
                for step in steps {
                    self.tell_step(step, queue);
                }
                true
            }
            Place::Again(snapshot, after) => {
                let start = after.as_ref().map(|key| format!("{key}\0"));
                let objects = objects_after(snapshot, start.as_deref());
                let seen = objects.filter(|object| self.saw(object)).take(BATCH_EVENTS);
                let events: Vec<_> = seen.map(|object| self.resync(object)).collect();
                match events.last() {
                    Some(last) => *after = Some(last.key().clone()),
                    None => *place = Place::At(snapshot.clone()),
                }
                queue.extend(events);
                true
            }
            _ => false,
        }
    }

    fn resync(&self, object: Object) -> Event<K> {
        let new = self.entry(object);
        Event::Updated { old: Some(new.clone()), new, resync: true }
    }

    fn tell_step(&self, step: Step, queue: &mut VecDeque<Event<K>>) {
        let Step { key, told, now, replaced } = step;
        if told.is_some() && (now.is_none() || replaced) {
            let last = match &told {
                Some(Before::Known(old)) => LastState::LastSeen(self.entry(old.clone())),
                _ => LastState::Unknown,
            };
            queue.push_back(Event::Deleted { key, last, cause: DeleteCause::Missed });
        }
        let Some(new) = now.map(|object| self.entry(object)) else { return };
        queue.push_back(match told {
            Some(Before::Known(old)) if !replaced => {
                Event::Updated { old: Some(self.entry(old)), new, resync: false }
            }
            Some(Before::Named) if !replaced => Event::Updated { old: None, new, resync: false },
            _ => Event::Added { object: new, initial: false },
        });
    }

    fn tell(&mut self, position: masthead_cache::Snapshot, queue: &mut VecDeque<Event<K>>) {
        if !planted::on("place_not_moved") {
            *self.place.lock() = Place::At(position);
        }
        let mut events = std::mem::take(&mut self.batch.events);
        events.drain(..).for_each(|event| self.tell_one(event, queue));
        self.batch.events = events;
        if self.batch.initial_end.is_some() {
            self.initial = false;
        }
    }

    fn tell_one(&self, event: masthead_cache::Event, queue: &mut VecDeque<Event<K>>) {
        let masthead_cache::Event { kind, object, old, initial, cause, .. } = event;
        let chosen =
            |old: &Object| self.filter.chose(old) || planted::on("filter_sees_only_the_new");
        let was = kind != EventType::Added && old.as_ref().is_some_and(chosen);
        let is = kind != EventType::Deleted && self.filter.chooses(&object);
        let replaced = was && is && old.as_ref().is_some_and(|old| old.uid() != object.uid());
        let replaced = replaced && !planted::on("replaced_told_as_update");
        match (was, is) {
            (true, true) if !replaced => {
                let (old, new) = (old.map(|old| self.entry(old)), self.entry(object));
                queue.push_back(Event::Updated { old, new, resync: false });
            }
            (true, _) => {
                let left = kind == EventType::Deleted;
                queue.extend(old.map(|old| self.deleted(old, left.then(|| object.clone()), cause)));
                if is {
                    queue.push_back(Event::Added { object: self.entry(object), initial });
                }
            }
            (false, true) => queue.push_back(Event::Added { object: self.entry(object), initial }),
            (false, false) => {}
        }
    }

    /// An object left the view. `last` is its last state where the view itself tells that it left.
    fn deleted(&self, old: Object, last: Option<Object>, cause: Cause) -> Event<K> {
        let key = old.key().clone();
        let same = last.as_ref().is_none_or(|last| last.ptr_eq(&old));
        let (cause, told) = match cause {
            Cause::Relist => (DeleteCause::Relist, false),
            // The new state is no longer seen, by the interest or by the filter.
            Cause::Watch if same && (self.selective || last.is_none()) => {
                (DeleteCause::LeftView, false)
            }
            Cause::Watch => (DeleteCause::Deleted, !same),
        };
        let last = match last {
            Some(last) if told => LastState::Final(self.entry(last)),
            _ => LastState::LastSeen(self.entry(old)),
        };
        Event::Deleted { key, last, cause }
    }

    /// A reader that hears nothing does not have to keep an old state.
    fn refresh(&mut self) {
        let Some(revision) = self.cursor.progress() else { return };
        let mut place = self.place.lock();
        if matches!(&*place, Place::At(_))
            && let Ok(snapshot) = self.part.cache.snapshot_at(revision)
        {
            *place = Place::At(snapshot);
        }
    }

    /// Has the state that was told told once more, if nothing else is under way.
    fn begin_again(&mut self) {
        let mut place = self.place.lock();
        let at = match &*place {
            Place::At(snapshot) if !self.initial => snapshot.clone(),
            _ => return,
        };
        let at = if planted::on("resync_of_the_present") { self.part.cache.snapshot() } else { at };
        *place = Place::Again(at, None);
    }
}

impl<K> Drop for Subscription<K> {
    fn drop(&mut self) {
        for reader in &self.readers {
            reader.part.remove_reader(&self.subscriber);
        }
    }
}
