//! What the lock of a queue guards: its machine, and those who wait.

use std::collections::VecDeque;
use std::task::Waker;

use super::{Key, Machine, Moment};

/// **Invariant:** if a key waits, or one is delayed until before the alarm of the worker that came last, then
/// no worker waits or one of them was woken and has not looked yet. Whoever adds a key, takes one, is done
/// with one or stops waiting calls [`State::wake_worker`], so that it holds again.
pub(super) struct State<K> {
    pub(super) machine: Machine<K>,
    /// The longest waiting first.
    workers: VecDeque<Waiter>,
    last_id: u64,
    /// Those who wait for room, or for the end.
    pub(super) others: Vec<Waker>,
}

struct Waiter {
    id: u64,
    waker: Waker,
    /// When it wakes up by itself: when the first of the delayed was due as it began to wait.
    alarm: Option<Moment>,
}

impl<K: Key> State<K> {
    pub(super) fn new(machine: Machine<K>) -> Self {
        Self { machine, workers: VecDeque::new(), last_id: 0, others: Vec::new() }
    }

    /// The waker of the worker that is to look, if there is something that nobody who waits will see.
    pub(super) fn wake_worker(&mut self) -> Option<Waker> {
        // Of all who wait the last knows best: what was delayed before it came it has seen.
        let known = self.workers.back()?.alarm;
        let due = self.machine.next_due();
        let unseen = due.is_some_and(|due| known.is_none_or(|alarm| due < alarm));
        if self.machine.is_empty() && !unseen {
            return None;
        }
        self.workers.pop_front().map(|it| it.waker)
    }

    pub(super) fn all_workers(&mut self) -> Vec<Waker> {
        self.workers.drain(..).map(|it| it.waker).collect()
    }

    pub(super) fn nobody_waits(&self) -> bool {
        self.workers.is_empty() && self.others.is_empty()
    }

    /// One more who waits, and its number.
    pub(super) fn wait(&mut self, waker: Waker, alarm: Option<Moment>) -> u64 {
        self.last_id += 1;
        self.workers.push_back(Waiter { id: self.last_id, waker, alarm });
        self.last_id
    }

    /// This one does not wait any more, if it still did.
    pub(super) fn leave(&mut self, id: u64) {
        self.workers.retain(|it| it.id != id);
    }
}
