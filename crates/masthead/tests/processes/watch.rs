//! `masthead watch`: every change once, whatever happens to the server, and how it ends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use masthead_sim::history::{Commit, CommitOp, Record};
use serde_json::{Value, json};

use crate::crash::read_log;
use crate::follower::{Follower, MAPS, client, create};
use crate::http::Client;
use crate::server::Server;

const LASTS: Duration = Duration::from_secs(20);
const KILLED_EVERY: Duration = Duration::from_secs(2);
/// Slow enough that nothing is told together.
const BETWEEN_WRITES: Duration = Duration::from_millis(20);
/// The longest wait between two tries, and some.
const PATIENCE: Duration = Duration::from_secs(60);
const KEYS: u64 = 7;

/// Creates, updates and deletes until it is told to stop; a server that is down is no reason to.
fn write(client: &Client, done: &AtomicBool) {
    for turn in 0_u64.. {
        if done.load(Ordering::Relaxed) {
            return;
        }
        let name = format!("m{}", turn.wrapping_mul(5) % KEYS);
        let body = json!({"metadata": {"name": name}, "data": {"turn": turn.to_string()}});
        let (path, body) = (format!("{MAPS}/{name}"), body.to_string());
        let _ = match turn % 6 {
            5 => client.ask("DELETE", &path, ""),
            _ => match client.ask("PUT", &path, &body) {
                Ok((404, _)) => client.ask("POST", MAPS, &body),
                other => other,
            },
        };
        // The rate of the load.
        thread::sleep(BETWEEN_WRITES);
    }
}

/// What happened to each key, in order: event and revision.
type Lives = BTreeMap<String, Vec<(String, u64)>>;

fn read(seen: &mut Lives, line: &str) -> String {
    let event: Value = serde_json::from_str(line).unwrap();
    let (kind, metadata) = (event["type"].as_str().unwrap(), &event["object"]["metadata"]);
    let name = metadata["name"].as_str().unwrap().to_owned();
    let revision = metadata["resourceVersion"].as_str().unwrap().parse().unwrap();
    seen.entry(name.clone()).or_default().push((kind.to_owned(), revision));
    name
}

fn committed(log: Vec<Record>) -> Lives {
    let mut seen = Lives::new();
    for record in log {
        let Record::Commit(Commit { key, op, rv, .. }) = record else { continue };
        let kind = match op {
            CommitOp::Create => "ADDED",
            CommitOp::Update => "MODIFIED",
            CommitOp::Delete => "DELETED",
        };
        let name = key.trim_start_matches("default/").to_owned();
        seen.entry(name).or_default().push((kind.to_owned(), rv));
    }
    seen
}

/// Reads until the line of this key.
fn read_to(name: &str, lines: &mpsc::Receiver<String>, seen: &mut Lives) {
    let deadline = Instant::now() + PATIENCE;
    while read(seen, &lines.recv_timeout(deadline - Instant::now()).unwrap()) != name {}
}

#[test]
fn every_change_is_printed_once_across_kill_9() {
    let directory = tempfile::tempdir().unwrap();
    let plain = ["--insecure-http", "--keep-age", "1h"];
    let mut server = Server::start(directory.path(), &plain);
    let arguments = ["watch", "cm", "-n", "default", "-o", "json", "--output-watch-events"];
    let follower = Follower::start(&server.kubeconfig, &arguments);
    let (client, mut seen) = (client(&server), Lives::new());
    let (_, list) = client.ask("GET", MAPS, "").unwrap();
    let from = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    create(&client, "first", "");
    read_to("first", &follower.output, &mut seen);

    let done = Arc::new(AtomicBool::new(false));
    let writer = thread::spawn({
        let (client, done) = (client.clone(), done.clone());
        move || write(&client, &done)
    });
    let began = Instant::now();
    while began.elapsed() < LASTS {
        // Not a wait: the moment of the fault.
        thread::sleep(KILLED_EVERY);
        let listen = server.address.to_string();
        server.kill();
        server = Server::start_on(directory.path(), &listen, &plain);
    }
    done.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    create(&client, "last", "");
    read_to("last", &follower.output, &mut seen);
    let errors: Vec<_> = follower.errors.try_iter().collect();
    assert_eq!(follower.interrupt(), (Some(130), Vec::new()));
    assert!(server.terminate().success());

    for part in ["resuming from revision", "nothing was missed"] {
        assert!(errors.iter().any(|line| line.contains(part)), "{part}: {errors:?}");
    }
    let committed = committed(read_log(&directory.path().join("store"), from));
    let changes: usize = committed.values().map(Vec::len).sum();
    println!("{changes} changes, {} lines of trouble", errors.len());
    assert!(changes > 100, "the run was too quiet to show anything");
    assert_eq!(seen, committed);
}

#[test]
fn a_table_says_how_pods_are_and_what_happens_to_them() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--insecure-http", "--store", "memory"]);
    let client = client(&server);
    let pods = "/api/v1/namespaces/default/pods";
    let body = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "main", "image": "web"}]}});
    client.ask("POST", pods, &body.to_string()).unwrap();
    let arguments = ["watch", "po", "-A", "--output-watch-events"];
    let follower = Follower::start(&server.kubeconfig, &arguments);
    let words = || {
        let line = follower.output.recv_timeout(PATIENCE).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(words().join(" "), "EVENT NAMESPACE NAME READY STATUS RESTARTS AGE");
    assert_eq!(words()[..6].join(" "), "ADDED default web 0/1 Pending 0");
    let status = json!({"status": {"phase": "Failed", "reason": "Evicted"}});
    client.ask("PATCH", &format!("{pods}/web/status"), &status.to_string()).unwrap();
    assert_eq!(words()[..6].join(" "), "MODIFIED default web 0/1 Evicted 0");
    let now = json!({"gracePeriodSeconds": 0});
    client.ask("DELETE", &format!("{pods}/web"), &now.to_string()).unwrap();
    assert_eq!(words()[..3].join(" "), "DELETED default web");
}

#[test]
fn only_changes_are_printed_if_only_changes_are_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--insecure-http", "--store", "memory"]);
    create(&client(&server), "before", "");
    let all = Follower::start(&server.kubeconfig, &["watch", "cm", "-o", "name"]);
    let arguments = ["watch", "cm", "-o", "name", "--watch-only"];
    let changes = Follower::start(&server.kubeconfig, &arguments);
    assert_eq!(all.output.recv_timeout(PATIENCE).unwrap(), "configmap/before");
    // It may not have begun yet: what is there when it begins is not a change.
    let line = (0..).find_map(|number| {
        create(&client(&server), &format!("after-{number}"), "");
        changes.output.recv_timeout(Duration::from_millis(100)).ok()
    });
    assert!(line.unwrap().starts_with("configmap/after-"));
}

#[test]
fn nobody_who_reads_is_a_quiet_end() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--insecure-http", "--store", "memory"]);
    create(&client(&server), "one", "");
    let mut command = crate::follower::command(&server.kubeconfig, &["watch", "cm", "-o", "name"]);
    let piped = std::process::Stdio::piped;
    let mut child = command.stdout(piped()).stderr(piped()).spawn().unwrap();
    let mut first = [0; 14];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
    assert_eq!(first, *b"configmap/one\n");
    drop(child.stdout.take());
    create(&client(&server), "two", "");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}
