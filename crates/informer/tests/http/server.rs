//! A server with pods in it.

use std::net::SocketAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use masthead_cache::HistoryLimits;
use masthead_core::{Object, Resource};
use masthead_informer::upstream::{HttpVersion, Settings, Upstream, kube_client};
use masthead_server::{Config, Limits, MASTERS, Security, Server, Tokens, User};
use masthead_store::{Condition, MemoryStore, Store, Write};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const TOKEN: &str = "a-token-for-the-test";

/// Pod number `n`, with text that does not repeat, so that compression has something to do.
pub(crate) fn pod(n: usize, version: u64) -> String {
    let mut state = n as u64 + 1;
    let noise: String = (0..1000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            format!("{:08x}", state >> 32)
        })
        .fold(String::new(), |all, one| all + &one);
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"web-{n:05}","namespace":"shop","uid":"u{n}","resourceVersion":"0","labels":{{"app":"web"}},"annotations":{{"version":"{version}","noise":"{noise}"}}}},"spec":{{"nodeName":"node-{}","containers":[{{"name":"main","image":"registry.example/web:1"}}]}}}}"#,
        n % 10
    )
}

pub(crate) async fn put(store: &MemoryStore, bodies: impl Iterator<Item = String>) {
    let pods = Resource::pods();
    let writes: Vec<_> = bodies
        .map(|body| {
            let object = Object::parse(&pods, body.into()).unwrap();
            Write::put((&pods).into(), object, Condition::Any)
        })
        .collect();
    for group in writes.chunks(100) {
        for result in store.commit(group.to_vec()).await {
            result.unwrap();
        }
    }
}

/// A server in the clear on a free port.
pub(crate) async fn serve(pods: usize) -> (Server, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::new());
    put(&store, (0..pods).map(|n| pod(n, 0))).await;
    (serve_from(store.clone()).await, store)
}

pub(crate) async fn serve_from(store: Arc<dyn Store>) -> Server {
    let mut tokens = Tokens::default();
    tokens.add(TOKEN, User { name: "it".into(), groups: vec![MASTERS.into()] });
    let config = Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        security: Security::InsecureHttp,
        tokens,
        limits: Limits::default(),
        history: HistoryLimits::default(),
        compress_bodies: None,
    };
    let server = Server::start(config, store).await.unwrap();
    server.ready().await;
    server
}

/// What a server answers on a connection of its own, with its head.
pub(crate) async fn raw_get(address: SocketAddr, path: &str, encoding: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\naccept-encoding: {encoding}\r\nauthorization: Bearer {TOKEN}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    answer
}

pub(crate) async fn upstream(address: SocketAddr, http: HttpVersion, gzip: bool) -> Upstream {
    let mut config = kube_client::Config::new(format!("http://{address}").parse().unwrap());
    config.auth_info.token = Some(TOKEN.to_owned().into());
    let settings = Settings {
        http,
        gzip,
        connect_timeout: std::time::Duration::from_secs(1),
        ..Settings::default()
    };
    Upstream::from_config(config, settings).await.unwrap()
}

/// The annotation that says how often a pod was written.
pub(crate) fn version(pod: &Pod) -> u64 {
    pod.metadata.annotations.as_ref().unwrap()["version"].parse().unwrap()
}
