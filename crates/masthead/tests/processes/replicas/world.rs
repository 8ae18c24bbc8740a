//! Three etcd members, three servers, a link from each server to each member, and a balancer.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use masthead_core::Revision;
use masthead_lab::{EtcdCluster, EtcdOptions, Mode, Proxy, free_port};
use masthead_store::{EtcdSettings, EtcdStore, Store};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::Client;
use crate::server::Server;

const TOKEN: &str = "replicas-token";
const REPLICAS: usize = 3;

#[derive(Default)]
pub(crate) struct Options {
    /// Bytes that each member takes.
    pub(crate) quota_bytes: Option<u64>,
}

pub(crate) struct World {
    pub(crate) etcd: EtcdCluster,
    /// Of each server, one to each member.
    pub(crate) links: Vec<Vec<Proxy>>,
    replicas: Vec<Option<Server>>,
    ports: Vec<u16>,
    balancer: Proxy,
    folder: TempDir,
    /// How far the log has been read; nothing that was not is compacted.
    pub(crate) read: Arc<AtomicU64>,
}

impl World {
    pub(crate) fn start(options: &Options) -> Self {
        let quota_bytes = options.quota_bytes;
        let etcd = EtcdCluster::start(3, &EtcdOptions { quota_bytes, ..EtcdOptions::default() });
        let link = |_| etcd.members.iter().map(|it| Proxy::to(it.client_port())).collect();
        let links = (0..REPLICAS).map(link).collect();
        let ports: Vec<_> = (0..REPLICAS).map(|_| free_port()).collect();
        let balancer = Proxy::to_any(ports.clone());
        let folder = tempfile::tempdir().unwrap();
        let tokens = format!("{TOKEN},replicas,1,system:masters\n");
        std::fs::write(folder.path().join("tokens"), tokens).unwrap();
        let replicas = (0..REPLICAS).map(|_| None).collect();
        let read = Arc::default();
        let mut world = Self { etcd, links, replicas, ports, balancer, folder, read };
        (0..REPLICAS).for_each(|number| world.start_replica(number));
        world
    }

    fn directory(&self, number: usize) -> PathBuf {
        self.folder.path().join(number.to_string())
    }

    pub(crate) fn start_replica(&mut self, number: usize) {
        let endpoints: Vec<_> = self.links[number].iter().map(Proxy::endpoint).collect();
        let endpoints = endpoints.join(",");
        let tokens = self.folder.path().join("tokens");
        let arguments = [
            "--insecure-http",
            "true",
            "--store",
            "etcd",
            "--etcd-endpoints",
            &endpoints,
            "--token-file",
            tokens.to_str().unwrap(),
            "--keep-age",
            "1h",
            "--log",
            "error",
        ];
        let listen = format!("127.0.0.1:{}", self.ports[number]);
        let server = Server::start_on(&self.directory(number), &listen, &arguments);
        self.replicas[number] = Some(server);
    }

    pub(crate) fn kill_replica(&mut self, number: usize) {
        if let Some(server) = self.replicas[number].take() {
            server.kill();
        }
    }

    pub(crate) fn replica(&self, number: usize) -> &Server {
        self.replicas[number].as_ref().unwrap()
    }

    /// Where a server is, without the balancer.
    pub(crate) fn address(&self, number: usize) -> SocketAddr {
        ([127, 0, 0, 1], self.ports[number]).into()
    }

    /// Through the balancer.
    pub(crate) fn client(&self) -> Client {
        let address = ([127, 0, 0, 1], self.balancer.port()).into();
        Client { address, token: TOKEN.to_owned() }
    }

    /// Everything runs and every link is whole.
    pub(crate) fn heal(&mut self) {
        for link in self.links.iter().flatten() {
            link.set(Mode::Pass);
        }
        for number in 0..REPLICAS {
            if self.replicas[number].is_none() {
                self.start_replica(number);
            }
        }
    }

    /// The newest revision.
    pub(crate) fn revision(&self) -> u64 {
        let (code, list) = self.client().ask("GET", "/api/v1/configmaps?limit=1", "").unwrap();
        assert_eq!(code, 200, "{list}");
        crate::load::version(&list)
    }

    /// Drops all history, again and again, for as long as it is held.
    pub(crate) fn compact_every(&self, time: Duration) -> Compacting {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, endpoints) = (stop.clone(), self.etcd.endpoints());
        let read = self.read.clone();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let store = EtcdStore::open(EtcdSettings::new(endpoints)).await.unwrap();
                while !stopped.load(Ordering::Acquire) {
                    // While a leader is elected, nobody can.
                    let _ = store.compact(Revision(read.load(Ordering::Acquire))).await;
                    tokio::time::sleep(time).await;
                }
            });
        });
        Compacting { stop, thread: Some(thread) }
    }

    /// A write of a megabyte, of something that nobody watches: a hundred clients that read it would take the
    /// processor from those who are judged.
    pub(crate) fn write_large(&self) -> (u16, Value) {
        let name = format!("large-{}", self.revision());
        let data = json!({"x": "x".repeat(1_000_000)});
        let body = json!({"metadata": {"name": name}, "stringData": data});
        let path = "/api/v1/namespaces/kube-system/secrets";
        self.client().ask("POST", path, &body.to_string()).unwrap_or((0, Value::Null))
    }

    /// Writes until etcd takes no more.
    pub(crate) fn fill(&self) {
        while self.write_large().0 != 503 {}
    }

    /// More room, and no alarm.
    pub(crate) fn make_room(&mut self) {
        for member in &mut self.etcd.members {
            member.restart_without_quota();
        }
        self.etcd.members[0].disarm();
    }
}

/// Compacts until it is dropped.
pub(crate) struct Compacting {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Compacting {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
