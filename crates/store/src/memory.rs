//! The store that forgets everything: for tests and demonstrations.

use std::collections::{BTreeMap, VecDeque};
use std::future::ready;
use std::ops::Bound;
use std::sync::Arc;

use masthead_core::{ObjectKey, Revision};
use parking_lot::Mutex;

use crate::follow::{History, follow};
use crate::ledger::{self, Entry, Held, Slot};
use crate::limits::{EVENTS_BATCH_MAX, KEEP_BYTES, TAIL_BYTES_MAX};
use crate::page::PageBuilder;
use crate::tail::Tail;
use crate::{
    BoxFuture, CommitError, Committed, Event, EventKind, Events, Health, Range, RangePage,
    ResourceName, Store, StoreError, Value, Write,
};

/// Keeps everything in memory, and nothing beyond its own life.
///
/// It has no thread, reads no clock and answers at once. History is bounded by its size only.
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    tail: Arc<Tail>,
    keep_bytes: u64,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<ResourceName, BTreeMap<ObjectKey, Vec<Version>>>,
    log: VecDeque<Entry>,
    history_bytes: u64,
}

/// A state that an object had, or its last one if it was deleted.
struct Version {
    value: Value,
    live: bool,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::keeping(KEEP_BYTES)
    }

    /// An empty store that keeps so many bytes of superseded states.
    pub fn keeping(keep_bytes: u64) -> Self {
        let tail = Arc::new(Tail::new(Revision(1), Revision(1), TAIL_BYTES_MAX));
        Self { state: Arc::default(), tail, keep_bytes }
    }

    fn write(&self, writes: Vec<Write>) -> Vec<Result<Committed, CommitError>> {
        let mut state = self.state.lock();
        let group = ledger::decide(self.tail.current(), writes, &*state);
        let events: Vec<_> = group.entries.iter().map(|entry| entry.event.clone()).collect();
        for entry in group.entries {
            state.append(entry);
        }
        self.tail.publish(events);
        let before = state.oldest_within(self.keep_bytes);
        self.forget(&mut state, before);
        group.results
    }

    fn forget(&self, state: &mut State, before: Option<Revision>) {
        if let Some(before) = before {
            self.tail.forget(before);
            state.forget(before);
        }
    }
}

impl State {
    fn newest(&self, resource: &ResourceName, key: &ObjectKey) -> Option<Value> {
        let version = self.objects.get(resource)?.get(key)?.last()?;
        version.live.then(|| version.value.clone())
    }

    fn append(&mut self, entry: Entry) {
        let Event { resource, key, kind, value, .. } = entry.event.clone();
        let versions = self.objects.entry(resource).or_default().entry(key).or_default();
        versions.push(Version { value, live: kind != EventKind::Deleted });
        self.history_bytes += entry.history_bytes;
        self.log.push_back(entry);
    }

    /// What has to be forgotten so that the history is no larger than this; none if it is not.
    fn oldest_within(&self, keep_bytes: u64) -> Option<Revision> {
        let mut bytes = self.history_bytes;
        let gone = self.log.iter().take_while(|entry| {
            let too_many = bytes > keep_bytes;
            bytes -= entry.history_bytes;
            too_many
        });
        gone.last().map(|entry| entry.event.revision)
    }

    fn forget(&mut self, before: Revision) {
        while self.log.front().is_some_and(|entry| entry.event.revision <= before) {
            let entry = self.log.pop_front().expect("there is a first one");
            self.history_bytes -= entry.history_bytes;
            self.drop_superseded(&entry);
        }
    }

    fn drop_superseded(&mut self, entry: &Entry) {
        let Event { resource, key, revision, kind, .. } = &entry.event;
        let objects = self.objects.get_mut(resource).expect("what is in the log is there");
        let versions = objects.get_mut(key).expect("what is in the log is there");
        let deleted = *kind == EventKind::Deleted;
        versions.retain(|version| {
            let at = version.value.revision();
            Some(at) != entry.superseded && !(deleted && at == *revision)
        });
        if versions.is_empty() {
            objects.remove(key);
        }
    }

    fn range(&self, range: &Range) -> Result<RangePage, StoreError> {
        let after = range.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let objects = self.objects.get(&range.resource);
        let keys = objects
            .into_iter()
            .flat_map(|keys| keys.range::<ObjectKey, _>((after, Bound::Unbounded)));
        let live = keys.filter_map(|(key, versions)| {
            let version = versions.iter().rfind(|version| version.value.revision() <= range.at)?;
            version.live.then_some((key, &version.value))
        });
        let mut page = PageBuilder::new(range.limit);
        for (key, value) in live {
            let more = page.push(key.clone(), value.body().len(), || Ok(value.clone()))?;
            if !more {
                break;
            }
        }
        Ok(page.finish())
    }

    fn events(&self, after: Revision) -> Vec<Event> {
        let first = self.log.partition_point(|entry| entry.event.revision <= after);
        let entries = self.log.range(first..).take(EVENTS_BATCH_MAX);
        entries.map(|entry| entry.event.clone()).collect()
    }
}

impl ledger::State for State {
    fn newest(&self, slot: &Slot) -> Result<Option<Held>, StoreError> {
        Ok(self.newest(&slot.resource, &slot.key).map(Held::from))
    }

    fn load(&self, _: &Slot, _: Revision) -> Result<Value, StoreError> {
        unreachable!("the newest state comes with its value")
    }
}

impl Store for MemoryStore {
    fn current(&self) -> BoxFuture<Result<Revision, StoreError>> {
        Box::pin(ready(Ok(self.tail.current())))
    }

    fn oldest(&self) -> Revision {
        self.tail.oldest()
    }

    fn get(
        &self,
        resource: &ResourceName,
        key: &ObjectKey,
    ) -> BoxFuture<Result<Option<Value>, StoreError>> {
        Box::pin(ready(Ok(self.state.lock().newest(resource, key))))
    }

    fn range(&self, range: Range) -> BoxFuture<Result<RangePage, StoreError>> {
        let state = self.state.lock();
        Box::pin(ready(self.tail.check(range.at).and_then(|()| state.range(&range))))
    }

    fn commit(&self, writes: Vec<Write>) -> BoxFuture<Vec<Result<Committed, CommitError>>> {
        let results = match ledger::admit(&writes) {
            Ok(()) => self.write(writes),
            Err(error) => writes.iter().map(|_| Err(error.clone())).collect(),
        };
        Box::pin(ready(results))
    }

    fn watch(&self, from: Revision) -> Result<Events, StoreError> {
        follow(&self.tail, Log { state: self.state.clone(), tail: self.tail.clone() }, from)
    }

    fn compact(&self, before: Revision) -> BoxFuture<Result<Revision, StoreError>> {
        let mut state = self.state.lock();
        self.forget(&mut state, Some(before.min(self.tail.current())));
        Box::pin(ready(Ok(self.tail.oldest())))
    }

    fn health(&self) -> Health {
        Health::Writable
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.tail.close();
    }
}

/// The log, for watches that are behind the tail.
struct Log {
    state: Arc<Mutex<State>>,
    tail: Arc<Tail>,
}

impl History for Log {
    fn read(&self, after: Revision) -> BoxFuture<Result<Vec<Event>, StoreError>> {
        let state = self.state.lock();
        Box::pin(ready(self.tail.check_kept(after).map(|()| state.events(after))))
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore")
            .field("oldest", &self.tail.oldest())
            .field("current", &self.tail.current())
            .finish_non_exhaustive()
    }
}
