//! `masthead sync`: what it shows, what it says is wrong, and how it ends.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::Receiver;
use std::thread;

use serde_json::Value;

use crate::follower::{self, Follower, client, create, kubeconfig_at, run};
use crate::server::Server;

#[expect(dead_code, reason = "nothing is cut here")]
#[path = "../../../informer/tests/http/proxy.rs"]
mod proxy;

use proxy::Proxy;

const PLAIN: [&str; 3] = ["--insecure-http", "--store", "memory"];

/// Text that does not repeat.
fn noise(seed: usize, bytes: usize) -> String {
    let mut state = seed as u64 + 1;
    let word = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        format!("{:08x}", state >> 32)
    };
    (0..bytes / 8).map(word).collect()
}

/// The bytes that each line of progress tells, as far as they are comparable.
fn moved(lines: &Receiver<String>) -> Vec<String> {
    let told = lines.iter().filter(|line| line.starts_with("configmaps: "));
    told.map(|line| line.split(", ").nth(1).unwrap_or_default().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_link_is_seen_to_move_and_the_sync_finishes() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &PLAIN);
    for number in 0..150 {
        create(&client(&server), &format!("m{number}"), &noise(number, 16 * 1024));
    }
    // The whole takes five seconds, a request may take two.
    let proxy = Proxy::start(server.address, 500_000.0, None).await;
    let kubeconfig = kubeconfig_at(&server, proxy.address);
    for strategy in ["pages", "streaming"] {
        let arguments = ["sync", "cm", "--strategy", strategy, "--request-timeout", "2s"];
        let follower = Follower::start(&kubeconfig, &arguments);
        let seen = moved(&follower.errors);
        let table: Vec<_> = follower.output.iter().collect();
        assert_eq!(follower.wait().code(), Some(0), "{table:?}");
        assert!(seen.len() >= 2 && seen[0] != seen[1], "{strategy}: {seen:?}");
        assert!(table[1].contains("150") && table[1].ends_with("synced"), "{table:?}");
    }
    let follower = Follower::start(&kubeconfig, &["sync", "cm"]);
    let _under_way = follower.errors.recv().unwrap();
    let (code, table) = follower.interrupt();
    assert_eq!(code, Some(130));
    assert!(table.iter().any(|line| line.contains("interrupted after")), "{table:?}");
}

#[test]
fn a_refused_resource_leaves_the_others_and_names_the_right_that_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &PLAIN);
    create(&client(&server), "it", "");
    let kubeconfig = kubeconfig_at(&server, refuse(server.address, "/api/v1/secrets"));
    let (code, table, _) = run(&kubeconfig, &["sync", "cm,secrets"]);
    assert_eq!(code, Some(3), "{table}");
    let ends = |name: &str, end: &str| {
        table.lines().any(|it| it.starts_with(name) && it.trim_end().ends_with(end))
    };
    assert!(ends("configmaps ", "synced") && ends("secrets ", "forbidden"), "{table}");
    assert!(table.contains("list and watch on secrets in all namespaces"), "{table}");
    assert!(table.contains(r#"{apiGroups: [""], resources: ["secrets"], verbs: [list, watch]}"#));

    let arguments = ["sync", "cm,secrets", "--optional", "secrets", "-o", "json"];
    let (code, document, _) = run(&kubeconfig, &arguments);
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!((code, &document["complete"]), (Some(0), &Value::Bool(false)));
    assert_eq!(document["resources"][0]["objects"], 1);
    assert_eq!(document["resources"][1]["status"], "forbidden");
}

#[test]
fn an_optional_resource_that_is_not_served_leaves_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &PLAIN);
    let arguments = ["sync", "cm", "crontabs", "--optional", "crontabs"];
    let (code, table, error) = run(&server.kubeconfig, &arguments);
    assert_eq!(code, Some(0), "{table}{error}");
    let row = table.lines().find(|line| line.starts_with("crontabs ")).unwrap();
    assert!(row.ends_with("not found (optional)"), "{table}");
    assert!(table.contains("the server has no resource \"crontabs\""), "{table}");
    let (code, document, _) = run(&server.kubeconfig, &[&arguments[..], &["-o", "json"]].concat());
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!((code, &document["complete"]), (Some(0), &Value::Bool(false)));
    assert_eq!(document["resources"][1]["status"], "not found");
    let (code, _, error) = run(&server.kubeconfig, &["sync", "cm", "crontabs"]);
    assert_eq!(code, Some(2), "one that is required is looked for first: {error}");
    let (code, _, error) = run(&server.kubeconfig, &["sync", "cm", "--optional", "crontabs"]);
    assert!(code == Some(2) && error.contains("name it as RESOURCE too"), "{error}");
}

#[test]
fn a_request_that_the_server_does_not_take_ends_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &PLAIN);
    let selector = ["--field-selector", "spec.colour=red"];
    let (code, table, _) = run(&server.kubeconfig, &[&["sync", "cm"], &selector[..]].concat());
    assert_eq!(code, Some(3), "{table}");
    assert!(table.contains("rejected") && table.contains("spec.colour"), "{table}");
    let (code, _, error) = run(&server.kubeconfig, &[&["watch", "cm"], &selector[..]].concat());
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("spec.colour"), "{error}");
}

#[test]
fn compressed_lists_are_read_in_pages_unless_streaming_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &PLAIN);
    // One page is compressed from 128 KiB on.
    for number in 0..20 {
        create(&client(&server), &format!("m{number}"), &"x".repeat(16 * 1024));
    }
    let bytes = |arguments: &[&str]| {
        let arguments = [&["sync", "cm", "-o", "json"], arguments].concat();
        let (code, document, _) = run(&server.kubeconfig, &arguments);
        assert_eq!(code, Some(0), "{document}");
        let document: Value = serde_json::from_str(&document).unwrap();
        let synced = &document["resources"][0];
        (synced["pages"].as_u64().unwrap(), synced["bytes"].as_u64().unwrap())
    };
    let (pages, compressed) = bytes(&["--gzip"]);
    let (none, plain) = bytes(&["--gzip", "--strategy", "streaming"]);
    assert!(pages > 0 && none == 0, "{pages} {none}");
    assert!(compressed * 10 < plain, "{compressed} of {plain}");
}

/// A server that says no to one path; everything else it passes on, a request a connection.
fn refuse(server: SocketAddr, path: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            thread::spawn(move || pass_on(client, server, path));
        }
    });
    address
}

/// An error is the end of a connection, as it should be.
fn pass_on(mut client: TcpStream, server: SocketAddr, path: &str) -> std::io::Result<()> {
    let mut head = String::new();
    let mut reader = BufReader::new(client.try_clone()?);
    while reader.read_line(&mut head)? > 2 {}
    if head.starts_with(&format!("GET {path}")) {
        let body = r#"{"kind":"Status","status":"Failure","reason":"Forbidden","code":403,"message":"not for you"}"#;
        let length = body.len();
        return write!(
            client,
            "HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
             connection: close\r\n\r\n{body}"
        );
    }
    let mut server = TcpStream::connect(server)?;
    write!(
        server,
        "{}connection: close\r\n\r\n",
        head.trim_end_matches("\r\n").to_owned() + "\r\n"
    )?;
    std::io::copy(&mut server, &mut client).map(drop)
}

#[test]
fn who_may_nothing_is_told_what_to_ask_for() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens.csv");
    std::fs::write(&tokens, "a-token-for-nobody,nobody,1\n").unwrap();
    let tokens = ["--token-file", tokens.to_str().unwrap()];
    let server = Server::start(directory.path(), &[&PLAIN[..], &tokens].concat());
    let kubeconfig = follower::kubeconfig(&server, &server.token, "a-token-for-nobody");
    let (code, table, _) = run(&kubeconfig, &["sync", "cm", "-n", "shop"]);
    assert_eq!(code, Some(3), "{table}");
    assert!(table.contains("list and watch on configmaps in namespace \"shop\""), "{table}");

    let blind = kubeconfig_at(&server, refuse(server.address, "/api"));
    for command in ["sync", "watch"] {
        let (code, _, error) = run(&blind, &[command, "pods"]);
        assert_eq!(code, Some(1));
        assert!(error.contains("Grant get on /api and /apis"), "{error}");
    }
}

#[test]
fn what_cannot_be_is_refused_with_a_next_step() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &PLAIN);
    for (arguments, named) in [
        (&["sync", "pds"][..], "did you mean"),
        (&["sync", "pods", "--critical", "secrets"], "name it as RESOURCE too"),
        (&["sync", "-l", "a=(b"], "unable to parse"),
        (&["sync", "-A", "-n", "shop"], "--all-namespaces"),
        (
            &["sync", "--progress-timeout", "20s", "--request-timeout", "10s"],
            "--progress-timeout is 20s, --request-timeout is 10s",
        ),
        (&["watch", "deploymnt"], "did you mean deployments.apps?"),
        (&["watch", "pods", "--field-selector", "spec.nodeName"], "spec.nodeName"),
        (&["watch"], "RESOURCE"),
    ] {
        let (code, _, error) = run(&server.kubeconfig, arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {error}");
        assert!(error.contains(named), "{arguments:?}: {error}");
    }
}
