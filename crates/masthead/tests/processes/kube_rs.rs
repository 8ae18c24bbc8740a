//! kube-rs: its watcher in both strategies of the initial list, with 10,000 objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher::{self, Event, watcher};
use masthead_core::{Object, Resource, Scope};
use masthead_store::{Condition, EmbeddedStore, Settings, Store, Write};
use serde_json::json;

use crate::server::Server;

const OBJECTS: usize = 10_000;

/// Puts objects into a store before the server starts.
async fn fill(directory: &std::path::Path) {
    let maps = Resource::new("", "v1", "configmaps", "ConfigMap", Scope::Namespaced);
    let store = EmbeddedStore::open(directory, Settings::default()).unwrap();
    let writes = (0..OBJECTS).map(|number| {
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("m{number:05}"), "namespace": "default", "resourceVersion": "0",
                "uid": format!("00000000-0000-4000-8000-{number:012}")},
            "data": {"n": number.to_string()},
        });
        let object = Object::parse(&maps, body.to_string().into()).unwrap();
        Write::put((&maps).into(), object, Condition::Absent)
    });
    let writes: Vec<_> = writes.collect();
    for group in writes.chunks(500) {
        for result in store.commit(group.to_vec()).await {
            result.unwrap();
        }
    }
}

#[test]
fn the_watcher_of_kube_rs_sees_10_000_objects_and_what_comes_after() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    runtime.block_on(fill(&directory.path().join("store")));
    let server = Arc::new(Server::start(directory.path(), &[]));
    runtime.block_on(async {
        let kubeconfig = Kubeconfig::read_from(&server.kubeconfig).unwrap();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        let client = kube::Client::try_from(config).unwrap();
        let api: Api<ConfigMap> = Api::namespaced(client, "default");
        for (round, config) in
            [watcher::Config::default(), watcher::Config::default().streaming_lists()]
                .into_iter()
                .enumerate()
        {
            let mut events = watcher(api.clone(), config).boxed();
            let mut seen = BTreeSet::new();
            loop {
                match events.try_next().await.unwrap().unwrap() {
                    Event::Init => seen.clear(),
                    Event::InitApply(map) => assert!(seen.insert(map.metadata.name.unwrap())),
                    Event::InitDone => break,
                    other => panic!("{other:?} before the initial list was done"),
                }
            }
            assert_eq!(seen.len(), OBJECTS - round, "strategy {round}");
            let patch = Patch::Merge(json!({"data": {"round": round.to_string()}}));
            api.patch("m00042", &PatchParams::default(), &patch).await.unwrap();
            let Some(Event::Apply(map)) = events.try_next().await.unwrap() else {
                panic!("no event")
            };
            assert_eq!(map.data.unwrap()["round"], round.to_string());
            let last = format!("m{:05}", OBJECTS - 1 - round);
            api.delete(&last, &DeleteParams::default()).await.unwrap();
            let Some(Event::Delete(map)) = events.try_next().await.unwrap() else {
                panic!("no event")
            };
            assert_eq!(map.metadata.name.unwrap(), last);
        }
    });
}
