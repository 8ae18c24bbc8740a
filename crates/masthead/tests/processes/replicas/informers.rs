//! Informers that go through the balancer like everybody else.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use masthead_core::Revision;
use masthead_informer::{Factory, Informer};
use parking_lot::Mutex;

use crate::http::Client;
use crate::informer::{MAPS, Told, cached, listed, synced};
use crate::load::version;

const INFORMERS: usize = 3;

pub(crate) struct Informers {
    runtime: tokio::runtime::Runtime,
    all: Vec<(Factory, Informer<ConfigMap>, Arc<Mutex<Told>>)>,
}

impl Informers {
    pub(crate) fn start(client: &Client) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let one = |_| runtime.block_on(synced(client.address, &client.token));
        let all = (0..INFORMERS).map(one).collect();
        Self { runtime, all }
    }

    /// Each was told right, and has what there is (I1, I3, I4).
    pub(crate) fn judge(self, client: &Client) {
        // A last event for everybody: how far a watch is without one is told once a minute.
        let body = r#"{"metadata": {"name": "last"}}"#;
        let (code, last) = client.ask("POST", MAPS, body).unwrap();
        assert_eq!(code, 201, "{last}");
        let ((state, _), revision) = (listed(client), version(&last));
        for (factory, informer, told) in &self.all {
            let wait = informer.wait_for(Revision(revision), Duration::from_secs(60));
            let there = self.runtime.block_on(wait);
            there.unwrap_or_else(|error| panic!("{error}\n{}", factory.report()));
            assert_eq!(cached(informer), state);
            let deadline = Instant::now() + Duration::from_secs(60);
            while told.lock().keys != state && Instant::now() < deadline {
                thread::yield_now();
            }
            let told = told.lock();
            assert_eq!((&told.keys, &told.wrong), (&state, &Vec::new()));
            assert!(told.events > 20, "{} events", told.events);
        }
    }
}
