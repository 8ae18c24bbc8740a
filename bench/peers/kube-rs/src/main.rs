//! Syncs all pods with kube-rs' reflector the way `masthead bench sync` does with ours, and prints one
//! JSON object: seconds on the clock and of processor, bytes resident afterwards and at the most.
//!
//! Arguments: the server's address, a token, `list` or `stream`.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client, Config};

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut argument = || arguments.next().expect("ADDRESS TOKEN list|stream");
    let (address, token, how) = (argument(), argument(), argument());
    let mut config = Config::new(format!("http://{address}").parse().expect("an address"));
    config.auth_info.token = Some(token.into());
    let began = Instant::now();
    let client = Client::try_from(config).expect("a client");
    let api: Api<Pod> = Api::all(client);
    let config = match how.as_str() {
        "stream" => watcher::Config::default().streaming_lists(),
        _ => watcher::Config::default(),
    };
    let (reader, writer) = reflector::store();
    let stream = reflector(writer, watcher(api, config)).default_backoff();
    tokio::spawn(stream.for_each(|_| async {}));
    reader.wait_until_ready().await.expect("the store is there");
    let (wall, processor) = (began.elapsed().as_secs_f64(), processor());
    tokio::time::sleep(Duration::from_secs(3)).await;
    let figures = serde_json::json!({
        "objects": reader.len(), "wall": wall, "processor": processor,
        "resident": status("VmRSS:"), "peak": status("VmHWM:"),
    });
    println!("{figures}");
}

/// Seconds of processor so far: ticks of 10 ms, fields 14 and 15.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a name").split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    (ticks(11) + ticks(12)) / 100.0
}

fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}
