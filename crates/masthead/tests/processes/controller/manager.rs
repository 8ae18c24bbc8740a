//! A manager beside a server: what it says of itself, and how it ends.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use masthead_controller::{Action, Context, Controller, Manager};
use masthead_informer::Factory;
use masthead_informer::upstream::kube_client::Config;
use masthead_informer::upstream::{Settings, Upstream};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::{PATIENCE, SHIPS, ask};
use crate::http::Client;
use crate::server::{Server, masthead};

/// What a manager says of itself; nothing if nobody answers.
fn told(address: SocketAddr, path: &str) -> String {
    let mut answer = String::new();
    if let Ok(mut stream) = TcpStream::connect(address) {
        let head = format!("GET {path} HTTP/1.1\r\nhost: it\r\nconnection: close\r\n\r\n");
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.read_to_string(&mut answer);
    }
    answer
}

#[test]
fn a_manager_says_how_it_is_and_what_it_does() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--insecure-http"]);
    let client = Client { address: server.address, token: server.token.clone() };
    assert_eq!(ask(&client, "POST", SHIPS, &json!({"metadata": {"name": "it"}})).0, 201);
    let mut config = Config::new(format!("http://{}", server.address).parse().unwrap());
    config.auth_info.token = Some(server.token.clone().into());
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let runtime = Runtime::new().unwrap();
    let stop = CancellationToken::new();
    let manager = runtime.block_on(async {
        let upstream = Upstream::from_config(config, Settings::default()).await.unwrap();
        let factory = Factory::new(upstream);
        let maps = Controller::<ConfigMap>::new(&factory, "maps").unwrap();
        let maps = maps.reconcile(async |_: Context<ConfigMap>| Ok(Action::Done));
        Manager::new(&factory).with(maps).listen(address)
    });
    let running = runtime.spawn(manager.run(stop.clone()));
    let deadline = Instant::now() + PATIENCE;
    let done = "controller_runtime_reconcile_total{controller=\"maps\",result=\"success\"} 1";
    while !told(address, "/metrics").contains(done) {
        assert!(Instant::now() < deadline, "{}", told(address, "/metrics"));
        thread::sleep(Duration::from_millis(20));
    }
    assert!(told(address, "/readyz").starts_with("HTTP/1.1 200"));
    assert!(told(address, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(told(address, "/nope").starts_with("HTTP/1.1 404"));
    let metrics = told(address, "/metrics");
    assert!(metrics.contains("content-type: application/openmetrics-text"), "{metrics}");
    for name in ["workqueue_depth", "workqueue_adds_total", "workqueue_queue_duration_seconds"] {
        assert!(metrics.contains(name), "{name} in {metrics}");
    }
    stop.cancel();
    runtime.block_on(running).unwrap().unwrap();
}

/// A controller in a process of its own, which does not outlive the test.
struct Controlling(Child);

impl Drop for Controlling {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_manager_that_is_told_to_stop_comes_to_a_good_end() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--insecure-http", "--store=memory"]);
    let client = Client { address: server.address, token: server.token.clone() };
    for signal in ["TERM", "INT"] {
        let mut command = masthead(&["bench", "controller-child"]);
        command.env("KUBECONFIG", &server.kubeconfig).stdin(Stdio::null());
        let mut controlling = Controlling(command.spawn().unwrap());
        // It runs: a deployment gets its config map.
        let name = format!("told-{}", signal.to_lowercase());
        let labels = json!({"app": name});
        let deployment = json!({"metadata": {"name": name}, "spec": {
            "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "main", "image": "registry.example/main:1"}]}}}});
        let path = "/apis/apps/v1/namespaces/default/deployments";
        assert_eq!(ask(&client, "POST", path, &deployment).0, 201);
        let deadline = Instant::now() + PATIENCE;
        while ask(&client, "GET", &format!("{SHIPS}/{name}"), &Value::Null).0 != 200 {
            assert!(Instant::now() < deadline, "the controller does nothing");
            thread::sleep(Duration::from_millis(20));
        }
        let pid = controlling.0.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        let ended = loop {
            if let Some(ended) = controlling.0.try_wait().unwrap() {
                break ended;
            }
            assert!(Instant::now() < deadline, "it goes on after {signal}");
            thread::sleep(Duration::from_millis(20));
        };
        assert!(ended.success(), "{signal}: {ended}");
    }
}
