//! The queue without I/O: time is a parameter, and waiting is somebody else's business.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use masthead_core::{contain, planted};

use super::figures::{Figures, Histogram};
use super::list::{Entries, List, Place, Request, Slot};
use super::settings::QueueFunction;
use super::turns::Turns;
use super::{
    Add, Exponential, Key, Limiter, Moment, Priority, Refused, Settings, Snapshot, Trigger,
};

/// Decides what is worked on next.
///
/// A key is in it once. It waits, or is worked on, or is delayed, or several of these: what is asked for
/// while it is worked on waits until that is done (R28), and what is delayed is asked for when it is due.
#[derive(Debug)]
pub struct Machine<K> {
    settings: Settings<K>,
    hasher: RandomState,
    table: HashTable<Found>,
    entries: Entries<K>,
    turns: Turns,
    delayed: BTreeMap<(Moment, u64), Delayed>,
    /// Tells apart what is due at the same moment, in the order in which it was delayed.
    sequence: u64,
    working: List,
    in_flight: usize,
    /// Of those in flight, how many are to be worked on again.
    again: usize,
    /// Entries that are here only for their failures, the oldest first.
    remembered: List,
    closed: bool,
    counted: Counted,
}

/// Where a key is. It has its hash here, too: looking for a key, and making room for more of them, looks at
/// no entry of another.
#[derive(Clone, Copy, Debug)]
struct Found {
    hash: u32,
    slot: Slot,
}

/// What of a hash is kept: its upper half.
fn short(hash: u64) -> u32 {
    u32::try_from(hash >> 32).expect("half of it")
}

/// A hash with all the bits that a table looks at.
fn long(short: u32) -> u64 {
    u64::from(short) << 32 | u64::from(short)
}

#[derive(Clone, Copy, Debug)]
struct Delayed {
    slot: Slot,
    priority: Priority,
    trigger: Trigger,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    adds: u64,
    retries: u64,
    refused: u64,
    forgotten: u64,
    panics: u64,
    queue_duration: Histogram,
    work_duration: Histogram,
}

/// What a worker gets.
#[derive(Debug)]
pub enum Next<K> {
    /// This, until [`Machine::done`].
    Work(Taken<K>),
    /// Nothing now; something at this moment if nothing comes before.
    Wait(Option<Moment>),
    /// Nothing any more.
    Ended,
}

/// A key that is being worked on.
#[derive(Debug)]
pub struct Taken<K> {
    /// The key.
    pub key: K,
    /// Why it was asked for.
    pub trigger: Trigger,
    /// Attempts that failed before.
    pub failures: u32,
    pub(super) slot: Slot,
}

impl<K: Key> Machine<K> {
    /// An empty queue.
    pub fn new(settings: Settings<K>) -> Self {
        Self {
            turns: Turns::new(settings.aging),
            settings,
            hasher: RandomState::default(),
            table: HashTable::new(),
            entries: Entries::new(),
            delayed: BTreeMap::new(),
            sequence: 0,
            working: List::default(),
            in_flight: 0,
            again: 0,
            remembered: List::default(),
            closed: false,
            counted: Counted::default(),
        }
    }

    /// Has a key worked on.
    pub fn add(&mut self, key: K, add: Add, now: Moment) -> Result<(), Refused> {
        let hash = self.hasher.hash_one(&key);
        self.add_hashed(key, hash, add, || now)
    }

    /// What makes the hashes of keys, for those who do that before they have the queue's lock.
    pub(super) fn hasher(&self) -> RandomState {
        self.hasher.clone()
    }

    /// The clock is read only if it matters: not for a key that waits already, as most that are added again
    /// do.
    pub(super) fn add_hashed(
        &mut self,
        key: K,
        hash: u64,
        add: Add,
        now: impl FnOnce() -> Moment,
    ) -> Result<(), Refused> {
        let Add { priority, trigger } = add;
        let found = self.find_hashed(short(hash), &key);
        if found.is_some_and(|slot| self.entries[slot].waits_as(priority)) && !self.closed {
            return Ok(());
        }
        let request = Request { priority, trigger, since: now() };
        let slot = self.found_or_made(found, key, hash, request)?;
        self.want(slot, request);
        Ok(())
    }

    /// Has a key worked on after a while. Of several delays of a key the one that ends first counts (R29);
    /// what was asked for without a delay is not affected.
    pub fn add_after(
        &mut self,
        key: K,
        delay: Duration,
        add: Add,
        now: Moment,
    ) -> Result<(), Refused> {
        let Add { priority, trigger } = add;
        let slot = self.find_or_make(key, Request { priority, trigger, since: now })?;
        self.delay(slot, now + delay, add, now);
        Ok(())
    }

    /// Has a key worked on once more after the limiter's delay. An attempt that began before the last delay
    /// was over, because something else asked for it, is not held against the key: it neither counts nor
    /// changes when the next one is due (R29).
    pub fn add_rate_limited(&mut self, key: K, add: Add, now: Moment) -> Result<(), Refused> {
        let Add { priority, trigger } = add;
        let slot = self.find_or_make(key, Request { priority, trigger, since: now })?;
        let entry = &mut self.entries[slot];
        let began = if entry.place == Place::Working { entry.started } else { now };
        if began >= entry.retry_at || planted::on("early_attempts_count") {
            let (key, failures) = (entry.key(), entry.failures);
            let limiter = &mut self.settings.limiter;
            let delay = contain(|| limiter.delay(key, failures, now)).unwrap_or_else(|panic| {
                self.counted.panics += 1;
                (self.settings.on_panic)(QueueFunction::Limiter, key, &panic);
                Exponential::default().delay(key, failures, now)
            });
            entry.failures = entry.failures.saturating_add(1);
            entry.retry_at = now + delay;
            self.counted.retries += 1;
        }
        let retry_at = entry.retry_at;
        self.delay(slot, retry_at, add, now);
        Ok(())
    }

    /// Forgets a key's failures.
    pub fn forget(&mut self, key: &K) {
        if let Some(slot) = self.find(key) {
            let entry = &mut self.entries[slot];
            if !planted::on("failures_outlive_forget") {
                entry.failures = 0;
            }
            entry.retry_at = Moment::START;
            if entry.place == Place::Remembered {
                self.remembered.remove(&mut self.entries, slot);
                self.free(slot);
            }
        }
    }

    /// The next key to work on.
    pub fn take(&mut self, now: Moment) -> Next<K> {
        self.promote(now);
        let Some(slot) = self.turns.pop(&mut self.entries) else {
            let ended = self.closed && (self.again == 0 || planted::on("shutdown_loses_the_last"));
            return if ended { Next::Ended } else { Next::Wait(self.next_due()) };
        };
        self.working.push(&mut self.entries, slot);
        self.in_flight += 1;
        let entry = &mut self.entries[slot];
        entry.place = Place::Working;
        entry.started = now;
        self.counted.queue_duration.observe(now.nanos_since(entry.request.since));
        let (key, trigger, failures) = (entry.key().clone(), entry.request.trigger, entry.failures);
        Next::Work(Taken { key, trigger, failures, slot })
    }

    /// The work on a key is over, whatever became of it. To be called once for each that was taken.
    pub fn done(&mut self, taken: &Taken<K>, now: Moment) {
        let slot = taken.slot;
        self.working.remove(&mut self.entries, slot);
        self.in_flight -= 1;
        let entry = &mut self.entries[slot];
        entry.place = Place::Resting;
        self.counted.work_duration.observe(now.nanos_since(entry.started));
        if let Some(request) = entry.again.take() {
            self.again -= 1;
            self.enqueue(slot, request);
        } else {
            self.rest(slot);
        }
    }

    /// When the first of the delayed is due.
    pub fn next_due(&self) -> Option<Moment> {
        self.delayed.first_key_value().map(|((due, _), _)| *due)
    }

    /// How many keys wait.
    pub fn len(&self) -> usize {
        self.turns.len()
    }

    /// Returns `true` if no key waits.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// How many keys there is something to be known of.
    pub fn known(&self) -> usize {
        self.entries.len()
    }

    /// Returns `true` if there is room for one more key.
    pub fn has_room(&self) -> bool {
        self.entries.len() < self.settings.capacity || !self.remembered.is_empty()
    }

    /// How often a key has failed.
    pub fn requeues(&self, key: &K) -> u32 {
        self.find(key).map_or(0, |slot| self.entries[slot].failures)
    }

    /// Takes nothing new. What waits is still handed out; what is delayed is dropped (R31).
    pub fn shutdown(&mut self) {
        self.closed = true;
        while let Some((_, delayed)) = self.delayed.pop_first() {
            let entry = &mut self.entries[delayed.slot];
            entry.due = None;
            if entry.place == Place::Resting {
                self.rest(delayed.slot);
            }
        }
    }

    /// The same, and what waits is dropped too.
    pub fn abort(&mut self) {
        self.shutdown();
        while let Some(slot) = self.turns.pop(&mut self.entries) {
            self.entries[slot].place = Place::Resting;
            self.rest(slot);
        }
        self.working.for_each(&mut self.entries, |entry| entry.again = None);
        self.again = 0;
    }

    /// Returns `true` once the queue was shut down.
    pub fn is_shut_down(&self) -> bool {
        self.closed
    }

    /// Returns `true` once the queue was shut down and no key waits or is in work.
    pub fn is_drained(&self) -> bool {
        self.closed && self.in_flight == 0 && self.turns.is_empty()
    }

    /// Everything there is, as data.
    pub fn snapshot(&self, now: Moment) -> Snapshot<K> {
        let waiting = self.turns.iter(&self.entries);
        let waiting = waiting.map(|it| (it.key().clone(), now.since(it.request.since)));
        let working = self.working.iter(&self.entries);
        let delayed = self
            .delayed
            .iter()
            .map(|((due, _), it)| (self.entries[it.slot].key().clone(), due.since(now)));
        Snapshot {
            waiting: waiting.collect(),
            delayed: delayed.collect(),
            working: working.map(|it| (it.key().clone(), now.since(it.started))).collect(),
        }
    }

    /// The figures.
    pub fn figures(&self, now: Moment) -> Figures {
        let running = || self.working.iter(&self.entries).map(|it| now.since(it.started));
        let Counted { adds, retries, refused, forgotten, panics, queue_duration, work_duration } =
            self.counted;
        Figures {
            depth: self.len(),
            delayed: self.delayed.len(),
            working: self.in_flight,
            adds,
            retries,
            refused,
            forgotten,
            panics,
            queue_duration,
            work_duration,
            unfinished_work: running().map(|it| it.as_secs_f64()).sum(),
            longest_running: running().max().unwrap_or_default().as_secs_f64(),
        }
    }

    /// What is due waits from now on.
    fn promote(&mut self, now: Moment) {
        while let Some(first) = self.delayed.first_entry()
            && first.key().0 <= now
        {
            let ((since, _), Delayed { slot, priority, trigger }) = first.remove_entry();
            self.entries[slot].due = None;
            self.want(slot, Request { priority, trigger, since });
        }
    }

    /// A key is asked for.
    fn want(&mut self, slot: Slot, request: Request) {
        let entry = &mut self.entries[slot];
        match entry.place {
            Place::Waiting if planted::on("more_urgent_is_ignored") => {}
            Place::Waiting if request.priority > entry.request.priority => {
                let request = entry.request.merge(request);
                self.turns.remove(&mut self.entries, slot);
                self.entries[slot].request = request;
                self.line_up(slot);
            }
            Place::Waiting => {}
            Place::Working if planted::on("add_while_working_lost") => {}
            Place::Working if planted::on("two_workers_on_a_key") => {
                self.working.remove(&mut self.entries, slot);
                self.in_flight -= 1;
                self.enqueue(slot, request);
            }
            Place::Working => {
                self.again += usize::from(entry.again.is_none());
                self.counted.adds += u64::from(entry.again.is_none());
                entry.again = Some(entry.again.map_or(request, |it| it.merge(request)));
            }
            Place::Resting | Place::Remembered => {
                self.counted.adds += 1;
                self.enqueue(slot, request);
            }
        }
    }

    /// A key is to be asked for at a moment.
    fn delay(&mut self, slot: Slot, due: Moment, add: Add, now: Moment) {
        let Add { mut priority, mut trigger } = add;
        if due <= now {
            return self.want(slot, Request { priority, trigger, since: now });
        }
        let entry = &mut self.entries[slot];
        self.sequence += 1;
        let mut at = (due, self.sequence);
        if let Some(other) = entry.due {
            let before = self.delayed.remove(&other).expect("what is delayed is among the delayed");
            priority = priority.max(before.priority);
            if (other.0 <= due) != planted::on("delays_keep_the_later") {
                (at, trigger) = (other, before.trigger);
            }
        }
        entry.due = Some(at);
        self.delayed.insert(at, Delayed { slot, priority, trigger });
    }

    fn enqueue(&mut self, slot: Slot, request: Request) {
        let entry = &mut self.entries[slot];
        entry.place = Place::Waiting;
        entry.request = request;
        self.line_up(slot);
    }

    fn line_up(&mut self, slot: Slot) {
        let key = self.entries[slot].key();
        let class = self.settings.class.as_ref().map_or(0, |class| {
            contain(|| class(key)).unwrap_or_else(|panic| {
                self.counted.panics += 1;
                (self.settings.on_panic)(QueueFunction::Class, key, &panic);
                0
            })
        });
        self.turns.push(&mut self.entries, slot, class);
    }

    /// Nobody asks for a key any more: it is kept for as long as there is something to be known of it.
    fn rest(&mut self, slot: Slot) {
        let entry = &mut self.entries[slot];
        if entry.due.is_some() {
            return;
        }
        if entry.failures == 0 {
            return self.free(slot);
        }
        entry.place = Place::Remembered;
        self.remembered.push(&mut self.entries, slot);
    }

    fn find(&self, key: &K) -> Option<Slot> {
        self.find_hashed(short(self.hasher.hash_one(key)), key)
    }

    fn find_hashed(&self, hash: u32, key: &K) -> Option<Slot> {
        let same = |it: &Found| it.hash == hash && self.entries[it.slot].key() == key;
        self.table.find(long(hash), same).map(|it| it.slot)
    }

    fn find_or_make(&mut self, key: K, request: Request) -> Result<Slot, Refused> {
        let hash = self.hasher.hash_one(&key);
        let found = self.find_hashed(short(hash), &key);
        self.found_or_made(found, key, hash, request)
    }

    fn found_or_made(
        &mut self,
        found: Option<Slot>,
        key: K,
        hash: u64,
        request: Request,
    ) -> Result<Slot, Refused> {
        if self.closed {
            self.counted.refused += 1;
            return Err(Refused::ShutDown);
        }
        if let Some(slot) = found {
            if self.entries[slot].place == Place::Remembered {
                self.remembered.remove(&mut self.entries, slot);
                self.entries[slot].place = Place::Resting;
            }
            return Ok(slot);
        }
        self.make_room()?;
        let hash = short(hash);
        let slot = self.entries.insert(key, hash, request);
        self.table.insert_unique(long(hash), Found { hash, slot }, |it| long(it.hash));
        Ok(slot)
    }

    fn make_room(&mut self) -> Result<(), Refused> {
        if self.entries.len() < self.settings.capacity {
            return Ok(());
        }
        let Some(oldest) = self.remembered.first() else {
            self.counted.refused += 1;
            return Err(Refused::Full { capacity: self.settings.capacity });
        };
        self.remembered.remove(&mut self.entries, oldest);
        self.free(oldest);
        self.counted.forgotten += 1;
        Ok(())
    }

    fn free(&mut self, slot: Slot) {
        let entry = &mut self.entries[slot];
        entry.failures = 0;
        if let Ok(found) = self.table.find_entry(long(entry.hash), |it| it.slot == slot) {
            found.remove();
        }
        self.entries.remove(slot);
    }
}
