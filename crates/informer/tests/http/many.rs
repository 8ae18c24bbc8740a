//! Many who ask, one who is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use masthead_core::{ObjectKey, Revision};
use masthead_informer::upstream::HttpVersion;
use masthead_informer::{
    Event, Factory, FactorySettings, HandlerOptions, Index, Informer, Representation,
};
use masthead_reflector::{BoxFuture, Strategy};
use masthead_server::Server;
use masthead_store::{
    CommitError, Committed, Events, Health, MemoryStore, Range, RangePage, ResourceName, Store,
    StoreError, Value, Write,
};

use crate::server::{pod, put, raw_get, serve, serve_from, upstream, version};

/// How often a server was asked for pods, by its own count.
async fn asked_for_pods(server: &Server, verb: &str) -> usize {
    let metrics = raw_get(server.address(), "/metrics", "identity").await;
    let metrics = String::from_utf8(metrics).unwrap();
    let label = format!("apiserver_request_total{{verb=\"{verb}\"");
    let lines = metrics.lines().filter(|it| it.starts_with(&label) && it.contains("\"pods\""));
    lines.map(|it| it.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_handlers_of_one_factory_are_one_list_and_one_watch_at_the_server() {
    for http in [HttpVersion::Http1, HttpVersion::Http2] {
        for (strategy, lists) in [(Strategy::Pages, 1), (Strategy::Streaming, 0)] {
            let (server, _store) = serve(50).await;
            let upstream = upstream(server.address(), http, false).await;
            let settings = FactorySettings { strategy, ..FactorySettings::default() };
            let factory = Factory::with_settings(upstream, settings).unwrap();
            let index = Index::field("node", "spec.nodeName");
            let pods = factory.informer::<Pod>().index(index).build().unwrap();
            let added = [(); 10].map(|()| {
                let handler = |_: Event<Pod>| async {};
                pods.add_handler(&HandlerOptions::default(), handler).unwrap()
            });
            factory.start();
            factory.wait_for_sync().await.unwrap();
            for handle in &added {
                handle.synced().await;
            }
            while server.watches() == 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(asked_for_pods(&server, "list").await, lists, "{strategy:?}");
            assert_eq!(asked_for_pods(&server, "watch").await, 1, "{strategy:?}");
            assert_eq!(server.watches(), 1);
            assert_eq!(pods.lister().by_index("node", "node-3").unwrap().count(), 5);
            factory.stop().await;
            server.shutdown().await;
        }
    }
}

/// Counts the watches that it is asked for.
struct Counted {
    store: MemoryStore,
    watches: AtomicUsize,
}

impl Store for Counted {
    fn current(&self) -> BoxFuture<Result<Revision, StoreError>> {
        self.store.current()
    }

    fn oldest(&self) -> Revision {
        self.store.oldest()
    }

    fn get(
        &self,
        resource: &ResourceName,
        key: &ObjectKey,
    ) -> BoxFuture<Result<Option<Value>, StoreError>> {
        self.store.get(resource, key)
    }

    fn range(&self, range: Range) -> BoxFuture<Result<RangePage, StoreError>> {
        self.store.range(range)
    }

    fn commit(&self, writes: Vec<Write>) -> BoxFuture<Vec<Result<Committed, CommitError>>> {
        self.store.commit(writes)
    }

    fn watch(&self, from: Revision) -> Result<Events, StoreError> {
        self.watches.fetch_add(1, Ordering::Relaxed);
        self.store.watch(from)
    }

    fn compact(&self, before: Revision) -> BoxFuture<Result<Revision, StoreError>> {
        self.store.compact(before)
    }

    fn health(&self) -> Health {
        self.store.health()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_clients_of_one_server_are_one_watch_at_the_store() {
    let store = Arc::new(Counted { store: MemoryStore::new(), watches: AtomicUsize::new(0) });
    put(&store.store, (0..100).map(|n| pod(n, 0))).await;
    let server = serve_from(store.clone()).await;
    let mut clients: Vec<(Factory, Informer<Pod>)> = Vec::new();
    for _ in 0..10 {
        let factory = Factory::new(upstream(server.address(), HttpVersion::Http1, false).await);
        let pods = factory.informer::<Pod>().build().unwrap();
        factory.start();
        factory.wait_for_sync().await.unwrap();
        clients.push((factory, pods));
    }
    put(&store.store, (0..50).map(|n| pod(n, 7))).await;
    let revision = store.current().await.unwrap();
    for (_, pods) in &clients {
        pods.wait_for(revision, Duration::from_secs(60)).await.unwrap();
        assert_eq!(version(&pods.lister().get_str("shop/web-00007").unwrap().decode().unwrap()), 7);
    }
    assert_eq!((server.watches(), store.watches.load(Ordering::Relaxed)), (10, 1));
    for (factory, _) in &clients {
        factory.stop().await;
    }
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_representation_reads_the_same() {
    let (server, store) = serve(300).await;
    let factory = Factory::new(upstream(server.address(), HttpVersion::Http1, false).await);
    let representations = [Representation::Raw, Representation::Typed, Representation::Compact];
    let informers = representations.map(|how| {
        let builder = factory.informer::<Pod>().representation(how);
        builder.index(Index::field("node", "spec.nodeName")).build().unwrap()
    });
    let metadata = factory.metadata(&masthead_core::Resource::pods()).build().unwrap();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    put(&store, (0..50).map(|n| pod(n, 7))).await;
    let revision = store.current().await.unwrap();
    for informer in &informers {
        informer.wait_for(revision, Duration::from_secs(60)).await.unwrap();
        let state = informer.lister();
        assert_eq!((state.len(), state.by_index("node", "node-1").unwrap().count()), (300, 30));
        for entry in state.iter() {
            let pod = entry.decode().unwrap();
            assert_eq!(pod.metadata.name.as_deref(), Some(entry.name()));
            let number: u64 = entry.name()[4..].parse().unwrap();
            assert_eq!(version(&pod), if number < 50 { 7 } else { 0 });
            assert_eq!(entry.label("app"), Some("web"));
        }
    }
    metadata.wait_for(revision, Duration::from_secs(60)).await.unwrap();
    let entry = metadata.lister().get_str("shop/web-00007").unwrap();
    assert_eq!(entry.decode().unwrap().metadata.uid.as_deref(), Some("u7"));
    assert!(!String::from_utf8_lossy(&entry.json().unwrap()).contains("containers"));
    factory.stop().await;
    server.shutdown().await;
}
