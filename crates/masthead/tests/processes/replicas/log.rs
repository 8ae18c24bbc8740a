//! The log as etcd has it, followed while it grows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use futures_util::StreamExt;
use masthead_core::Revision;
use masthead_sim::history::Record;
use masthead_store::{EtcdSettings, EtcdStore, Store};

use crate::load::{Run, commit};

pub(crate) struct Log {
    endpoints: Vec<String>,
    clock: Arc<OnceLock<Arc<Run>>>,
    /// Where it ends; 0 as long as it goes on.
    end: Arc<AtomicU64>,
    thread: JoinHandle<Vec<Record>>,
}

impl Log {
    /// Tells `read` how far it is: what it has not read must not be compacted.
    pub(crate) fn follow(endpoints: &[String], from: u64, read: &Arc<AtomicU64>) -> Self {
        let (clock, end) = (Arc::<OnceLock<Arc<Run>>>::default(), Arc::<AtomicU64>::default());
        let (now, until, members) = (clock.clone(), end.clone(), endpoints.to_vec());
        let read = read.clone();
        let thread = thread::spawn(move || {
            runtime().block_on(async {
                let store = EtcdStore::open(EtcdSettings::new(members)).await.unwrap();
                let (mut log, mut reached) = (Vec::new(), Revision(from));
                let mut events = store.watch(reached).unwrap();
                loop {
                    let end = until.load(Ordering::Acquire);
                    if end > 0 && reached.0 >= end {
                        return log;
                    }
                    // Makes the watch say how far it is, also when nothing happens any more.
                    if end > 0 {
                        let _ = store.current().await;
                    }
                    let wait = tokio::time::Duration::from_millis(100);
                    match tokio::time::timeout(wait, events.next()).await {
                        Err(_) => {}
                        Ok(Some(Ok(batch))) => {
                            let t = now.get().map_or(1, |run| run.now());
                            log.extend(batch.events.iter().filter_map(|it| commit(it, t)));
                            reached = batch.reached;
                            read.store(reached.0, Ordering::Release);
                        }
                        Ok(Some(Err(masthead_store::StoreError::Expired { .. }))) => {
                            panic!("the log was compacted before it was read");
                        }
                        // No member answers: it goes on when one does.
                        Ok(_) => events = store.watch(reached).unwrap(),
                    }
                }
            })
        });
        Self { endpoints: endpoints.to_vec(), clock, end, thread }
    }

    /// From now on changes have times.
    pub(crate) fn set_clock(&self, run: Arc<Run>) {
        assert!(self.clock.set(run).is_ok(), "once");
    }

    /// Everything up to now.
    pub(crate) fn finish(self) -> Vec<Record> {
        let now = runtime().block_on(async {
            let store = EtcdStore::open(EtcdSettings::new(self.endpoints)).await.unwrap();
            store.current().await.unwrap()
        });
        self.end.store(now.0, Ordering::Release);
        self.thread.join().unwrap()
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}
