//! Runs the peers' programs, built on demand from `bench/peers`, and our own client beside them.

use std::collections::HashMap;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::pods;

/// Nanoseconds by the name of what was measured.
pub(super) type Figures = HashMap<String, f64>;

const CLIENT_GO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/peers/client-go");

const KUBE_RS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/peers/kube-rs");

const CONTROLLER_RUNTIME: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/peers/controller-runtime");

const KUBE_APISERVER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/peers/kube-apiserver");

/// The program that syncs with our informers, built on demand from `bench/client`: as small as those of the
/// peers, which hold nothing but their client either.
pub(super) fn ours(
    address: &str,
    token: &str,
    representation: &str,
    listed: &str,
) -> anyhow::Result<Command> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let name = "masthead-bench-client";
    cargo_build(root, &["--package", name])?;
    let mut command = Command::new(root.join("target/release").join(name));
    command.args(["--address", address, "--token", token]);
    command.args(["--representation", representation, "--listed", listed]);
    Ok(command)
}

/// A file of the peers.
pub(super) fn source(path: &str) -> anyhow::Result<String> {
    let peers = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/peers");
    let path = Path::new(peers).join(path);
    std::fs::read_to_string(&path).with_context(|| format!("{} is not there", path.display()))
}

/// Builds the program that uses kube-rs.
pub(super) fn kube_rs() -> anyhow::Result<PathBuf> {
    kube_rs_program("masthead-peer-kube-rs")
}

/// Builds the controller that uses kube-rs.
pub(super) fn kube_rs_controller() -> anyhow::Result<PathBuf> {
    kube_rs_program("controller")
}

fn kube_rs_program(name: &str) -> anyhow::Result<PathBuf> {
    let folder = Path::new(KUBE_RS);
    cargo_build(folder, &[])?;
    Ok(folder.join("target/release").join(name))
}

/// Builds into the folder's own target directory.
fn cargo_build(folder: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let place = folder.display();
    ensure!(folder.exists(), "{place} is not there; run from a checkout");
    let build = Command::new("cargo")
        .args(["build", "--release", "--quiet", "--target-dir", "target"])
        .args(arguments)
        .current_dir(folder)
        .status()
        .context("could not run cargo; install Rust")?;
    ensure!(build.success(), "cargo build failed in {place}");
    Ok(())
}

/// Builds the program that uses client-go.
pub(super) fn client_go_program() -> anyhow::Result<PathBuf> {
    go_program(CLIENT_GO, "client-go")
}

/// Builds the controller that uses controller-runtime.
pub(super) fn controller_runtime() -> anyhow::Result<PathBuf> {
    go_program(CONTROLLER_RUNTIME, "controller-runtime")
}

/// Builds kube-apiserver, with its etcd and the other side of our measurements around it.
pub(super) fn kube_apiserver() -> anyhow::Result<PathBuf> {
    go_program(KUBE_APISERVER, "kube-apiserver")
}

fn go_program(folder: &str, name: &str) -> anyhow::Result<PathBuf> {
    let path = Path::new(folder);
    ensure!(path.exists(), "{folder} is not there; run from a checkout");
    let program = path.join("bin").join(name);
    let build = Command::new("go")
        .args(["build", "-o"])
        .args([&program, Path::new(".")])
        .current_dir(path)
        .status()
        .context("could not run go; install Go 1.26 or newer, or leave --peers out")?;
    ensure!(build.success(), "go build failed in {folder}");
    Ok(program)
}

/// Runs the program that uses client-go, on the same pods.
pub(super) fn client_go(pods: u32, rounds: u32) -> anyhow::Result<Figures> {
    client_go_on(pods, &[format!("-rounds={rounds}")])
}

/// The same program's figures of handlers.
pub(super) fn client_go_handlers(pods: u32, rounds: u32) -> anyhow::Result<Figures> {
    client_go_on(pods, &["-handlers".to_owned(), format!("-rounds={rounds}")])
}

fn client_go_on(pods: u32, arguments: &[String]) -> anyhow::Result<Figures> {
    let mut peer = Command::new(client_go_program()?)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("could not start the peer")?;
    {
        let mut input = BufWriter::new(peer.stdin.take().context("the peer has no input")?);
        for i in 0..pods {
            writeln!(input, "{}", pods::json(i, u64::from(i) + 1, 0))?;
        }
        input.flush()?;
    }
    let output = peer.wait_with_output()?;
    ensure!(output.status.success(), "the peer ended with {}", output.status);
    serde_json::from_slice(&output.stdout).context("the peer's figures are not JSON")
}

/// The same program's figures of the work queue.
pub(super) fn client_go_queue(rounds: u32) -> anyhow::Result<Figures> {
    let output = Command::new(client_go_program()?)
        .args(["-queue", &format!("-rounds={rounds}")])
        .stderr(Stdio::inherit())
        .output()
        .context("could not start the peer")?;
    ensure!(output.status.success(), "the peer ended with {}", output.status);
    serde_json::from_slice(&output.stdout).context("the peer's figures are not JSON")
}
