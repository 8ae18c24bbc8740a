//! Many who ask, one who is asked.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use masthead_informer::upstream::HttpVersion;
use masthead_informer::{Event, Factory, HandlerOptions, Index, Representation};
use masthead_store::Store;

use crate::server::{pod, put, serve, upstream, version};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_handlers_of_one_factory_are_one_watch_at_the_server() {
    let (server, store) = serve(200).await;
    for http in [HttpVersion::Http1, HttpVersion::Http2] {
        let factory = Factory::new(upstream(server.address(), http, false).await);
        let pods = factory.informer::<Pod>().index(Index::field("node", "spec.nodeName")).build();
        let pods = pods.unwrap();
        let mut added = Vec::new();
        for _ in 0..10 {
            let handler = |_: Event<Pod>| async {};
            added.push(pods.add_handler(&HandlerOptions::default(), handler).unwrap());
        }
        factory.start();
        factory.wait_for_sync().await.unwrap();
        for handle in &added {
            handle.synced().await;
        }
        assert_eq!(server.watches(), 1, "{http:?}");
        assert_eq!(pods.lister().by_index("node", "node-3").unwrap().count(), 20);
        factory.stop().await;
        drop((added, pods, factory));
        while server.watches() > 0 {
            tokio::task::yield_now().await;
        }
    }
    drop(store);
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
        informer.wait_for(revision, Duration::from_secs(20)).await.unwrap();
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
    metadata.wait_for(revision, Duration::from_secs(20)).await.unwrap();
    let entry = metadata.lister().get_str("shop/web-00007").unwrap();
    assert_eq!(entry.decode().unwrap().metadata.uid.as_deref(), Some("u7"));
    assert!(!String::from_utf8_lossy(&entry.json().unwrap()).contains("containers"));
    factory.stop().await;
    server.shutdown().await;
}
