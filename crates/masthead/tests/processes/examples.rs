//! The examples of the informer library and of controllers, run as they are. Only their `main` is left out,
//! which finds the server in the environment.

use std::time::{Duration, Instant};

use masthead_informer::upstream::kube_client;
use masthead_informer::upstream::kube_client::config::{KubeConfigOptions, Kubeconfig};
use masthead_informer::upstream::{Settings, Upstream};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::http::Client;
use crate::server::Server;

#[expect(dead_code, reason = "its main is for those who run it alone")]
#[path = "../../../informer/examples/dynamic.rs"]
mod dynamic;
#[expect(dead_code, reason = "its main is for those who run it alone")]
#[path = "../../../informer/examples/index_by_node.rs"]
mod index_by_node;
#[expect(dead_code, reason = "its main is for those who run it alone")]
#[path = "../../../controller/examples/leader.rs"]
mod leader;
#[expect(dead_code, reason = "its main is for those who run it alone")]
#[path = "../../../controller/examples/minimal.rs"]
mod minimal;
#[expect(dead_code, reason = "its main is for those who run it alone")]
#[path = "../../../controller/examples/owns.rs"]
mod owns;
#[expect(dead_code, reason = "its main is for those who run it alone")]
#[path = "../../../controller/examples/quarantine.rs"]
mod quarantine;
#[expect(dead_code, reason = "its main is for those who run it alone")]
#[path = "../../../informer/examples/two_handlers.rs"]
mod two_handlers;
#[expect(dead_code, reason = "its main is for those who run it alone")]
#[path = "../../../informer/examples/wait_with_report.rs"]
mod wait_with_report;
#[expect(dead_code, reason = "its main is for those who run it alone")]
#[path = "../../../informer/examples/watch_pods.rs"]
mod watch_pods;

/// A server with a node, six pods and a config map.
fn serve(directory: &std::path::Path) -> Server {
    let server = Server::start(directory, &["--insecure-http", "--store", "memory"]);
    let client = Client { address: server.address, token: server.token.clone() };
    let create = |path: &str, body: serde_json::Value| {
        let (code, answer) = client.ask("POST", path, &body.to_string()).unwrap();
        assert_eq!(code, 201, "{answer}");
    };
    create("/api/v1/nodes", json!({"metadata": {"name": "node-1"}}));
    create("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "it"}}));
    for number in 0..6 {
        let node = if number < 4 { "node-1" } else { "" };
        let body = json!({
            "metadata": {"name": format!("web-{number}"), "labels": {"app": "web"}},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "web"}]},
        });
        create("/api/v1/namespaces/default/pods", body);
    }
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_of_the_informer_runs_to_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path());
    let kubeconfig = Some(server.kubeconfig.as_path());
    let upstream = Upstream::from_kubeconfig(kubeconfig, None, Settings::default()).await.unwrap();
    watch_pods::run(upstream.clone()).await.unwrap();
    index_by_node::run(upstream.clone()).await.unwrap();
    two_handlers::run(upstream.clone()).await.unwrap();
    dynamic::run(upstream.clone(), "cm").await.unwrap();
    let report = wait_with_report::run(upstream).await.unwrap();
    let missing: Vec<_> = report.missing().map(|it| it.resource.as_str()).collect();
    assert_eq!(missing, ["backups.example.com"]);
}

/// Asks until the answer is as it should be.
async fn until(client: &Client, path: &str, right: impl Fn(u16, &Value) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let (code, answer) = client.ask("GET", path, "").unwrap();
        if right(code, &answer) {
            return;
        }
        assert!(Instant::now() < deadline, "{path}: {answer}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_of_a_controller_does_what_it_says() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path());
    let http = Client { address: server.address, token: server.token.clone() };
    let kubeconfig = Some(server.kubeconfig.as_path());
    let upstream = Upstream::from_kubeconfig(kubeconfig, None, Settings::default()).await.unwrap();
    let config = Kubeconfig::read_from(&server.kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube_client::Config::from_custom_kubeconfig(config, &options).await.unwrap();
    let client = kube_client::Client::try_from(config).unwrap();

    let stop = CancellationToken::new();
    let followed = async {
        until(&http, "/statz", |_, it| it["watches"] == 1).await;
        stop.cancel();
    };
    let (ran, ()) = tokio::join!(minimal::run(upstream.clone(), stop.clone()), followed);
    ran.unwrap();

    let maps = "/api/v1/namespaces/default/configmaps";
    let body =
        json!({"metadata": {"name": "much", "labels": {"copies": "2"}}, "data": {"limit": "x"}});
    assert_eq!(http.ask("POST", maps, &body.to_string()).unwrap().0, 201);
    let stop = CancellationToken::new();
    let copied = async {
        until(&http, "/api/v1/namespaces/default/secrets/much-1", |code, _| code == 200).await;
        stop.cancel();
    };
    let (ran, ()) = tokio::join!(owns::run(upstream.clone(), client.clone(), stop.clone()), copied);
    ran.unwrap();

    let stop = CancellationToken::new();
    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/maps";
    let led = async {
        until(&http, lease, |_, it| it["spec"]["holderIdentity"] == "me").await;
        stop.cancel();
    };
    let (ran, ()) = tokio::join!(leader::run(upstream.clone(), client, "me", stop.clone()), led);
    ran.unwrap();
    until(&http, lease, |_, it| it["spec"]["holderIdentity"] == "").await;

    let held = quarantine::run(upstream).await.unwrap();
    assert_eq!(held.iter().map(|it| it.key.as_str()).collect::<Vec<_>>(), ["default/much"]);
}
