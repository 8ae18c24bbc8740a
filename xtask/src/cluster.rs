//! `cargo xtask cluster up`: three etcd members, three servers and a balancer, as plain processes.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use masthead_lab::{EtcdCluster, EtcdOptions, Proxy};

use crate::say;

const MEMBERS: usize = 3;
const SERVERS: usize = 3;

/// A server that is ended with the cluster.
struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs until it is interrupted. The first argument after `up` may name a `masthead` to run.
pub(crate) fn up(program: Option<PathBuf>) -> Result<(), String> {
    let program = match program {
        Some(program) => program,
        None => build()?,
    };
    // Before anything is started: an interrupt from here on ends everything in order.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let folder = std::env::temp_dir().join(format!("masthead-cluster-{}", std::process::id()));
    // The tokens of administrators are in there, and everybody may look into the directory above.
    let made = fs::DirBuilder::new().mode(0o700).create(&folder);
    made.map_err(|error| format!("{}: {error}", folder.display()))?;
    say("starting three etcd members (the first time etcd is built, half a minute)");
    let etcd = EtcdCluster::start(MEMBERS, &EtcdOptions::default());
    let endpoints = etcd.endpoints();
    for (number, endpoint) in endpoints.iter().enumerate() {
        say(&format!("  etcd {number}        {endpoint}"));
    }
    let mut servers = Vec::new();
    for number in 0..SERVERS {
        let server = start(&program, &folder, &endpoints, number)?;
        say(&format!("  server {number}      https://127.0.0.1:{}", server.port));
        servers.push(server);
    }
    let balancer = Proxy::to_any(servers.iter().map(|it| it.port).collect());
    let kubeconfig = folder.join("kubeconfig");
    let own = |port: u16| format!("127.0.0.1:{port}");
    let text = fs::read_to_string(folder.join("server-0.kubeconfig"));
    let text = text.map_err(|error| format!("the first server's kubeconfig: {error}"))?;
    let text = text.replace(&own(servers[0].port), &own(balancer.port()));
    fs::write(&kubeconfig, text).map_err(|error| error.to_string())?;
    say(&format!("  balancer      https://127.0.0.1:{}\n", balancer.port()));
    say(&format!("  export KUBECONFIG={}", kubeconfig.display()));
    say("  kubectl get namespaces --watch\n\nKill what you like. Ctrl-C stops all of it.");
    let stopped = runtime.block_on(interrupted());
    drop((servers, balancer, etcd));
    let _ = fs::remove_dir_all(&folder);
    stopped
}

async fn interrupted() -> Result<(), String> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    tokio::select! {
        done = tokio::signal::ctrl_c() => done.map_err(|error| error.to_string()),
        _ = terminate.recv() => Ok(()),
    }
}

fn build() -> Result<PathBuf, String> {
    say("building masthead");
    let built =
        Command::new("cargo").args(["build", "--release", "--package", "masthead"]).status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("masthead could not be built".to_owned());
    }
    // This program is in `target/debug`.
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = own.ancestors().nth(2).ok_or("cargo has built this program")?;
    Ok(target.join("release/masthead"))
}

/// Starts a server and waits until it is ready. All share the credentials of the first.
fn start(
    program: &Path,
    folder: &Path,
    endpoints: &[String],
    number: usize,
) -> Result<Server, String> {
    let kubeconfig = folder.join(format!("server-{number}.kubeconfig"));
    let child = Command::new(program)
        .args(["serve", "--store", "etcd", "--listen", "127.0.0.1:0", "--etcd-endpoints"])
        .arg(endpoints.join(","))
        .arg("--data-dir")
        .arg(folder.join("data"))
        .arg("--write-kubeconfig")
        .arg(kubeconfig)
        // In a group of its own, so that an interrupt reaches it through us.
        .process_group(0)
        .stdout(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|error| format!("{}: {error}", program.display()))?;
    let output = child.stdout.take().ok_or("it has an output")?;
    let mut server = Server { child, port: 0 };
    let mut lines = BufReader::new(output).lines();
    let first = lines.next().and_then(Result::ok).ok_or("a server did not start")?;
    let address = first.split_whitespace().nth(2).unwrap_or_default().trim_end_matches(',');
    let port = address.rsplit(':').next().and_then(|port| port.parse().ok());
    server.port = port.ok_or_else(|| format!("a server said {first:?}"))?;
    // The rest is for people; it must not fill the pipe.
    std::thread::spawn(move || lines.for_each(drop));
    Ok(server)
}
