//! Kill -9 at random moments under conditional writes and watches: nothing acknowledged is lost, no
//! watch misses or repeats anything, and none has to list again.

use std::thread;
use std::time::Duration;

use futures_util::StreamExt;
use masthead_core::Revision;
use masthead_sim::history::Record;
use masthead_store::{EmbeddedStore, Settings, Store};

use crate::http::Client;
use crate::load::{Load, commit, date, judge, version};
use crate::server::Server;

const WRITERS: usize = 8;
const WATCHES: usize = 50;

/// The log as the store has it on disk.
pub(crate) fn read_log(store: &std::path::Path, from: u64) -> Vec<Record> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = EmbeddedStore::open(store, Settings::default()).unwrap();
        let current = store.current().await.unwrap();
        let mut events = store.watch(Revision(from)).unwrap();
        let (mut log, mut reached) = (Vec::new(), Revision(from));
        while reached < current {
            let batch = events.next().await.unwrap().unwrap();
            log.extend(batch.events.iter().filter_map(|event| commit(event, 0)));
            reached = batch.reached;
        }
        log
    })
}

#[test]
fn nothing_is_lost_and_every_watch_resumes_after_kill_9() {
    let _alone = crate::alone();
    let rounds: u64 = std::env::var("MASTHEAD_ROUNDS").map_or(20, |it| it.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let plain = ["--insecure-http", "true", "--keep-age", "5h"];
    let mut server = Server::start(directory.path(), &plain);
    let client = Client { address: server.address, token: server.token.clone() };
    let (_, list) = client.ask("GET", "/api/v1/configmaps", "").unwrap();
    let from = version(&list);
    let load = Load::start(client, WRITERS, WATCHES, from);
    let mut seed = u64::from(std::process::id());
    for _ in 0..rounds {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Not a wait: the moment of the fault.
        thread::sleep(Duration::from_millis(100 + (seed >> 33) % 400));
        let listen = server.address.to_string();
        load.run.fault("kill", true);
        server.kill();
        server = Server::start_on(directory.path(), &listen, &plain);
        load.run.fault("kill", false);
    }
    load.settle(200);
    let relists = load.run.relists();
    let records = load.finish();
    assert!(server.terminate().success());
    assert_eq!(relists, 0, "every watch could resume");

    let mut log = read_log(&directory.path().join("store"), from);
    date(&mut log, &records);
    let commits = log.len();
    let (acknowledged, opened) = judge(log, records);
    println!(
        "{rounds} rounds: {commits} commits, {acknowledged} acknowledged, {opened} watches opened"
    );
    assert!(acknowledged > 100 && opened > WATCHES, "the run was too quiet to show anything");
}
