//! `masthead serve` as a command: what it refuses, how it is set up, how it ends.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use crate::http::Client;
use crate::server::{Server, masthead};

fn refused(arguments: &[&str]) -> String {
    let Output { status, stderr, .. } = masthead(arguments).output().unwrap();
    assert!(!status.success(), "{arguments:?}");
    String::from_utf8(stderr).unwrap()
}

#[test]
fn a_second_server_on_the_same_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let _first = Server::start(directory.path(), &[]);
    let data = directory.path().to_str().unwrap();
    let error = refused(&["serve", "--data-dir", data, "--listen", "127.0.0.1:0"]);
    assert!(error.contains("in use") && error.contains(data), "{error}");
}

#[test]
fn plain_http_is_refused_where_others_could_listen() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let error = refused(&["serve", "--data-dir", data, "--insecure-http", "--listen", "0.0.0.0:0"]);
    assert!(error.contains("loopback"), "{error}");
}

#[test]
fn wrong_settings_are_named() {
    for (arguments, named) in [
        (&["serve", "--listen", "nowhere"][..], "--listen"),
        (&["serve", "--max-body-bytes", "3 apples"], "--max-body-bytes"),
        (&["serve", "--stall-timeout", "soon"], "--stall-timeout"),
        (&["serve", "--store", "tape"], "--store"),
        (&["serve", "--tls-cert", "x"], "--tls-key"),
        (&["serve", "--token-file", "/nonexistent"], "/nonexistent"),
        (&["serve", "--config", "/nonexistent"], "/nonexistent"),
        (&["serve", "--log", "a=b=c"], "--log"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().to_str().unwrap();
        let arguments = [arguments, &["--data-dir", data]].concat();
        let error = refused(&arguments);
        assert!(error.contains(named), "{arguments:?}: {error}");
    }
}

#[test]
fn flags_count_more_than_the_environment_and_that_more_than_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("masthead.yaml");
    std::fs::write(&file, "listen: from-file\nstore: from-file\nmax-watches: from-file\n").unwrap();
    let path = file.to_str().unwrap();
    let error = |arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = masthead(&[&["serve", "--config", path], arguments].concat());
        let output = command.envs(environment.iter().copied()).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(error(&[], &[]).contains("from-file"));
    let environment = [("MASTHEAD_LISTEN", "from-environment")];
    assert!(
        error(&["--store=memory", "--max-watches=1"], &environment).contains("from-environment")
    );
    let flags = ["--store=memory", "--max-watches=1", "--listen=from-flag"];
    assert!(error(&flags, &environment).contains("from-flag"));
    std::fs::write(&file, "listem: 1\n").unwrap();
    assert!(error(&[], &[]).contains("\"listem\""), "a misspelt setting is named");
}

#[test]
fn everything_secret_is_readable_by_its_user_only() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("data");
    let server = Server::start(&directory, &[]);
    let store = directory.join("store");
    let (base, log) = (store.join("base"), store.join("log"));
    let folders = [directory.clone(), directory.join("credentials"), store, base, log];
    let mut files = 0;
    for folder in folders {
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        // The files of the base are made by its tree; nobody else gets to them.
        for file in entries.filter(|path| path.is_file() && !folder.ends_with("base")) {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
            files += 1;
        }
    }
    assert!(files > 8, "{files} files were looked at");
    assert!(server.url.starts_with("https://127.0.0.1:"));
}

#[test]
fn a_server_that_is_stopped_ends_its_watches_with_a_last_bookmark() {
    for signal in ["TERM", "INT", "HUP"] {
        a_watch_ends_with_a_last_bookmark_after(signal);
    }
}

fn a_watch_ends_with_a_last_bookmark_after(signal: &str) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--insecure-http"]);
    let client = Client { address: server.address, token: server.token.clone() };
    let (_, list) = client.ask("GET", "/api/v1/configmaps", "").unwrap();
    let from = list["metadata"]["resourceVersion"].as_str().unwrap();
    let path =
        format!("/api/v1/configmaps?watch=true&allowWatchBookmarks=true&resourceVersion={from}");
    let mut watch = client.watch(&path).unwrap();
    let body = r#"{"metadata":{"name":"a"}}"#;
    client.ask("POST", "/api/v1/namespaces/default/configmaps", body).unwrap();
    assert!(server.stop(signal).success(), "SIG{signal}");
    assert_eq!(watch.next().unwrap().unwrap()["type"], "ADDED");
    let bookmark = watch.next().unwrap().unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(watch.next().unwrap(), None, "a clean end");
}
