//! A worker's side of the queue: waiting for a key, and having one.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use masthead_core::planted;

use super::{Key, Machine, Moment, Next, Taken, Trigger, WorkQueue};
use crate::sync::Sleep;

/// A key that is being worked on, by nobody else. Dropping it, for whatever reason, says that it is done.
pub struct Work<'a, K: Key> {
    taken: Taken<K>,
    queue: &'a WorkQueue<K>,
    done: bool,
}

impl<'a, K: Key> Work<'a, K> {
    pub(super) fn new(taken: Taken<K>, queue: &'a WorkQueue<K>) -> Self {
        Self { taken, queue, done: false }
    }

    /// Is done with this one and waits for the next, as [`WorkQueue::next`] does. It costs less than one after
    /// the other: the lock is taken once, and the clock read once. To stop waiting is as safe.
    pub async fn next(mut self) -> Option<Self> {
        let queue = self.queue;
        self.done = true;
        let next = queue.finish(&self.taken, Machine::take);
        drop(self);
        match next {
            Next::Work(taken) => Some(Self::new(taken, queue)),
            Next::Wait(_) => Waiting::new(queue).await,
            Next::Ended => None,
        }
    }

    /// The key.
    pub fn key(&self) -> &K {
        &self.taken.key
    }

    /// Why it is worked on.
    pub fn trigger(&self) -> Trigger {
        self.taken.trigger
    }

    /// Attempts that failed before this one.
    pub fn failures(&self) -> u32 {
        self.taken.failures
    }
}

impl<K: Key> Deref for Work<'_, K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.taken.key
    }
}

impl<K: Key> Drop for Work<'_, K> {
    fn drop(&mut self) {
        if !self.done {
            self.queue.finish(&self.taken, |_, _| ());
        }
    }
}

impl<K: fmt::Debug + Key> fmt::Debug for Work<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Work").field(&self.taken).finish()
    }
}

/// Waits for the next key. Each that waits has a timer for the first of the delayed as it knows it. Who
/// delays a key until before that, or takes one and leaves others that nobody has a timer for, wakes one of
/// them, which looks again.
pub(super) struct Waiting<'a, K: Key> {
    queue: &'a WorkQueue<K>,
    /// Its number among those that wait, for as long as it is one of them or was woken and has not looked.
    id: Option<u64>,
    timer: Option<(Moment, Pin<Box<Sleep>>)>,
}

impl<'a, K: Key> Waiting<'a, K> {
    pub(super) fn new(queue: &'a WorkQueue<K>) -> Self {
        Self { queue, id: None, timer: None }
    }

    /// Takes a key, or joins those that wait.
    fn look(&mut self, waker: &Waker) -> Next<K> {
        let shared = &self.queue.0;
        let now = shared.clock.now();
        let mut state = shared.state.lock();
        if let Some(id) = self.id.take() {
            state.leave(id);
        }
        let next = state.machine.take(now);
        let wake = match &next {
            Next::Wait(due) => {
                self.id = Some(state.wait(waker.clone(), *due));
                None
            }
            Next::Work(_) if planted::on("delayed_left_to_nobody") && state.machine.is_empty() => {
                None
            }
            Next::Work(_) | Next::Ended => state.wake_worker(),
        };
        drop(state);
        wake.into_iter().for_each(Waker::wake);
        next
    }

    /// Will the timer wake it at this moment? Sets it, if not.
    fn sleeps_until(&mut self, due: Option<Moment>, cx: &mut Context<'_>) -> bool {
        let Some(due) = due else {
            self.timer = None;
            return true;
        };
        if self.timer.as_ref().is_none_or(|(at, _)| *at != due) {
            self.timer = Some((due, Box::pin(self.queue.0.clock.sleep_until(due))));
        }
        let timer = self.timer.as_mut().map(|(_, timer)| timer.as_mut().poll(cx));
        timer.is_some_and(|it| it.is_pending())
    }
}

impl<'a, K: Key> Future for Waiting<'a, K> {
    type Output = Option<Work<'a, K>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let it = self.get_mut();
        loop {
            match it.look(cx.waker()) {
                Next::Work(taken) => return Poll::Ready(Some(Work::new(taken, it.queue))),
                Next::Ended => return Poll::Ready(None),
                Next::Wait(due) if it.sleeps_until(due, cx) => return Poll::Pending,
                Next::Wait(_) => it.timer = None,
            }
        }
    }
}

impl<K: Key> Drop for Waiting<'_, K> {
    /// It may have been woken for a key, or be the only one whose timer is set: somebody else looks now.
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut state = self.queue.0.state.lock();
        state.leave(id);
        let keeps = planted::on("cancelled_worker_keeps_its_wakeup");
        let wake = if keeps { None } else { state.wake_worker() };
        drop(state);
        wake.into_iter().for_each(Waker::wake);
    }
}
