//! The queue written down the obvious way: lists that are searched from the front.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use masthead_controller::queue::Priority;

pub(crate) type Key = u8;

pub(crate) const AGING: u32 = 4;
pub(crate) const CLASSES: u8 = 3;
pub(crate) const BASE_MS: u64 = 5;
pub(crate) const MAX_MS: u64 = 60;
/// A token each so many milliseconds, and so many at once.
pub(crate) const TOKEN_MS: u32 = 20;
pub(crate) const BURST: u32 = 4;

pub(crate) fn class(key: Key) -> u8 {
    key % CLASSES
}

/// All times in milliseconds.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) now: u64,
    /// In the order in which they came.
    waiting: Vec<(Key, Priority)>,
    pub(crate) working: BTreeMap<Key, Work>,
    /// When, in which order, how urgent.
    pub(crate) delayed: BTreeMap<Key, (u64, u64, Priority)>,
    failures: BTreeMap<Key, (u32, u64)>,
    /// For each priority the classes that wait, the next one first.
    rotations: BTreeMap<Priority, Vec<u8>>,
    passed: BTreeMap<Priority, u32>,
    bucket: u64,
    order: u64,
    pub(crate) closed: bool,
    /// Who came to wait, or to be more urgent, since somebody asked.
    came: Vec<(Key, Priority)>,
}

#[derive(Debug)]
pub(crate) struct Work {
    started: u64,
    again: Option<Priority>,
}

impl Model {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn requeues(&self, key: Key) -> u32 {
        self.failures.get(&key).map_or(0, |(failures, _)| *failures)
    }

    pub(crate) fn add(&mut self, key: Key, priority: Priority) {
        if self.closed {
            return;
        }
        if let Some(work) = self.working.get_mut(&key) {
            work.again = work.again.max(Some(priority));
            return;
        }
        match self.waiting.iter().position(|(other, _)| *other == key) {
            Some(at) if self.waiting[at].1 >= priority => {}
            Some(at) => {
                self.waiting.remove(at);
                self.waiting.push((key, priority));
            }
            None => self.waiting.push((key, priority)),
        }
        self.came.push((key, priority));
        self.settle();
    }

    pub(crate) fn add_after(&mut self, key: Key, ms: u64, priority: Priority) {
        if self.closed {
            return;
        }
        let due = self.now + ms;
        if ms == 0 {
            return self.add(key, priority);
        }
        self.order += 1;
        let new = (due, self.order, priority);
        let old = self.delayed.entry(key).or_insert(new);
        let urgent = old.2.max(priority);
        *old = (*old).min(new);
        old.2 = urgent;
    }

    pub(crate) fn add_rate_limited(&mut self, key: Key) {
        if self.closed {
            return;
        }
        let (failures, retry_at) = self.failures.get(&key).copied().unwrap_or_default();
        let began = self.working.get(&key).map_or(self.now, |work| work.started);
        let mut due = retry_at;
        if began >= retry_at {
            self.bucket = self.bucket.max(self.now) + u64::from(TOKEN_MS);
            let token = self.bucket.saturating_sub(self.now + u64::from(BURST * TOKEN_MS));
            let backoff = (BASE_MS << failures.min(20)).min(MAX_MS);
            due = self.now + backoff.max(token);
            self.failures.insert(key, (failures + 1, due));
        }
        self.add_after(key, due.saturating_sub(self.now), Priority::Normal);
    }

    pub(crate) fn forget(&mut self, key: Key) {
        self.failures.remove(&key);
    }

    pub(crate) fn take(&mut self) -> Option<Key> {
        while let Some((key, (_, _, priority))) =
            self.delayed.clone().into_iter().min_by_key(|(_, (due, order, _))| (*due, *order))
            && self.delayed[&key].0 <= self.now
        {
            self.delayed.remove(&key);
            self.add(key, priority);
        }
        let levels: BTreeSet<_> = self.waiting.iter().map(|(_, priority)| *priority).collect();
        let passed = |level: &&Priority| self.passed.get(*level).copied().unwrap_or_default();
        let aged = levels.iter().filter(|level| passed(level) >= AGING).max_by_key(passed);
        let level = *aged.or(levels.last())?;
        for other in levels {
            *self.passed.entry(other).or_default() += 1;
        }
        self.passed.insert(level, 0);
        let rotation = self.rotations.get_mut(&level)?;
        rotation.rotate_left(1);
        let turn = *rotation.last()?;
        let mine = |(key, priority): &(Key, Priority)| *priority == level && class(*key) == turn;
        let at = self.waiting.iter().position(mine)?;
        let (key, _) = self.waiting.remove(at);
        self.working.insert(key, Work { started: self.now, again: None });
        self.settle();
        Some(key)
    }

    pub(crate) fn done(&mut self, key: Key) {
        if let Some(Work { again: Some(priority), .. }) = self.working.remove(&key) {
            self.waiting.push((key, priority));
            self.came.push((key, priority));
            self.settle();
        }
    }

    pub(crate) fn came(&mut self) -> Vec<(Key, Priority)> {
        std::mem::take(&mut self.came)
    }

    pub(crate) fn shutdown(&mut self) {
        self.closed = true;
        self.delayed.clear();
    }

    pub(crate) fn abort(&mut self) {
        self.shutdown();
        self.waiting.clear();
        self.working.values_mut().for_each(|work| work.again = None);
        self.settle();
    }

    /// Nothing will come any more.
    pub(crate) fn is_over(&self) -> bool {
        self.closed && self.waiting.is_empty() && self.working.values().all(|it| it.again.is_none())
    }

    /// A backoff whose end is given as a duration, for those who compare.
    pub(crate) fn delays(&self) -> Vec<(Key, Duration)> {
        let mut all: Vec<_> = self.delayed.iter().collect();
        all.sort_by_key(|(_, (due, order, _))| (*due, *order));
        let left = |due: u64| Duration::from_millis(due.saturating_sub(self.now));
        all.into_iter().map(|(key, (due, ..))| (*key, left(*due))).collect()
    }

    /// Classes that no longer wait leave the rotation, those that came join it at its end; a priority with
    /// nothing waiting is not passed over.
    fn settle(&mut self) {
        for level in [Priority::Low, Priority::Normal, Priority::High] {
            let waiting: Vec<u8> = self
                .waiting
                .iter()
                .filter(|(_, priority)| *priority == level)
                .map(|(key, _)| class(*key))
                .collect();
            let rotation = self.rotations.entry(level).or_default();
            rotation.retain(|class| waiting.contains(class));
            for class in &waiting {
                if !rotation.contains(class) {
                    rotation.push(*class);
                }
            }
            if waiting.is_empty() {
                self.passed.insert(level, 0);
            }
        }
    }
}
