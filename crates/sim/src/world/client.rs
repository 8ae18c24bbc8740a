//! The client under test: a machine and a real cache, and what they show of themselves.

use std::collections::BTreeMap;

use masthead_cache::{Cache, Config, HistoryLimits, Writer};
use masthead_core::{Object, Revision, Time};
use masthead_reflector::{Output, Reflector, RequestId, Settings, Start, share_unchanged};

use super::CLIENT;
use crate::History;
use crate::history;

#[derive(Debug)]
pub(super) struct Client {
    pub machine: Reflector,
    pub generation: u64,
    writer: Writer,
    cache: Cache,
    /// What has been recorded of the cache.
    shown: BTreeMap<String, u64>,
    synced: bool,
}

/// A request that the machine makes, across lives.
pub(super) type CallId = (u64, RequestId);

impl Client {
    /// Begins a life and records it.
    pub(super) fn born(
        generation: u64,
        settings: Settings,
        saved: Option<u64>,
        seed: u64,
        now: Time,
        history: &mut History,
    ) -> Self {
        let start = saved.map_or(Start::Empty, |mark| Start::NotBefore(Revision(mark)));
        // Old versions are not looked at here: a short history keeps the runs fast.
        let limits = HistoryLimits { changes: 16, ..HistoryLimits::default() };
        let config = Config { history: limits, indexes: Vec::new(), ..Config::default() };
        let (writer, cache) = Cache::new(config);
        history.push(history::Informer {
            iid: CLIENT.to_owned(),
            generation,
            who: None,
            scope: history::Scope::All,
            selector: String::new(),
            fields: String::new(),
            saved,
            t: now.0,
        });
        let machine = Reflector::new(settings, start, seed, now);
        Self { machine, generation, writer, cache, shown: BTreeMap::new(), synced: false }
    }

    pub(super) fn call(&self, id: RequestId) -> CallId {
        (self.generation, id)
    }

    /// Replaces objects that the cache already has by the cached ones, as the driver does.
    pub(super) fn share(&self, objects: &mut [Object]) {
        share_unchanged(&self.cache.snapshot(), objects);
    }

    /// Does what concerns the cache; hands back what concerns the server.
    pub(super) fn perform(
        &mut self,
        output: Output,
        now: Time,
        history: &mut History,
    ) -> Option<Output> {
        match output {
            Output::Apply(batch) => {
                let keys: Vec<_> = batch.iter().map(|it| it.key().to_string()).collect();
                self.writer.apply(batch, now);
                for key in keys {
                    self.show(key, now, history);
                }
            }
            Output::Replace { objects, revision } => {
                let replaced = self.writer.replace(objects, revision, now);
                replaced.expect("the machine never offers an older list");
                self.listed(revision, now, history);
            }
            Output::Rewound { to, .. } => {
                history.push(history::Rewound { iid: CLIENT.to_owned(), rv: to.0, t: now.0 });
            }
            Output::Rewind { objects, revision } => {
                self.writer.rewind(objects, revision, now);
                self.listed(revision, now, history);
            }
            Output::Bookmark(revision) => self.writer.bookmark(revision, now),
            request => return Some(request),
        }
        None
    }

    fn listed(&mut self, revision: Revision, now: Time, history: &mut History) {
        let snapshot = self.cache.snapshot();
        let mut keys: Vec<_> = self.shown.keys().cloned().collect();
        keys.extend(snapshot.iter().map(|object| object.key().to_string()));
        for key in keys {
            self.show(key, now, history);
        }
        let (iid, rv, t) = (CLIENT.to_owned(), revision.0, now.0);
        history.push(history::Relisted { iid: iid.clone(), rv, t });
        if !self.synced {
            self.synced = true;
            history.push(history::Synced { iid, hid: None, rv, t });
        }
    }

    /// Records what the cache has under a key, if that is news.
    fn show(&mut self, key: String, now: Time, history: &mut History) {
        let rv = self.cache.snapshot().get_str(&key).map(|object| object.revision().0);
        let before = match rv {
            Some(rv) => self.shown.insert(key.clone(), rv),
            None => self.shown.remove(&key),
        };
        if before != rv {
            let (iid, generation, t) = (CLIENT.to_owned(), self.generation, now.0);
            history.push(history::Cache { iid, generation, t, key, rv });
        }
    }

    /// Records what a list under way costs, next to its bound (I8).
    pub(super) fn weigh(&self, peak_bytes: usize, now: Time, history: &mut History) {
        let staged = self.machine.staged_bytes();
        if staged == 0 {
            return;
        }
        let cost = |object: Object| object.body_bytes() + object.head_bytes();
        let live: usize = self.cache.snapshot().iter().map(cost).sum();
        history.push(history::Gauge {
            t: now.0,
            name: "relist.bytes".to_owned(),
            value: (live + staged) as u64,
            cap: (live.max(peak_bytes) * 22 / 10) as u64,
            sid: None,
            iid: Some(CLIENT.to_owned()),
        });
    }
}
