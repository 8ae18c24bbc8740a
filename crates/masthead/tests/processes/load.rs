//! Conditional writers and watches that write down everything they see, and the judge over it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use masthead_core::{Object, Resource, Scope as Placed};
use masthead_sim::history::{
    Commit, CommitOp, End, Fault, Frame, FrameType, Open, Precondition, Record, Scope, Write,
    WriteOp,
};
use masthead_sim::{History, check};
use masthead_store::{Event, EventKind};
use serde_json::{Value, json};

use crate::http::Client;

const KEYS: u64 = 12;
const NAMESPACES: [&str; 2] = ["default", "kube-public"];

/// What all threads share.
pub(crate) struct Run {
    client: Client,
    began: Instant,
    stop: AtomicBool,
    records: Mutex<Vec<Record>>,
    /// Tells of each record.
    recorded: Condvar,
    next: AtomicU64,
    /// Handles that end the watches when the run is over.
    watches: Mutex<BTreeMap<usize, TcpStream>>,
    /// Watches that were told to list again.
    relists: AtomicU64,
    /// Bytes that each object has besides.
    padding: usize,
}

/// A stream of watch events.
pub(crate) trait Events {
    /// The next event; none at a clean end.
    fn next(&mut self) -> io::Result<Option<Value>>;
}

impl Events for crate::http::Lines {
    fn next(&mut self) -> io::Result<Option<Value>> {
        Self::next(self)
    }
}

/// A run and those who work in it.
pub(crate) struct Load {
    pub(crate) run: Arc<Run>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Begins with `writers` writers and `watches` watches, which begin after a revision.
    pub(crate) fn start(client: Client, writers: usize, watches: usize, from: u64) -> Self {
        let mut load = Self::of_writers(client, writers, 0);
        for number in 0..watches {
            load.spawn(move |run| watch(run, number, from));
        }
        load
    }

    /// Begins with writers alone, whose objects have `padding` bytes more than they need.
    pub(crate) fn of_writers(client: Client, writers: usize, padding: usize) -> Self {
        let run = Arc::new(Run {
            client,
            began: Instant::now(),
            stop: AtomicBool::new(false),
            records: Mutex::default(),
            recorded: Condvar::new(),
            next: AtomicU64::new(0),
            watches: Mutex::default(),
            relists: AtomicU64::new(0),
            padding,
        });
        let mut load = Self { run, threads: Vec::new() };
        for number in 0..writers {
            load.spawn(move |run| write(run, number));
        }
        load
    }

    /// Begins a thread of the run, which is joined at its end.
    pub(crate) fn spawn(&mut self, work: impl FnOnce(&Run) + Send + 'static) {
        let run = self.run.clone();
        self.threads.push(thread::spawn(move || work(&run)));
    }

    /// Waits until so many more writes were answered.
    pub(crate) fn settle(&self, writes: usize) {
        let answered = |record: &Record| matches!(record, Record::Write(it) if it.t1.is_some());
        let mut records = self.run.records.lock().unwrap();
        let (mut left, mut seen) = (writes, records.len());
        while left > 0 {
            records = self.run.recorded.wait(records).unwrap();
            let new = records[seen..].iter().filter(|it| answered(it)).count();
            (left, seen) = (left.saturating_sub(new), records.len());
        }
    }

    /// Ends everything; what was written down.
    pub(crate) fn finish(self) -> Vec<Record> {
        self.run.stop.store(true, Ordering::Release);
        for stream in self.run.watches.lock().unwrap().values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in self.threads {
            thread.join().unwrap();
        }
        std::mem::take(&mut *self.run.records.lock().unwrap())
    }
}

impl Run {
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap() + 1
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn record(&self, record: impl Into<Record>) {
        self.records.lock().unwrap().push(record.into());
        self.recorded.notify_all();
    }

    /// A fault begins or ends for everybody.
    pub(crate) fn fault(&self, kind: &str, on: bool) {
        self.record(Fault { t: self.now(), kind: kind.to_owned(), on, target: None });
    }

    /// A fault of one watch begins or ends.
    pub(crate) fn fault_of(&self, watch: usize, kind: &str, on: bool) {
        let target = Some(watcher(watch));
        self.record(Fault { t: self.now(), kind: kind.to_owned(), on, target });
    }

    /// How many watches were told to list again.
    pub(crate) fn relists(&self) -> u64 {
        self.relists.load(Ordering::Relaxed)
    }

    /// How the server is reached.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether everything is to end.
    pub(crate) fn over(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// Content without its resource version.
fn hash(object: &Value) -> u64 {
    let mut object = object.clone();
    object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let mut hasher = DefaultHasher::new();
    object.to_string().hash(&mut hasher);
    hasher.finish()
}

fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"][name].as_str().unwrap_or_default()
}

pub(crate) fn version(object: &Value) -> u64 {
    text(object, "resourceVersion").parse().unwrap()
}

fn key(object: &Value) -> String {
    format!("{}/{}", text(object, "namespace"), text(object, "name"))
}

/// Writes until the run is over: creates, conditional updates, conditional deletes.
fn write(run: &Run, who: usize) {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(who as u64 + 1);
    while !run.over() {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let namespace = NAMESPACES[usize::try_from(seed % 2).unwrap()];
        let name = format!("m{}", (seed >> 8) % KEYS);
        let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
        let item = format!("{collection}/{name}");
        // Down, or not ready yet.
        let Ok((code @ (200 | 404), current)) = run.client.ask("GET", &item, "") else {
            knock_again();
            continue;
        };
        let app = ["web", "db", "cache"][usize::try_from((seed >> 16) % 3).unwrap()];
        let padding = "x".repeat(run.padding);
        let value = json!({"n": run.number().to_string(), "padding": padding});
        let (op, precond, method, path, body) = if code == 404 {
            let body = json!({"metadata": {"name": name, "labels": {"app": app}}, "data": value});
            (WriteOp::Create, Precondition::default(), "POST", &collection, body)
        } else {
            let rv = Some(version(&current));
            let precond = Precondition { rv, uid: None };
            if (seed >> 24).is_multiple_of(5) {
                let conditions = json!({"resourceVersion": text(&current, "resourceVersion")});
                let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": conditions});
                (WriteOp::Delete, precond, "DELETE", &item, body)
            } else {
                let mut body = current;
                body["metadata"]["labels"]["app"] = app.into();
                body["data"] = value;
                (WriteOp::Update, precond, "PUT", &item, body)
            }
        };
        let t0 = run.now();
        let answer = run.client.ask(method, path, &body.to_string());
        let (t1, code, rv) = match answer {
            // What became of it is not known (500 and 504), or it could not be tried.
            Ok((500.., _)) => {
                knock_again();
                (None, None, None)
            }
            Ok((code, object)) => {
                let rv = (code < 300 && op != WriteOp::Delete).then(|| version(&object));
                (Some(run.now()), Some(code), rv)
            }
            Err(_) => (None, None, None),
        };
        let key = format!("{namespace}/{name}");
        let who = format!("writer-{who}");
        run.record(Write { who, op, key, precond, t0, t1, code, rv, noop: false });
    }
}

/// Not a wait for anything: clients that are refused do not come again at full speed, or those who are let in
/// would have no processor left.
fn knock_again() {
    thread::sleep(Duration::from_millis(5));
}

/// The part that watch number so and so looks at: scope, selector, path.
fn part(number: usize) -> (Scope, String, String) {
    let all = "/api/v1/configmaps".to_owned();
    let inside = |namespace: &str| format!("/api/v1/namespaces/{namespace}/configmaps");
    let namespace = NAMESPACES[number % 2];
    match number % 5 {
        0 => (Scope::All, String::new(), all),
        1 => (Scope::Namespace(namespace.to_owned()), String::new(), inside(namespace)),
        2 => (Scope::All, "app=web".to_owned(), all),
        3 => (Scope::Namespace(namespace.to_owned()), "app!=db".to_owned(), inside(namespace)),
        _ => {
            let name = format!("m{}", number as u64 % KEYS);
            let path = format!("{}/{name}", inside(namespace));
            (Scope::Name(format!("{namespace}/{name}")), String::new(), path)
        }
    }
}

/// The name of a watch in the history.
fn watcher(number: usize) -> String {
    format!("watcher-{number}")
}

/// Watches over HTTP/1.1 until the run is over.
fn watch(run: &Run, number: usize, from: u64) {
    watch_with(run, number, from, |url| {
        let lines = run.client.watch(url)?;
        run.watches.lock().unwrap().insert(number, lines.stopper());
        Ok(lines)
    });
}

/// Watches until the run is over, and goes on from its last revision whenever it is cut off.
pub(crate) fn watch_with<E: Events>(
    run: &Run,
    number: usize,
    from: u64,
    mut open: impl FnMut(&str) -> io::Result<E>,
) {
    let (scope, selector, path) = part(number);
    let (mut last, mut round) = (from, 0);
    while !run.over() {
        let query = selector.replace('=', "%3D");
        let url = format!(
            "{path}?watch=true&allowWatchBookmarks=true&resourceVersion={last}&labelSelector={query}"
        );
        let t0 = run.now();
        let Ok(mut lines) = open(&url) else {
            knock_again();
            continue;
        };
        // Those that are there by then are ended when the run is over.
        if run.over() {
            return;
        }
        let sid = format!("watch-{number}-{round}");
        round += 1;
        run.record(Open {
            sid: sid.clone(),
            who: watcher(number),
            scope: scope.clone(),
            selector: selector.clone(),
            fields: String::new(),
            from: Some(last),
            initial: false,
            bookmarks: true,
            oldest: None,
            current: None,
            injected: false,
            t0,
        });
        let code = follow(run, &sid, &mut lines, &mut last);
        let reason = if run.over() { "closed" } else { "eof" }.to_owned();
        let (t, oldest) = (run.now(), None);
        run.record(End { sid, reason, code, retry_after_ms: None, oldest, injected: false, t });
        if code == Some(410) {
            run.relists.fetch_add(1, Ordering::Relaxed);
            last = list(run).unwrap_or(last);
        }
    }
}

/// The revision of a list; none if it cannot be had now.
fn list(run: &Run) -> Option<u64> {
    let answer = run.client.ask("GET", "/api/v1/configmaps?limit=1", "");
    answer.ok().filter(|(code, _)| *code == 200).map(|(_, list)| version(&list))
}

/// Records events until the stream ends; the code of an error event.
fn follow(run: &Run, sid: &str, lines: &mut impl Events, last: &mut u64) -> Option<u16> {
    while let Ok(Some(event)) = lines.next() {
        let object = &event["object"];
        let kind = match event["type"].as_str().unwrap() {
            "ADDED" => FrameType::Added,
            "MODIFIED" => FrameType::Modified,
            "DELETED" => FrameType::Deleted,
            "BOOKMARK" => FrameType::Bookmark,
            _ => return u16::try_from(object["code"].as_u64().unwrap()).ok(),
        };
        *last = version(object);
        let bookmark = kind == FrameType::Bookmark;
        run.record(Frame {
            sid: sid.to_owned(),
            kind,
            key: if bookmark { String::new() } else { key(object) },
            uid: text(object, "uid").to_owned(),
            rv: *last,
            hash: if bookmark { 0 } else { hash(object) },
            initial_end: false,
            t: run.now(),
        });
    }
    None
}

/// The log as a watch of everything sees it, which must not miss anything.
pub(crate) struct Witness {
    client: Client,
    thread: thread::JoinHandle<Vec<Record>>,
}

/// The object whose creation ends the log of a witness.
const LAST: &str = "the-last-one";

impl Witness {
    /// Follows all changes after a revision. Times are those of the run.
    pub(crate) fn start(run: &Arc<Run>, from: u64) -> Self {
        let client = run.client.clone();
        let run = run.clone();
        Self { client, thread: thread::spawn(move || see(&run, from)) }
    }

    /// Ends the log after everything that was written.
    pub(crate) fn finish(self) -> Vec<Record> {
        let body = json!({"metadata": {"name": LAST}}).to_string();
        let path = "/api/v1/namespaces/default/configmaps";
        let (code, answer) = self.client.ask("POST", path, &body).unwrap();
        assert_eq!(code, 201, "{answer}");
        self.thread.join().unwrap()
    }
}

fn see(run: &Run, from: u64) -> Vec<Record> {
    let mut last = from;
    let mut log = Vec::new();
    loop {
        let url = format!("/api/v1/configmaps?watch=true&resourceVersion={last}");
        let Ok(mut lines) = run.client.watch(&url) else {
            knock_again();
            continue;
        };
        while let Ok(Some(event)) = lines.next() {
            let object = &event["object"];
            let op = match event["type"].as_str().unwrap() {
                "ADDED" => CommitOp::Create,
                "MODIFIED" => CommitOp::Update,
                "DELETED" => CommitOp::Delete,
                other => panic!("the watch of everything is behind: {other} {object}"),
            };
            if text(object, "name") == LAST {
                return log;
            }
            last = version(object);
            let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
            let labels = labels.map(|(k, v)| (k.clone(), v.as_str().unwrap().to_owned()));
            log.push(Record::from(Commit {
                rv: last,
                t: run.now(),
                key: key(object),
                uid: text(object, "uid").to_owned(),
                op,
                hash: hash(object),
                labels: labels.collect(),
                fields: BTreeMap::new(),
            }));
        }
    }
}

/// Gives the changes of a log without times the first moment at which somebody knew of each.
pub(crate) fn date(log: &mut [Record], seen: &[Record]) {
    let mut known = BTreeMap::new();
    for (rv, t) in seen.iter().filter_map(|record| match record {
        Record::Frame(it) if it.kind != FrameType::Bookmark => Some((it.rv, it.t)),
        Record::Write(it) => it.rv.zip(it.t1),
        _ => None,
    }) {
        known.entry(rv).and_modify(|first| *first = t.min(*first)).or_insert(t);
    }
    for record in log {
        if let Record::Commit(it) = record {
            it.t = known.get(&it.rv).copied().unwrap_or(it.t);
        }
    }
}

/// A change of a config map as the log has it; none if it is of something else.
pub(crate) fn commit(event: &Event, t: u64) -> Option<Record> {
    if event.resource.as_str() != "configmaps" {
        return None;
    }
    let maps = Resource::new("", "v1", "configmaps", "ConfigMap", Placed::Namespaced);
    let object: Object = event.value.object(&maps).unwrap();
    let body: Value = serde_json::from_slice(object.body()).unwrap();
    let op = match event.kind {
        EventKind::Added => CommitOp::Create,
        EventKind::Modified => CommitOp::Update,
        EventKind::Deleted => CommitOp::Delete,
    };
    let labels = object.labels().map(|(k, v)| (k.to_owned(), v.to_owned()));
    Some(Record::from(Commit {
        rv: event.revision.0,
        t,
        key: event.key.to_string(),
        uid: object.uid().to_owned(),
        op,
        hash: hash(&body),
        labels: labels.collect(),
        fields: BTreeMap::new(),
    }))
}

/// Judges a log and what was seen of it. How many writes were acknowledged and watches opened.
pub(crate) fn judge(log: Vec<Record>, seen: Vec<Record>) -> (usize, usize) {
    let history: History = log.into_iter().chain(seen).collect();
    let count = |which: fn(&Record) -> bool| history.records().filter(|it| which(it)).count();
    let acknowledged = count(|it| matches!(it, Record::Write(it) if it.acknowledged().is_some()));
    let opened = count(|it| matches!(it, Record::Open(_)));
    let broken = check(&history);
    if !broken.is_empty() {
        let name = format!("masthead-history-{}.jsonl", std::process::id());
        let path = std::env::temp_dir().join(name);
        history.write(std::fs::File::create(&path).unwrap()).unwrap();
        let shown: Vec<_> = broken.iter().take(5).map(ToString::to_string).collect();
        let (count, path, shown) = (broken.len(), path.display(), shown.join("\n"));
        panic!("{count} rules broken, history in {path}:\n{shown}");
    }
    (acknowledged, opened)
}
