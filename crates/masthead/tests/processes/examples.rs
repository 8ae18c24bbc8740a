//! The examples of the informer library, run as they are. Only their `main` is left out, which finds the
//! server in the environment.

use masthead_informer::upstream::{Settings, Upstream};
use serde_json::json;

use crate::http::Client;
use crate::server::Server;

#[expect(dead_code, reason = "its main is for those who run it alone")]
#[path = "../../../informer/examples/dynamic.rs"]
mod dynamic;
#[expect(dead_code, reason = "its main is for those who run it alone")]
#[path = "../../../informer/examples/index_by_node.rs"]
mod index_by_node;
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
async fn every_example_runs_to_its_end() {
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
