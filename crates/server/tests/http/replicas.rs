//! Several servers on one etcd, and what becomes of their clients.

use std::sync::Arc;
use std::time::Duration;

use masthead_lab::{Etcd, Mode, Proxy};
use masthead_server::{Limits, Server};
use masthead_store::{EtcdSettings, EtcdStore};
use serde_json::json;

use crate::world::{MAPS, Watch, World, names, run, version};

async fn replica(endpoint: String) -> (World, Server) {
    limited(endpoint, Limits::default()).await
}

async fn limited(endpoint: String, limits: Limits) -> (World, Server) {
    let store = EtcdStore::open(EtcdSettings::new([endpoint])).await.unwrap();
    World::on(Arc::new(store), limits).await
}

/// The next event that is no bookmark, in short.
async fn event(watch: &mut Watch) -> String {
    loop {
        let event = watch.short().await;
        if !event.starts_with("BOOKMARK") {
            return event;
        }
    }
}

#[test]
fn w9_a_client_goes_on_at_another_replica_with_the_revision_it_has() {
    run(async {
        let etcd = Etcd::start();
        let (one, first) = replica(etcd.endpoint()).await;
        let (other, second) = replica(etcd.endpoint()).await;
        one.namespace("shop").await;
        let seen = version(&one.set("a", "1").await);
        let next = version(&one.set("b", "1").await);
        let mut watch = other.watch(&format!("{MAPS}?watch=true&resourceVersion={seen}")).await;
        assert_eq!(event(&mut watch).await, format!("ADDED b@{next}"));
        let last = version(&other.set("c", "1").await);
        assert_eq!(event(&mut watch).await, format!("ADDED c@{last}"));
        // What the one has acknowledged, the other shows at once (W6, W7).
        for round in 0..20 {
            let made = version(&one.set("a", &format!("round {round}")).await);
            let got = other.get(&format!("{MAPS}/a")).await.ok();
            assert_eq!(version(&got), made);
            let at_least =
                format!("{MAPS}?resourceVersion={made}&resourceVersionMatch=NotOlderThan");
            assert!(version(&one.get(&at_least).await.ok()) >= made);
        }
        first.shutdown().await;
        second.shutdown().await;
    });
}

#[test]
fn a_replica_that_starts_knows_the_history_that_etcd_has() {
    run(async {
        let etcd = Etcd::start();
        let (one, first) = replica(etcd.endpoint()).await;
        one.namespace("shop").await;
        let seen = version(&one.set("a", "1").await);
        let revisions = [version(&one.set("a", "2").await), version(&one.set("a", "3").await)];
        one.delete(&format!("{MAPS}/a")).await.ok();
        let (other, second) = replica(etcd.endpoint()).await;
        let mut watch = other.watch(&format!("{MAPS}?watch=true&resourceVersion={seen}")).await;
        for revision in revisions {
            assert_eq!(event(&mut watch).await, format!("MODIFIED a@{revision}"));
        }
        assert!(event(&mut watch).await.starts_with("DELETED a@"));
        first.shutdown().await;
        second.shutdown().await;
    });
}

#[test]
fn etcd_has_one_watcher_however_many_clients_watch() {
    run(async {
        let etcd = Etcd::start();
        let (world, server) = replica(etcd.endpoint()).await;
        world.namespace("shop").await;
        let resources = [
            "pods",
            "services",
            "configmaps",
            "secrets",
            "endpoints",
            "serviceaccounts",
            "events",
            "limitranges",
            "resourcequotas",
            "persistentvolumeclaims",
            "replicationcontrollers",
            "podtemplates",
            "nodes",
            "namespaces",
            "persistentvolumes",
        ];
        let apps =
            ["deployments", "replicasets", "statefulsets", "daemonsets", "controllerrevisions"];
        let core = resources.iter().map(|it| format!("/api/v1/{it}"));
        let paths: Vec<_> =
            core.chain(apps.iter().map(|it| format!("/apis/apps/v1/{it}"))).collect();
        assert_eq!(paths.len(), 20);
        let mut watches = Vec::new();
        for number in 0..500 {
            let path = &paths[number % paths.len()];
            watches.push(world.watch(&format!("{path}?watch=true")).await);
        }
        assert_eq!(server.watches(), 500);
        let theirs = etcd.metric("etcd_debugging_mvcc_watcher_total");
        assert!((theirs - 1.0).abs() < 0.5, "{theirs} watchers");
        server.shutdown().await;
    });
}

#[test]
fn an_etcd_that_went_back_ends_all_watches_with_410_and_is_read_anew() {
    run(async {
        let mut etcd = Etcd::start();
        let (world, server) = replica(etcd.endpoint()).await;
        world.namespace("shop").await;
        let kept = version(&world.set("kept", "1").await);
        let backup = etcd.backup();
        for at in 0..10 {
            world.set("lost", &at.to_string()).await;
        }
        let last = version(&world.set("lost", "last").await);
        let mut watch = world.watch(&format!("{MAPS}?watch=true&resourceVersion={last}")).await;
        etcd.restore(backup.path());
        assert_eq!(event(&mut watch).await, "ERROR 410");
        assert!(watch.next().await.is_none());
        world.until("/readyz", |answer| answer.code == 200).await;
        let state = world.get(MAPS).await.ok();
        assert_eq!(names(&state), ["kept"]);
        assert!(version(&state) < last);
        let mut watch = world.watch(&format!("{MAPS}?watch=true&resourceVersion={kept}")).await;
        let made = version(&world.set("new", "1").await);
        assert_eq!(event(&mut watch).await, format!("ADDED new@{made}"));
        // Housekeeping goes on too.
        world.delete("/api/v1/namespaces/shop").await.ok();
        world.until("/api/v1/namespaces/shop", |answer| answer.code == 404).await;
        server.shutdown().await;
    });
}

#[test]
fn an_etcd_that_went_back_while_it_could_not_be_reached_is_noticed_too() {
    run(async {
        let mut etcd = Etcd::start();
        let proxy = Proxy::to(etcd.client_port());
        let (world, server) = replica(proxy.endpoint()).await;
        world.namespace("shop").await;
        world.set("kept", "1").await;
        let backup = etcd.backup();
        world.until("/readyz", |answer| answer.code == 200).await;
        for at in 0..10 {
            world.set("lost", &at.to_string()).await;
        }
        let last = version(&world.set("lost", "last").await);
        let mut watch = world.watch(&format!("{MAPS}?watch=true&resourceVersion={last}")).await;
        proxy.set(Mode::Refuse);
        proxy.cut();
        world.until("/readyz", |answer| answer.code == 503).await;
        etcd.restore(backup.path());
        proxy.set(Mode::Pass);
        assert_eq!(event(&mut watch).await, "ERROR 410");
        world.until("/readyz", |answer| answer.code == 200).await;
        assert_eq!(names(&world.get(MAPS).await.ok()), ["kept"]);
        server.shutdown().await;
    });
}

#[test]
fn a_replica_that_missed_compacted_history_ends_its_watches_with_410_and_catches_up() {
    run(async {
        let etcd = Etcd::start();
        let proxy = Proxy::to(etcd.client_port());
        let (world, server) = replica(proxy.endpoint()).await;
        let (direct, other) = replica(etcd.endpoint()).await;
        direct.namespace("shop").await;
        let seen = version(&direct.set("gone", "1").await);
        let mut watch = world.watch(&format!("{MAPS}?watch=true&resourceVersion={seen}")).await;
        proxy.set(Mode::Refuse);
        proxy.cut();
        direct.set("new", "1").await;
        direct.delete(&format!("{MAPS}/gone")).await.ok();
        let current = direct.store.current().await.unwrap();
        direct.store.compact(current).await.unwrap();
        proxy.set(Mode::Pass);
        assert_eq!(event(&mut watch).await, "ERROR 410");
        world.until("/readyz", |answer| answer.code == 200).await;
        let list = world.get(MAPS).await.ok();
        assert_eq!(names(&list), ["new"]);
        let from = version(&list);
        let mut watch = world.watch(&format!("{MAPS}?watch=true&resourceVersion={from}")).await;
        let made = version(&direct.set("later", "1").await);
        assert_eq!(event(&mut watch).await, format!("ADDED later@{made}"));
        server.shutdown().await;
        other.shutdown().await;
    });
}

#[test]
fn events_go_when_their_time_is_over_and_other_objects_stay() {
    run(async {
        let etcd = Etcd::start();
        let limits = Limits { event_ttl: Duration::from_secs(1), ..Limits::default() };
        let (world, server) = limited(etcd.endpoint(), limits).await;
        world.namespace("shop").await;
        world.set("kept", "1").await;
        for group in ["/api/v1", "/apis/events.k8s.io/v1"] {
            let path = format!("{group}/namespaces/shop/events");
            let made =
                version(&world.post(&path, &json!({"metadata": {"name": "short"}})).await.ok());
            let mut watch = world.watch(&format!("{path}?watch=true&resourceVersion={made}")).await;
            assert!(event(&mut watch).await.starts_with("DELETED short@"));
        }
        assert_eq!(names(&world.get(MAPS).await.ok()), ["kept"]);
        server.shutdown().await;
    });
}

#[test]
fn a_replica_is_not_ready_while_it_cannot_reach_etcd() {
    run(async {
        let etcd = Etcd::start();
        let proxy = Proxy::to(etcd.client_port());
        let (world, server) = replica(proxy.endpoint()).await;
        assert_eq!(world.get("/readyz").await.code, 200);
        proxy.set(Mode::Refuse);
        proxy.cut();
        world.until("/readyz", |answer| answer.code == 503).await;
        let text = world.get("/readyz").await.text();
        assert!(text.contains("[-]store failed"), "{text}");
        assert_eq!(world.get("/livez").await.code, 200, "a restart would not help");
        proxy.set(Mode::Pass);
        world.until("/readyz", |answer| answer.code == 200).await;
        server.shutdown().await;
    });
}

#[test]
fn a_stopping_replica_ends_its_watches_one_after_the_other_with_a_last_bookmark() {
    run(async {
        let etcd = Etcd::start();
        let handover = Duration::from_secs(1);
        let (world, server) =
            limited(etcd.endpoint(), Limits { handover, ..Limits::default() }).await;
        world.namespace("shop").await;
        let last = version(&world.set("a", "1").await);
        let path = format!("{MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={last}");
        let mut watches = Vec::new();
        for _ in 0..100 {
            watches.push(world.watch(&path).await);
        }
        let began = tokio::time::Instant::now();
        let stopping = tokio::spawn(server.shutdown());
        let ends: Vec<_> = watches
            .into_iter()
            .map(|mut watch| {
                tokio::spawn(async move {
                    let mut bookmark = String::new();
                    while let Some(event) = watch.next().await {
                        bookmark = event["object"]["metadata"]["resourceVersion"].to_string();
                    }
                    (began.elapsed(), bookmark)
                })
            })
            .collect();
        let mut times = Vec::new();
        for end in ends {
            let (time, bookmark) = end.await.unwrap();
            assert_eq!(bookmark, json!(last.to_string()).to_string());
            times.push(time);
        }
        times.sort();
        assert!(times[99] > times[0] + handover / 2, "{:?} … {:?}", times[0], times[99]);
        stopping.await.unwrap();
    });
}
