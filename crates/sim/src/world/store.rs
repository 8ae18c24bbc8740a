//! The truth: an authoritative log and its states.

use std::collections::BTreeMap;

use masthead_core::{Object, Resource, Revision, Scope};

use crate::history::{Commit, CommitOp, FrameType, Item};

/// One version of an object.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub rv: u64,
    pub uid: String,
    pub hash: u64,
    pub object: Object,
    /// This is a deletion; `object` is the last state, at the deletion's revision.
    pub gone: bool,
}

impl Version {
    pub(super) fn item(&self) -> Item {
        let key = self.object.key().to_string();
        Item { key, uid: self.uid.clone(), rv: self.rv, hash: self.hash }
    }

    /// Bytes that it holds in memory.
    pub(super) fn bytes(&self) -> usize {
        self.object.body_bytes() + self.object.head_bytes()
    }
}

/// A change as a watch tells it.
#[derive(Clone, Debug)]
pub(super) struct LogEntry {
    pub kind: FrameType,
    pub version: Version,
}

#[derive(Debug)]
pub(super) struct Store {
    resource: Resource,
    pub rv: u64,
    /// The lowest revision that can be resumed from.
    pub oldest: u64,
    log: Vec<LogEntry>,
    versions: BTreeMap<String, Vec<Version>>,
    /// The largest that the state has ever been.
    pub peak_bytes: usize,
}

impl Store {
    pub(super) fn new() -> Self {
        let resource = Resource::new("sim", "v1", "things", "Thing", Scope::Namespaced);
        Self {
            resource,
            rv: 1,
            oldest: 1,
            log: Vec::new(),
            versions: BTreeMap::new(),
            peak_bytes: 0,
        }
    }

    /// Revisions that go to other resources.
    pub(super) fn write_elsewhere(&mut self, count: u64) {
        self.rv += count;
    }

    /// Changes a key in a way that fits its state: `whim` decides between update and delete.
    pub(super) fn write(&mut self, key: &str, whim: u64, t: u64) -> Commit {
        self.rv += 1;
        let before = self.newest(key).filter(|version| !version.gone).cloned();
        let (op, kind) = match &before {
            None => (CommitOp::Create, FrameType::Added),
            Some(_) if whim.is_multiple_of(3) => (CommitOp::Delete, FrameType::Deleted),
            Some(_) => (CommitOp::Update, FrameType::Modified),
        };
        let version = match (op, before) {
            (CommitOp::Delete, Some(last)) => {
                let object = last.object.with_revision(Revision(self.rv));
                Version { rv: self.rv, object, gone: true, ..last }
            }
            (_, before) => {
                let uid = before.map_or_else(|| format!("u{}", self.rv), |before| before.uid);
                self.version(key, uid, whim)
            }
        };
        let commit = Commit {
            rv: self.rv,
            t,
            key: key.to_owned(),
            uid: version.uid.clone(),
            op,
            hash: version.hash,
            labels: BTreeMap::new(),
            fields: BTreeMap::new(),
        };
        self.versions.entry(key.to_owned()).or_default().push(version.clone());
        self.log.push(LogEntry { kind, version });
        self.peak_bytes = self.peak_bytes.max(self.state(self.rv).map(Version::bytes).sum());
        commit
    }

    fn version(&self, key: &str, uid: String, hash: u64) -> Version {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let rv = self.rv;
        let body = format!(
            r#"{{"kind":"Thing","apiVersion":"sim/v1","metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{rv}"}},"spec":{{"hash":{hash}}}}}"#
        );
        let object = Object::parse(&self.resource, body.into()).expect("made to be an object");
        Version { rv, uid, hash, object, gone: false }
    }

    fn newest(&self, key: &str) -> Option<&Version> {
        self.versions.get(key)?.last()
    }

    /// What was there at a revision, in the order of the keys.
    pub(super) fn state(&self, rv: u64) -> impl Iterator<Item = &Version> {
        self.versions.values().filter_map(move |chain| {
            let upto = chain.partition_point(|version| version.rv <= rv);
            chain[..upto].last().filter(|version| !version.gone)
        })
    }

    /// What happened after `after`, up to and with `upto`.
    pub(super) fn changes(&self, after: u64, upto: u64) -> &[LogEntry] {
        let from = self.log.partition_point(|entry| entry.version.rv <= after);
        let to = self.log.partition_point(|entry| entry.version.rv <= upto).max(from);
        &self.log[from..to]
    }

    /// Keeps the history of the last `keep` revisions.
    pub(super) fn compact(&mut self, keep: u64) {
        self.oldest = self.oldest.max(self.rv.saturating_sub(keep));
    }

    /// Forgets everything after `rv`.
    pub(super) fn restore(&mut self, rv: u64) {
        self.rv = rv;
        self.oldest = self.oldest.min(rv);
        self.log.retain(|entry| entry.version.rv <= rv);
        for chain in self.versions.values_mut() {
            chain.retain(|version| version.rv <= rv);
        }
        self.versions.retain(|_, chain| !chain.is_empty());
    }
}
