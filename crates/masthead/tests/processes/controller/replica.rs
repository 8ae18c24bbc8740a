//! A replica of the controller: this test program again, told by its environment what to do.

use std::fs;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tokio::sync::RwLock;

use super::PATIENCE;
use super::fleets::{Fleets, run};
use super::record::{Event, Record};

const ORDERS: &str = "MASTHEAD_REPLICA";

/// What a replica has to know.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Orders {
    pub(super) number: u64,
    pub(super) server: SocketAddr,
    pub(super) token: String,
    pub(super) record: PathBuf,
}

/// A process that does not outlive the test: it is killed with this, and ends by itself with its input.
pub(super) struct Replica {
    pub(super) number: u64,
    child: Child,
}

impl Replica {
    pub(super) fn start(orders: &Orders) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "controller::replica::reconciles_until_it_is_killed"])
            .args(["--nocapture", "--test-threads=1"])
            .env(ORDERS, serde_json::to_string(orders).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { number: orders.number, child }
    }

    /// `hold`: nothing is written from when it is noted as held. `go`: it may be again. `calm`: nothing
    /// panics or is slow from now on.
    pub(super) fn tell(&mut self, order: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(format!("{order}\n").as_bytes()).unwrap();
    }

    /// As when its machine goes: no lease is given back, no request is finished.
    pub(super) fn kill(mut self, record: &Record) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        record.note(self.number, None, Event::Killed);
    }

    /// As when its machine is paused.
    pub(super) fn put_to_sleep(&self, record: &Record) -> Sleeper {
        let pid = self.child.id();
        // Whatever becomes of this process, that one goes on, sees the end of its input and ends.
        let shell = Command::new("sh")
            .args(["-c", "kill -s STOP $1; read -r _; kill -s CONT $1", "sh", &pid.to_string()])
            .stdin(Stdio::piped())
            .spawn();
        let sleeper = Sleeper(shell.unwrap());
        let deadline = Instant::now() + PATIENCE;
        while !is_asleep(pid) {
            assert!(Instant::now() < deadline, "{pid} does not stop");
            thread::yield_now();
        }
        record.note(self.number, None, Event::Asleep);
        sleeper
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Wakes its process when it is dropped.
pub(super) struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        // Which closes its input, too.
        let _ = self.0.wait();
    }
}

/// Returns `true` if all threads are stopped.
fn is_asleep(pid: u32) -> bool {
    fs::read_dir(format!("/proc/{pid}/task")).unwrap().all(|task| {
        let stat = fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    })
}

/// The process itself. Without its variable it is no test and does nothing.
#[test]
fn reconciles_until_it_is_killed() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let orders: Orders = serde_json::from_str(&orders).unwrap();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    let (gate, calm) = (Arc::new(RwLock::new(())), Arc::new(AtomicBool::new(false)));
    let record = Arc::new(Record::open(&orders.record));
    let number = orders.number;
    runtime.spawn(run(orders, Fleets::new(number, &record, &gate, &calm)));
    let mut held = None;
    for order in io::stdin().lines().map_while(Result::ok) {
        match &*order {
            "hold" => {
                held = Some(runtime.block_on(gate.write()));
                record.note(number, None, Event::Held);
            }
            "go" => held = None,
            "calm" => calm.store(true, Ordering::Relaxed),
            _ => panic!("{order}?"),
        }
    }
    drop(held);
    // At once, whatever is under way: whoever gave the orders is gone.
    std::process::exit(0);
}
