//! Against Masthead's own server.

use std::sync::Arc;

use masthead_cache::{Cache, HistoryLimits};
use masthead_core::{Object, Resource, Scope, Selectors};
use masthead_reflector::{Driver, Settings, Strategy};
use masthead_server::{Config, Credentials, Limits, MASTERS, Security, Server, Tokens, User};
use masthead_store::{Condition, MemoryStore, Store, Write};
use masthead_upstream::{HttpVersion, Namespaces, Representation, Upstream};

use crate::script::{run, soon};

const OBJECTS: usize = 2_000;

fn maps() -> Resource {
    Resource::new("", "v1", "configmaps", "ConfigMap", Scope::Namespaced)
}

fn map(number: usize, value: &str) -> String {
    format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"m{number:05}","namespace":"default","resourceVersion":"0","uid":"00000000-0000-4000-8000-{number:012}"}},"data":{{"v":"{value}"}}}}"#
    )
}

async fn put(store: &MemoryStore, bodies: impl Iterator<Item = (String, Condition)>) {
    let writes = bodies.map(|(body, condition)| {
        let object = Object::parse(&maps(), body.into()).unwrap();
        Write::put((&maps()).into(), object, condition)
    });
    let writes: Vec<_> = writes.collect();
    for group in writes.chunks(500) {
        for result in store.commit(group.to_vec()).await {
            result.unwrap();
        }
    }
}

async fn serve(security: Security, tokens: Tokens) -> (Server, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::new());
    put(&store, (0..OBJECTS).map(|number| (map(number, "one"), Condition::Absent))).await;
    let config = Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        security,
        tokens,
        limits: Limits::default(),
        history: HistoryLimits::default(),
        compress_bodies: None,
    };
    let server = Server::start(config, store.clone()).await.unwrap();
    server.ready().await;
    (server, store)
}

/// Follows the config maps of an upstream through a change of each of the first ten.
async fn follow(upstream: &Upstream, store: &MemoryStore, strategy: Strategy, round: usize) {
    let found = upstream.find("cm").await.unwrap();
    let (all, selectors) = (Namespaces::All, Selectors::default());
    let source = upstream.source(&found.resource, &all, &selectors, Representation::Full).unwrap();
    let (writer, cache) = Cache::new(masthead_cache::Config::default());
    let settings = Settings { strategy, ..Settings::default() };
    let driver = Driver::new(source, writer, settings, upstream.memory(), 1);
    let mut report = driver.report();
    let driving = tokio::spawn(driver.run());
    soon(report.wait_for(|it| it.synced)).await.unwrap();
    // `kube-root-ca.crt` and the like are not made here.
    assert_eq!(cache.snapshot().iter().count(), OBJECTS);
    assert_eq!(report.borrow().last_error, None);

    let value = format!("round {round}");
    put(store, (0..10).map(|number| (map(number, &value), Condition::Any))).await;
    let revision = store.current().await.unwrap();
    soon(cache.wait_for(revision)).await;
    let changed = cache.snapshot().get_str("default/m00009").unwrap();
    assert!(str::from_utf8(changed.body()).unwrap().contains(&value));
    driving.abort();
}

#[test]
fn a_server_is_followed_over_both_protocols_with_both_sorts_of_lists() {
    run(async {
        let mut tokens = Tokens::default();
        let user = User { name: "it".into(), groups: vec![MASTERS.into()] };
        tokens.add("a-token-for-the-test", user);
        let (server, store) = serve(Security::InsecureHttp, tokens).await;
        let url = format!("http://{}", server.address());
        let mut config = masthead_upstream::kube_client::Config::new(url.parse().unwrap());
        config.auth_info.token = Some("a-token-for-the-test".to_owned().into());
        let mut round = 0;
        for http in [HttpVersion::Http1, HttpVersion::Http2] {
            for strategy in [Strategy::Pages, Strategy::Streaming] {
                for gzip in [false, true] {
                    let settings = masthead_upstream::Settings { http, gzip, ..Default::default() };
                    let upstream = Upstream::from_config(config.clone(), settings).await.unwrap();
                    follow(&upstream, &store, strategy, round).await;
                    round += 1;
                }
            }
        }
        server.shutdown().await;
    });
}

#[test]
fn a_secure_server_is_followed_with_its_own_kubeconfig() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let credentials = Credentials::load_or_create(directory.path(), &[]).unwrap();
        let mut tokens = Tokens::default();
        let user = User { name: "admin".into(), groups: vec![MASTERS.into()] };
        tokens.add(&credentials.admin_token, user);
        let tls = Security::Tls(credentials.tls(None).unwrap());
        let (server, store) = serve(tls, tokens).await;
        let kubeconfig = directory.path().join("kubeconfig");
        let text =
            credentials.kubeconfig(&format!("https://{}", server.address()), &credentials.trust());
        std::fs::write(&kubeconfig, text).unwrap();
        let settings = masthead_upstream::Settings::default();
        let upstream = Upstream::from_kubeconfig(Some(&kubeconfig), None, settings).await.unwrap();
        for (round, strategy) in [Strategy::Pages, Strategy::Streaming].into_iter().enumerate() {
            follow(&upstream, &store, strategy, round).await;
        }
        let version = upstream.get("/version").await.unwrap();
        assert!(version.windows(12).any(|it| it == b"\"gitVersion\""));

        let (all, selectors) = (Namespaces::All, Selectors::default());
        let source = upstream.source(&maps(), &all, &selectors, Representation::Metadata).unwrap();
        let page = crate::script::listing(&source, crate::script::first_page());
        let page = soon(page).await.unwrap().unwrap();
        assert_eq!((page.objects.len(), page.skipped, page.remaining), (500, 0, Some(1_500)));
        assert!(!str::from_utf8(page.objects[0].body()).unwrap().contains("\"data\":"));
        server.shutdown().await;
    });
}
