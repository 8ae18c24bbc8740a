//! What is known of the log without asking the disk: where it begins, where it ends, and its end.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use masthead_core::Revision;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::limits::{EVENTS_BATCH_MAX, TAIL_EVENT_BYTES};
use crate::{Event, StoreError};

/// The recent events, shared by all watches, and the two ends of the log.
///
/// **Invariant:** what is published here is durable.
pub(crate) struct Tail {
    recent: Mutex<Recent>,
    oldest: AtomicU64,
    /// The newest revision; whoever waits for events waits for it to move.
    current: watch::Sender<Revision>,
    bytes_max: usize,
}

struct Recent {
    /// All events after `before`, up to the newest.
    events: VecDeque<Event>,
    before: Revision,
    bytes: usize,
    closed: bool,
}

/// What the tail says to a watch at some position.
pub(crate) enum Next {
    /// These come next.
    Events(Vec<Event>),
    /// What comes next is no longer in memory.
    Older,
    /// Nothing yet.
    Wait,
}

impl Tail {
    /// The tail of a log that was opened, and how many bytes of events it may have.
    pub(crate) fn new(oldest: Revision, current: Revision, bytes_max: usize) -> Self {
        let recent = Recent { events: VecDeque::new(), before: current, bytes: 0, closed: false };
        Self {
            recent: Mutex::new(recent),
            oldest: AtomicU64::new(oldest.0),
            current: watch::Sender::new(current),
            bytes_max,
        }
    }

    pub(crate) fn current(&self) -> Revision {
        *self.current.borrow()
    }

    pub(crate) fn oldest(&self) -> Revision {
        Revision(self.oldest.load(Ordering::Acquire))
    }

    /// What is before this revision can no longer be asked for.
    pub(crate) fn forget(&self, before: Revision) {
        self.oldest.fetch_max(before.0, Ordering::AcqRel);
    }

    /// Adds what has become durable, in order.
    pub(crate) fn publish(&self, events: impl IntoIterator<Item = Event>) {
        let mut recent = self.recent.lock();
        for event in events {
            let newest = Revision(recent.before.0 + recent.events.len() as u64);
            assert_eq!(event.revision, newest.next(), "the log has no gaps");
            recent.push(event);
        }
        recent.shrink(self.bytes_max);
        let newest = Revision(recent.before.0 + recent.events.len() as u64);
        drop(recent);
        self.current.send_replace(newest);
    }

    /// Ends all watches.
    pub(crate) fn close(&self) {
        self.recent.lock().closed = true;
        self.current.send_modify(|_| ());
    }

    /// Wakes when the newest revision has moved.
    pub(crate) fn news(&self) -> watch::Receiver<Revision> {
        self.current.subscribe()
    }

    /// Fails if the state at a revision cannot be read.
    pub(crate) fn check(&self, at: Revision) -> Result<(), StoreError> {
        self.check_kept(at)?;
        let current = self.current();
        if at > current {
            return Err(StoreError::Future { asked: at, current });
        }
        Ok(())
    }

    /// Fails if not everything after a revision is kept.
    pub(crate) fn check_kept(&self, after: Revision) -> Result<(), StoreError> {
        let oldest = self.oldest();
        if after < oldest {
            return Err(StoreError::Expired { asked: after, oldest });
        }
        Ok(())
    }

    /// What comes after a position.
    pub(crate) fn next(&self, position: Revision) -> Result<Next, StoreError> {
        let recent = self.recent.lock();
        if recent.closed {
            return Err(StoreError::Closed);
        }
        let Some(skip) = position.0.checked_sub(recent.before.0) else { return Ok(Next::Older) };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX).min(recent.events.len());
        let events = recent.events.range(skip..).take(EVENTS_BATCH_MAX).cloned();
        let events: Vec<_> = events.collect();
        Ok(if events.is_empty() { Next::Wait } else { Next::Events(events) })
    }
}

impl Recent {
    fn push(&mut self, event: Event) {
        self.bytes += cost(&event);
        self.events.push_back(event);
    }

    fn shrink(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some(event) = self.events.pop_front() else { break };
            self.bytes -= cost(&event);
            self.before = event.revision;
        }
    }
}

fn cost(event: &Event) -> usize {
    event.value.body().len() + TAIL_EVENT_BYTES
}

#[cfg(test)]
mod tests {
    use masthead_core::{ObjectKey, Resource};

    use super::*;
    use crate::{EventKind, Value};

    fn event(revision: u64, bytes: usize) -> Event {
        let value = Value::stored(Revision(revision), vec![b' '; bytes - TAIL_EVENT_BYTES].into());
        let key = ObjectKey::new("shop", "web").unwrap();
        let (resource, kind) = ((&Resource::pods()).into(), EventKind::Modified);
        Event { resource, key, revision: Revision(revision), kind, value }
    }

    #[test]
    fn the_tail_holds_its_limit_and_drops_the_oldest_above_it() {
        let tail = Tail::new(Revision(1), Revision(1), 3000);
        tail.publish([event(2, 1000), event(3, 1000), event(4, 1000)]);
        assert!(matches!(tail.next(Revision(1)), Ok(Next::Events(events)) if events.len() == 3));
        tail.publish([event(5, 600)]);
        assert!(matches!(tail.next(Revision(1)), Ok(Next::Older)));
        assert!(matches!(tail.next(Revision(2)), Ok(Next::Events(events)) if events.len() == 3));
        assert!(matches!(tail.next(Revision(5)), Ok(Next::Wait)));
    }

    #[test]
    fn an_event_larger_than_the_tail_is_read_from_elsewhere() {
        let tail = Tail::new(Revision(1), Revision(1), 3000);
        tail.publish([event(2, 4000)]);
        assert_eq!(tail.current(), Revision(2));
        assert!(matches!(tail.next(Revision(1)), Ok(Next::Older)));
    }
}
