//! A server whose disk is full for a time.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::Client;
use crate::server::{Server, masthead};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A command that runs with a disk of 48 MiB in memory at a path, which is there for that process only. None where
/// no file system can be mounted.
fn with_small_disk(at: &Path, command: &Command) -> Option<Command> {
    let mount = "mount -t tmpfs -o size=48m masthead \"$0\"";
    let unshared = |rights: &[&str], script: &str| {
        let mut command = Command::new("unshare");
        command.args(rights).args(["--mount", "sh", "-c", script]).arg(at);
        command
    };
    let ways: [&[&str]; 2] = [&[], &["--map-root-user"]];
    let can = |way: &&&[&str]| unshared(way, mount).output().is_ok_and(|it| it.status.success());
    let way = ways.iter().find(can)?;
    let mut unshared = unshared(way, &format!("{mount} && exec \"$@\""));
    unshared.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => unshared.env(name, value),
            None => unshared.env_remove(name),
        };
    }
    Some(unshared)
}

/// Creates a config map of half a megabyte.
fn create(client: &Client, name: &str) -> (u16, Value) {
    let data = "x".repeat(500_000);
    let body = json!({"metadata": {"name": name}, "data": {"value": data}});
    client.ask("POST", MAPS, &body.to_string()).unwrap()
}

/// The status code of an answer that is text.
fn code(client: &Client, path: &str) -> u16 {
    client.text(path).unwrap().0
}

#[test]
fn a_server_whose_disk_is_full_says_so_goes_on_reading_and_writes_again_when_there_is_room() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    fs::create_dir(&store).unwrap();
    let mut command = masthead(&["serve", "--insecure-http", "--listen", "127.0.0.1:0"]);
    command.arg("--data-dir").arg(directory.path());
    let Some(mut command) = with_small_disk(&store, &command) else {
        println!("skipped: no file system can be mounted here");
        return;
    };
    let said = directory.path().join("said");
    command.stderr(fs::File::create(&said).unwrap());
    let server = Server::start_with(directory.path(), command);
    let client = Client { address: server.address, token: server.token.clone() };
    let (_, list) = client.ask("GET", MAPS, "").unwrap();
    let from = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = client.watch(&format!("{MAPS}?watch=true&resourceVersion={from}")).unwrap();
    assert_eq!(code(&client, "/readyz"), 200);
    let ballast = server.seen(&store.join("ballast"));
    fs::write(&ballast, vec![1; 30 * 1024 * 1024]).unwrap();

    let mut made = Vec::new();
    let refusal = loop {
        let name = format!("map-{}", made.len());
        let (code, answer) = create(&client, &name);
        if code != 201 {
            break (code, answer);
        }
        made.push(name);
        assert!(made.len() < 100, "more than there is room for");
    };
    assert_eq!(refusal.0, 503, "{}", refusal.1);
    let message = refusal.1["message"].as_str().unwrap();
    assert!(message.contains(store.to_str().unwrap()), "{message}");
    assert!(message.contains("free space on its disk"), "{message}");
    let (ready, text) = client.text("/readyz").unwrap();
    assert!(ready == 503 && text.contains("[-]writable failed"), "{ready}: {text}");
    assert_eq!(code(&client, "/livez"), 200);
    let (_, metrics) = client.text("/metrics").unwrap();
    assert!(metrics.contains("masthead_store_writable 0"), "{metrics}");

    fs::remove_file(&ballast).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while create(&client, "later").0 != 201 {
        assert!(Instant::now() < deadline, "it does not notice the room");
    }
    made.push("later".to_owned());
    assert_eq!(code(&client, "/readyz"), 200);
    for name in &made {
        let event = watch.next().unwrap().unwrap();
        assert_eq!(
            (&event["type"], &event["object"]["metadata"]["name"]),
            (&json!("ADDED"), &json!(name))
        );
    }
    let (_, list) = client.ask("GET", MAPS, "").unwrap();
    made.sort();
    let names: Vec<_> = list["items"].as_array().unwrap().iter().collect();
    let names: Vec<_> = names.iter().map(|it| it["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, made, "what was acknowledged, and nothing that was refused");
    // It may have been full once more while it was tried, but not at each request.
    let said = fs::read_to_string(said).unwrap();
    let errors = said.lines().filter(|line| line.contains("ERROR")).count();
    assert!((1..5).contains(&errors), "{said}");
}
