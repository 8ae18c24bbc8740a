//! Whose turn it is, among those that wait.

use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use masthead_core::planted;
use slab::Slab;

use super::Priority;
use super::list::{Entries, Entry, List, Slot};

const LEVELS: usize = Priority::ALL.len();

/// The keys that wait.
///
/// A priority that was passed over `aging` times goes first, the longest waiting of them before the others;
/// otherwise the highest does. Within a priority the classes take turns, and a class's keys go in the order
/// in which they came.
#[derive(Debug)]
pub(super) struct Turns {
    levels: [Level; LEVELS],
    classes: Slab<Class>,
    by_hash: HashMap<u64, u32, FixedState>,
    aging: u32,
}

#[derive(Debug, Default)]
struct Level {
    /// Turns that others had since this one had one, while something waited here.
    passed: u32,
    waiting: usize,
    /// Classes with something waiting, the next one first.
    rotation: VecDeque<u32>,
}

/// The waiting keys of one class, by priority.
#[derive(Debug)]
struct Class {
    hash: u64,
    members: usize,
    lanes: [List; LEVELS],
}

impl Turns {
    pub(super) fn new(aging: u32) -> Self {
        let (levels, classes) = (<[Level; LEVELS]>::default(), Slab::new());
        Self { levels, classes, by_hash: HashMap::default(), aging }
    }

    pub(super) fn len(&self) -> usize {
        self.levels.iter().map(|level| level.waiting).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.levels.iter().all(|level| level.waiting == 0)
    }

    /// Puts an entry behind those of its priority and class.
    pub(super) fn push<K>(&mut self, entries: &mut Entries<K>, slot: Slot, class: u64) {
        let at = self.class(class);
        let entry = &mut entries[slot];
        entry.class = at;
        let level = entry.request.priority as usize;
        let class = &mut self.classes[at as usize];
        class.members += 1;
        if class.lanes[level].is_empty() {
            self.levels[level].rotation.push_back(at);
        }
        class.lanes[level].push(entries, slot);
        self.levels[level].waiting += 1;
    }

    /// Takes the one whose turn it is.
    pub(super) fn pop<K>(&mut self, entries: &mut Entries<K>) -> Option<Slot> {
        let at = self.level()?;
        self.pass(at);
        let level = &mut self.levels[at];
        let class = level.rotation.pop_front().expect("something waits here");
        let slot = self.classes[class as usize].lanes[at].first().expect("it would not rotate");
        if planted::on("class_keeps_its_turn") {
            level.rotation.push_front(class);
        } else {
            level.rotation.push_back(class);
        }
        self.remove(entries, slot);
        Some(slot)
    }

    /// Takes one out of turn.
    pub(super) fn remove<K>(&mut self, entries: &mut Entries<K>, slot: Slot) {
        let entry = &entries[slot];
        let (level, at) = (entry.request.priority as usize, entry.class);
        let class = &mut self.classes[at as usize];
        class.lanes[level].remove(entries, slot);
        class.members -= 1;
        let (lane_is_empty, class_is_empty) = (class.lanes[level].is_empty(), class.members == 0);
        let level = &mut self.levels[level];
        level.waiting -= 1;
        if lane_is_empty {
            // It is the last unless it was taken out of turn.
            let back = level.rotation.iter().rposition(|other| *other == at);
            level.rotation.remove(back.expect("it had something waiting"));
        }
        if level.waiting == 0 {
            level.passed = 0;
        }
        if class_is_empty && self.classes.len() > 1 {
            let class = self.classes.remove(at as usize);
            self.by_hash.remove(&class.hash);
        }
    }

    pub(super) fn iter<'a, K>(
        &'a self,
        entries: &'a Entries<K>,
    ) -> impl Iterator<Item = &'a Entry<K>> {
        let lanes = move |(at, level): (usize, &'a Level)| {
            level.rotation.iter().map(move |class| self.classes[*class as usize].lanes[at])
        };
        let levels = self.levels.iter().enumerate().rev();
        levels.flat_map(lanes).flat_map(|lane| lane.iter(entries))
    }

    fn level(&self) -> Option<usize> {
        let waiting = || self.levels.iter().enumerate().filter(|(_, level)| level.waiting > 0);
        let patient = !planted::on("nobody_ages");
        let aged = waiting().filter(|(_, level)| level.passed >= self.aging && patient);
        let longest = aged.max_by_key(|(_, level)| level.passed);
        longest.or_else(|| waiting().next_back()).map(|(at, _)| at)
    }

    fn pass(&mut self, taken: usize) {
        for (at, level) in self.levels.iter_mut().enumerate() {
            level.passed = if at == taken || level.waiting == 0 { 0 } else { level.passed + 1 };
        }
    }

    fn class(&mut self, hash: u64) -> u32 {
        // One class is by far the most frequent case, and is kept while it is the only one.
        if let Some((at, class)) = self.classes.iter().next()
            && class.hash == hash
        {
            return index(at);
        }
        *self.by_hash.entry(hash).or_insert_with(|| {
            let lanes = [List::default(); LEVELS];
            index(self.classes.insert(Class { hash, members: 0, lanes }))
        })
    }
}

/// There are no more classes than keys.
fn index(at: usize) -> u32 {
    u32::try_from(at).expect("a queue's capacity fits in 32 bits")
}
