//! A store, the cache that follows it, and the history of both.

use std::collections::BTreeMap;
use std::time::Duration;

use masthead_cache::{Cache, Config, HistoryLimits, Index, Snapshot, Writer};
use masthead_core::{
    FieldSelector, LabelSelector, Labels, Mutation, Object, Resource, Revision, Scope,
    SelectableField, Selectors, Time,
};
use masthead_sim::history::{Commit, CommitOp, Item};
use masthead_sim::{Log, Record, Recorder, check};

use crate::readers::Reader;
use crate::script::{KEYS, Script, State, Step};

const AGE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) resource: Resource,
    pub(crate) writer: Writer,
    pub(crate) cache: Cache,
    pub(crate) log: Log,
    pub(crate) recorder: Recorder,
    /// The history's clock: a run is over before any deadline passes.
    pub(crate) now: u64,
    /// The window's clock.
    pub(crate) passed: u64,
    /// Revisions given out, of which those that made no commit are progress of other resources.
    pub(crate) revision: u64,
    pub(crate) uids: u64,
    /// Commits up to here have reached the cache.
    pub(crate) applied: u64,
    pub(crate) readers: Vec<Option<Reader>>,
    pub(crate) held: Vec<Snapshot>,
    pub(crate) lists: usize,
    /// Indexes that were added while running.
    pub(crate) added: usize,
}

pub(crate) fn resource() -> Resource {
    let fields = vec![SelectableField::at("spec.nodeName"), SelectableField::at("data")];
    Resource::new("", "v1", "pods", "Pod", Scope::Namespaced).with_fields(fields)
}

/// The content without its revision: a number that the body carries as a field.
pub(crate) fn hash(object: &Object) -> u64 {
    object.field(1).and_then(|data| data.parse().ok()).expect("every body has its number")
}

pub(crate) fn item(object: &Object) -> Item {
    let (key, uid) = (object.key().to_string(), object.uid().to_owned());
    Item { key, uid, rv: object.revision().0, hash: hash(object) }
}

pub(crate) fn by_app() -> Index {
    Index::new("label:app", |object, values| {
        values.extend(object.label("app"));
        Ok(())
    })
}

pub(crate) fn by_node() -> Index {
    Index::new("field:spec.nodeName", |object, values| {
        values.extend(object.field(0));
        Ok(())
    })
}

impl World {
    pub(crate) fn new(script: &Script) -> Self {
        let history =
            HistoryLimits { changes: script.changes, age: AGE, ..HistoryLimits::default() };
        let config = Config { history, indexes: vec![by_app()], ..Config::default() };
        let (mut writer, cache) = Cache::new(config);
        let first = writer.replace(Vec::new(), Revision(1), Time(0)).expect("the first list");
        assert!(first.is_empty() && cache.is_ready());
        Self {
            resource: resource(),
            writer,
            cache,
            log: Log::default(),
            recorder: Recorder::in_memory(),
            now: 0,
            passed: 0,
            revision: 1,
            uids: 0,
            applied: 1,
            readers: Vec::new(),
            held: Vec::new(),
            lists: 0,
            added: 0,
        }
    }

    pub(crate) fn step(&mut self, step: &Step) -> Result<(), String> {
        self.now += 1;
        match step {
            Step::Write { key, to } => self.write(KEYS[*key], to.as_ref()),
            Step::Apply => self.apply(),
            Step::Bookmark(by) => {
                self.apply();
                self.revision += by;
                self.applied = self.revision;
                self.writer.bookmark(Revision(self.revision), self.time());
            }
            Step::Relist => self.relist()?,
            Step::OldList(back) => self.old_list(*back)?,
            Step::Pass(seconds) => {
                self.passed += seconds * 1_000;
                let now = self.time();
                self.writer.tick(now);
            }
            Step::Open(watch) => {
                let sid = self.readers.len();
                let reader = Reader::open(self, watch, sid);
                self.readers.push(reader);
            }
            Step::Read { reader, max } => {
                self.with_reader(*reader, |it, world| it.read(world, *max));
            }
            Step::Ask { reader } => self.with_reader(*reader, Reader::ask),
            Step::Close { reader } => self.with_reader(*reader, |it, world| {
                it.end(world, "closed", None);
                false
            }),
            Step::List { back, query, limit } => self.list(*back, *query, *limit),
            Step::Hold { back } => {
                let at = Revision(self.applied.saturating_sub(*back));
                self.held.extend(self.cache.snapshot_at(at));
            }
            Step::Release { held } => {
                if *held < self.held.len() {
                    self.held.swap_remove(*held);
                }
            }
            Step::Audit { query } => self.audit(*query)?,
            Step::AddIndex => self.add_index(),
        }
        Ok(())
    }

    fn time(&self) -> Time {
        Time(self.passed)
    }

    pub(crate) fn record(&mut self, record: impl Into<Record>) {
        self.recorder.record(record);
    }

    fn with_reader(&mut self, at: usize, act: impl FnOnce(&mut Reader, &mut Self) -> bool) {
        let Some(mut reader) = self.readers.get_mut(at).and_then(Option::take) else { return };
        if act(&mut reader, self) {
            self.readers[at] = Some(reader);
        }
    }

    pub(crate) fn write(&mut self, key: &str, to: Option<&State>) {
        let there = self.log.object_at(key, self.revision).cloned();
        let (op, state) = match (to, &there) {
            (None, None) => return,
            (None, Some(_)) => (CommitOp::Delete, None),
            (Some(state), None) => (CommitOp::Create, Some(state)),
            (Some(state), Some(_)) if state.recreate => {
                self.write(key, None);
                (CommitOp::Create, Some(state))
            }
            (Some(state), Some(_)) => (CommitOp::Update, Some(state)),
        };
        self.revision += 1;
        if op == CommitOp::Create {
            self.uids += 1;
        }
        let uid = match (&there, op) {
            (Some(there), CommitOp::Update | CommitOp::Delete) => there.uid.clone(),
            _ => format!("u{}", self.uids),
        };
        let labels = |state: &State| {
            let labels = [("app", state.app), ("tier", state.tier)];
            labels.into_iter().filter_map(|(k, v)| Some((k.to_owned(), v?.to_owned()))).collect()
        };
        let fields = |state: &State| {
            state
                .node
                .map(|node| ("spec.nodeName".to_owned(), node.to_owned()))
                .into_iter()
                .collect()
        };
        let hash = match (&there, state) {
            (Some(there), None) => there.hash,
            _ => self.revision,
        };
        let commit = Commit {
            rv: self.revision,
            t: self.now,
            key: key.to_owned(),
            uid,
            op,
            hash,
            labels: state.map(labels).unwrap_or_default(),
            fields: state.map(fields).unwrap_or_default(),
        };
        self.record(commit.clone());
        assert!(self.log.push(commit));
    }

    pub(crate) fn object(&self, commit: &Commit) -> Object {
        let (namespace, name) = commit.key.split_once('/').expect("keys have a namespace");
        let spec = commit.fields.get("spec.nodeName");
        let spec = spec.map_or(String::new(), |node| format!(r#""nodeName":"{node}""#));
        let labels: Vec<String> =
            commit.labels.iter().map(|(k, v)| format!(r#""{k}":"{v}""#)).collect();
        let body = format!(
            r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{}","resourceVersion":"{}","labels":{{{}}}}},"spec":{{{spec}}},"data":"{}"}}"#,
            commit.uid,
            commit.rv,
            labels.join(","),
            commit.hash
        );
        Object::parse(&self.resource, body.into()).expect("a valid body")
    }

    fn mutation(&self, commit: &Commit) -> Mutation {
        let revision = Revision(commit.rv);
        let object = self.object(commit);
        match commit.op {
            // Every other delete comes without the last state, as from a store that keeps none.
            CommitOp::Delete => {
                let key = object.key().clone();
                let last =
                    self.log.newest(&commit.key, commit.rv - 1).map(|last| self.object(last));
                Mutation::Delete {
                    revision,
                    key,
                    last: last.filter(|_| commit.rv.is_multiple_of(2)),
                }
            }
            _ => Mutation::Put { revision, object },
        }
    }

    pub(crate) fn apply(&mut self) {
        let commits = self.log.commits().iter().filter(|commit| commit.rv > self.applied);
        let batch: Vec<Mutation> = commits.map(|commit| self.mutation(commit)).collect();
        let count = batch.len();
        let applied = self.writer.apply(batch, self.time());
        assert_eq!((applied.changes, applied.ignored), (count, 0));
        self.applied = self.revision;
    }

    fn relist(&mut self) -> Result<(), String> {
        let before: BTreeMap<String, u64> = self.state_at(self.applied);
        self.revision += 1;
        let objects: Vec<Object> =
            self.log.state_at(self.revision).values().map(|commit| self.object(commit)).collect();
        let kept: Vec<Object> = self.cache.snapshot().iter().collect();
        let difference = self
            .writer
            .replace(objects, Revision(self.revision), self.time())
            .map_err(|refused| refused.to_string())?;
        self.applied = self.revision;
        // R14: the difference leads from the one state to the other, and names nothing twice.
        let mut folded = before;
        for change in &difference {
            let key = change.key().to_string();
            let was = change.before.as_ref().map(|object| object.revision().0);
            let is = change.after.as_ref().map(|object| object.revision().0);
            if was == is || folded.remove(&key) != was {
                return Err(format!("relist: {key} from {was:?} to {is:?}"));
            }
            folded.extend(is.map(|is| (key, is)));
        }
        if folded != self.state_at(self.revision) {
            return Err(format!("relist: the difference leads to {folded:?}"));
        }
        // What did not change is the same object, not an equal one.
        let snapshot = self.cache.snapshot();
        for old in kept {
            if let Some(new) = snapshot.get(old.key())
                && new.revision() == old.revision()
                && new.body().as_ptr() != old.body().as_ptr()
            {
                return Err(format!("relist: {old:?} was replaced by its equal"));
            }
        }
        Ok(())
    }

    fn old_list(&mut self, back: u64) -> Result<(), String> {
        let at = self.applied.saturating_sub(back).max(1);
        if at >= self.applied {
            return Ok(());
        }
        let objects = self.log.state_at(at).values().map(|commit| self.object(commit)).collect();
        match self.writer.replace(objects, Revision(at), self.time()) {
            Err(_) => Ok(()),
            Ok(_) => Err(format!("a list at {at} was taken by a cache at {}", self.applied)),
        }
    }

    fn add_index(&mut self) {
        if self.added == 0 {
            self.cache.add_index(by_node()).expect("a new name");
        }
        assert!(self.cache.add_index(by_node()).is_err(), "the same name twice");
        self.added = 1;
    }

    pub(crate) fn state_at(&self, rv: u64) -> BTreeMap<String, u64> {
        self.log.state_at(rv).into_iter().map(|(key, commit)| (key.to_owned(), commit.rv)).collect()
    }

    pub(crate) fn selectors(&self, labels: &str, fields: &str) -> Selectors {
        Selectors {
            labels: LabelSelector::parse(labels).expect("a valid selector"),
            fields: FieldSelector::parse(fields, &self.resource).expect("a valid selector"),
            ..Selectors::default()
        }
    }

    pub(crate) fn finish(mut self) -> Result<(), String> {
        self.now += 1;
        self.apply();
        for at in 0..self.readers.len() {
            // Until there is nothing more, or it has ended.
            for _ in 0..1_000 {
                self.with_reader(at, |reader, world| reader.read(world, 64));
                if self.readers[at].as_ref().is_none_or(Reader::is_idle) {
                    break;
                }
            }
            self.with_reader(at, Reader::ask);
        }
        self.audit(0)?;
        self.readers.clear();
        self.held.clear();
        // With nobody left, time lets go of all history and of everything that it kept.
        self.passed += 2 * 60 * 1_000;
        let now = self.time();
        self.writer.tick(now);
        self.writer.tick(now);
        let memory = self.cache.memory();
        if memory.history != 0 || memory.pinned != 0 || self.cache.cursors() != 0 {
            return Err(format!("kept for nobody: {memory:?}, {} cursors", self.cache.cursors()));
        }
        self.compare_index_bytes()?;
        let history = self.recorder.history().expect("recorded in memory");
        match check(history).first() {
            None => Ok(()),
            Some(violation) => Err(format!("{violation:?}")),
        }
    }
}
