//! Kill -9 at random moments under conditional writes and watches: nothing acknowledged is lost, no
//! watch misses or repeats anything, and none has to list again.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use masthead_core::{Object, Resource, Revision, Scope as Placed};
use masthead_sim::history::{
    Commit, CommitOp, End, Frame, FrameType, Open, Precondition, Record, Scope, Write, WriteOp,
};
use masthead_sim::{History, check};
use masthead_store::{EmbeddedStore, EventKind, Settings, Store};
use serde_json::{Value, json};

use crate::http::Client;
use crate::server::Server;

const WRITERS: usize = 8;
const WATCHES: usize = 50;
const KEYS: u64 = 12;
const NAMESPACES: [&str; 2] = ["default", "kube-public"];

/// What all threads share.
struct Run {
    client: Client,
    began: Instant,
    stop: AtomicBool,
    records: Mutex<Vec<(u64, Record)>>,
    next: AtomicU64,
    /// Handles that end the watches when the run is over.
    watches: Mutex<BTreeMap<usize, TcpStream>>,
}

impl Run {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap() + 1
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn record(&self, record: impl Into<Record>) {
        let mut records = self.records.lock().unwrap();
        let order = u64::try_from(records.len()).unwrap();
        records.push((order, record.into()));
    }

    fn over(&self) -> bool {
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

fn version(object: &Value) -> u64 {
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
            thread::yield_now();
            continue;
        };
        let app = ["web", "db", "cache"][usize::try_from((seed >> 16) % 3).unwrap()];
        let value = json!({"n": run.number().to_string()});
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

/// Watches until the run is over, and goes on from its last revision whenever it is cut off.
fn watch(run: &Run, number: usize, from: u64) {
    let (scope, selector, path) = part(number);
    let (mut last, mut round) = (from, 0);
    while !run.over() {
        let query = selector.replace('=', "%3D");
        let url = format!(
            "{path}?watch=true&allowWatchBookmarks=true&resourceVersion={last}&labelSelector={query}"
        );
        let t0 = run.now();
        let Ok(mut lines) = run.client.watch(&url) else {
            thread::yield_now();
            continue;
        };
        run.watches.lock().unwrap().insert(number, lines.stopper());
        let sid = format!("watch-{number}-{round}");
        round += 1;
        run.record(Open {
            sid: sid.clone(),
            who: format!("watcher-{number}"),
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
        assert_ne!(code, Some(410), "watch {number} could not resume from {last}");
    }
}

/// Records events until the stream ends; the code of an error event.
fn follow(run: &Run, sid: &str, lines: &mut crate::http::Lines, last: &mut u64) -> Option<u16> {
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

/// The log as the store has it on disk.
pub(crate) fn read_log(store: &std::path::Path, from: u64) -> Vec<Record> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = EmbeddedStore::open(store, Settings::default()).unwrap();
        let current = store.current().await.unwrap();
        let mut events = store.watch(Revision(from)).unwrap();
        let maps = Resource::new("", "v1", "configmaps", "ConfigMap", Placed::Namespaced);
        let (mut log, mut reached) = (Vec::new(), Revision(from));
        while reached < current {
            for event in events.next().await.unwrap().unwrap().events {
                reached = event.revision;
                if event.resource.as_str() != "configmaps" {
                    continue;
                }
                let object: Object = event.value.object(&maps).unwrap();
                let body: Value = serde_json::from_slice(object.body()).unwrap();
                let op = match event.kind {
                    EventKind::Added => CommitOp::Create,
                    EventKind::Modified => CommitOp::Update,
                    EventKind::Deleted => CommitOp::Delete,
                };
                let labels = object.labels().map(|(k, v)| (k.to_owned(), v.to_owned()));
                log.push(Record::from(Commit {
                    rv: event.revision.0,
                    t: 0,
                    key: event.key.to_string(),
                    uid: object.uid().to_owned(),
                    op,
                    hash: hash(&body),
                    labels: labels.collect(),
                    fields: BTreeMap::new(),
                }));
            }
        }
        log
    })
}

#[test]
fn nothing_is_lost_and_every_watch_resumes_after_kill_9() {
    let rounds: u64 = std::env::var("MASTHEAD_ROUNDS").map_or(20, |it| it.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let plain = ["--insecure-http", "true", "--keep-age", "5h"];
    let mut server = Server::start(directory.path(), &plain);
    let client = Client { address: server.address, token: server.token.clone() };
    let (_, list) = client.ask("GET", "/api/v1/configmaps", "").unwrap();
    let from = version(&list);
    let run = Arc::new(Run {
        client,
        began: Instant::now(),
        stop: AtomicBool::new(false),
        records: Mutex::default(),
        next: AtomicU64::new(0),
        watches: Mutex::default(),
    });
    let mut threads = Vec::new();
    for number in 0..WRITERS {
        let run = run.clone();
        threads.push(thread::spawn(move || write(&run, number)));
    }
    for number in 0..WATCHES {
        let run = run.clone();
        threads.push(thread::spawn(move || watch(&run, number, from)));
    }
    let mut seed = u64::from(std::process::id());
    for _ in 0..rounds {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Not a wait: the moment of the fault.
        thread::sleep(Duration::from_millis(100 + (seed >> 33) % 400));
        let listen = server.address.to_string();
        server.kill();
        server = Server::start_on(directory.path(), &listen, &plain);
    }
    let settled = run.number();
    while run.number() < settled + 200 {
        thread::yield_now();
    }
    run.stop.store(true, Ordering::Release);
    for stream in run.watches.lock().unwrap().values() {
        let _ = stream.shutdown(Shutdown::Both);
    }
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(server.terminate().success());

    let mut records = read_log(&directory.path().join("store"), from);
    let commits = records.len();
    records.extend(run.records.lock().unwrap().drain(..).map(|(_, record)| record));
    let history: History = records.into_iter().collect();
    let acknowledged = history
        .records()
        .filter(|it| matches!(it, Record::Write(it) if it.acknowledged().is_some()));
    let (acknowledged, opened) = (
        acknowledged.count(),
        history.records().filter(|it| matches!(it, Record::Open(_))).count(),
    );
    println!(
        "{rounds} rounds: {commits} commits, {acknowledged} acknowledged, {opened} watches opened"
    );
    assert!(acknowledged > 100 && opened > WATCHES, "the run was too quiet to show anything");
    let broken = check(&history);
    if !broken.is_empty() {
        let path =
            std::env::temp_dir().join(format!("masthead-crash-{}.jsonl", std::process::id()));
        history.write(std::fs::File::create(&path).unwrap()).unwrap();
        let shown: Vec<_> = broken.iter().take(5).map(ToString::to_string).collect();
        panic!(
            "{} rules broken, history in {}:\n{}",
            broken.len(),
            path.display(),
            shown.join("\n")
        );
    }
}
