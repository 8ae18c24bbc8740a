//! One etcd member as a process.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::ports::free_port;
use crate::program::Version;

/// How long a program may take to answer on a machine that has much to do.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often somebody else may take a port first.
const PORT_TRIES: usize = 5;

/// What an etcd is started with, besides where it listens.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// Which etcd.
    pub version: Version,
    /// Bytes that it takes before it raises an alarm; none for its own default.
    pub quota_bytes: Option<u64>,
    /// Certificate, key and authority; clients have to show a certificate too.
    pub tls: Option<[PathBuf; 3]>,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self { version: Version::Current, quota_bytes: None, tls: None }
    }
}

/// An etcd that is killed when it is dropped.
#[derive(Debug)]
pub struct Etcd {
    options: EtcdOptions,
    name: String,
    client_port: u16,
    peer_port: u16,
    /// `name=url` of all members.
    peers: String,
    folder: TempDir,
    child: Option<Child>,
}

impl Etcd {
    /// A cluster of one.
    pub fn start() -> Self {
        Self::start_with(&EtcdOptions::default())
    }

    /// The same with options.
    pub fn start_with(options: &EtcdOptions) -> Self {
        for _ in 0..PORT_TRIES {
            let mut etcd = Self::new("one", options.clone(), free_port());
            etcd.peers = etcd.peer();
            etcd.spawn();
            if etcd.wait() {
                return etcd;
            }
        }
        panic!("etcd does not start");
    }

    pub(crate) fn new(name: &str, options: EtcdOptions, client_port: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (name, peers, peer_port) = (name.to_owned(), String::new(), free_port());
        Self { options, name, client_port, peer_port, peers, folder, child: None }
    }

    /// How its peers are told of it.
    pub(crate) fn peer(&self) -> String {
        format!("{}=http://127.0.0.1:{}", self.name, self.peer_port)
    }

    pub(crate) fn set_peers(&mut self, peers: &str) {
        peers.clone_into(&mut self.peers);
    }

    /// Where clients find it.
    pub fn endpoint(&self) -> String {
        let scheme = if self.options.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.client_port)
    }

    /// The port that clients connect to.
    pub fn client_port(&self) -> u16 {
        self.client_port
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// The end of what it has written to its log.
    pub fn log(&self) -> String {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(20).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Starts the process.
    pub fn spawn(&mut self) {
        let local = |port: u16| format!("http://127.0.0.1:{port}");
        let quick = if self.peers.contains(',') { ["50", "500"] } else { ["10", "100"] };
        let log = File::create(self.folder.path().join("log")).unwrap();
        let mut command = Command::new(self.options.version.program());
        command
            .args(["--name", &self.name])
            .arg("--data-dir")
            .arg(self.data())
            .args(["--listen-client-urls", &self.endpoint()])
            .args(["--advertise-client-urls", &self.endpoint()])
            .args(["--listen-peer-urls", &local(self.peer_port)])
            .args(["--initial-advertise-peer-urls", &local(self.peer_port)])
            .args(["--initial-cluster", &self.peers])
            .args(["--heartbeat-interval", quick[0], "--election-timeout", quick[1]])
            .args(["--log-level", "warn"]);
        if let Some(bytes) = self.options.quota_bytes {
            command.args(["--quota-backend-bytes", &bytes.to_string()]);
        }
        if let Some([certificate, key, authority]) = &self.options.tls {
            command.arg("--cert-file").arg(certificate).arg("--key-file").arg(key);
            command.arg("--trusted-ca-file").arg(authority).arg("--client-cert-auth");
        }
        let output = log.try_clone().unwrap();
        let child = command.stdin(Stdio::null()).stdout(output).stderr(log).spawn();
        self.child = Some(child.expect("etcd can be run"));
    }

    /// Where it keeps its data.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Waits until it listens; false if it ended instead.
    pub(crate) fn wait(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
        while !self.is_healthy() {
            let child = self.child.as_mut().expect("it was started");
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(Instant::now() < until, "etcd is not ready: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Waits until it answers.
    pub fn wait_healthy(&mut self) {
        assert!(self.wait(), "etcd ended: {}", self.log());
    }

    /// Of one with TLS only that it listens can be seen from here.
    fn is_healthy(&self) -> bool {
        if self.options.tls.is_some() {
            return TcpStream::connect(("127.0.0.1", self.client_port)).is_ok();
        }
        // Out of space it is not healthy by its own word, and answers all the same.
        let is_up = |body: String| body.contains("true") || body.contains("ALARM");
        get(self.client_port, "/health").is_some_and(is_up)
    }

    /// The sum of a metric of this name, over its labels.
    pub fn metric(&self, name: &str) -> f64 {
        let text = get(self.client_port, "/metrics").expect("etcd tells its metrics");
        let values = text.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let (labels, value) = rest.rsplit_once(' ')?;
            let whole = labels.is_empty() || labels.starts_with('{');
            whole.then(|| value.parse::<f64>().ok()).flatten()
        });
        values.sum()
    }

    /// kill -9.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// SIGSTOP: it stays where it is and says nothing.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("is a pid");
        kill_process(pid, signal).unwrap();
    }

    /// Starts it again with as much room as it wants.
    pub fn restart_without_quota(&mut self) {
        self.options.quota_bytes = None;
        self.restart();
    }

    /// Takes back the alarms of all members, as `etcdctl alarm disarm` does.
    pub fn disarm(&self) {
        let alarms = self.post("/v3/maintenance/alarm", r#"{"action":"GET"}"#);
        let members = alarms.split(r#""memberID":""#).skip(1).filter_map(|it| it.split('"').next());
        let members: Vec<_> = members.collect();
        assert!(!members.is_empty(), "no alarm: {alarms}");
        for member in members {
            let body =
                format!(r#"{{"action":"DEACTIVATE","memberID":"{member}","alarm":"NOSPACE"}}"#);
            self.post("/v3/maintenance/alarm", &body);
        }
    }

    /// Calls a method of etcd's API over its JSON gateway.
    pub fn post(&self, path: &str, body: &str) -> String {
        let length = body.len();
        let head = format!("POST {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {length}");
        exchange(self.client_port, &format!("{head}\r\n\r\n{body}")).expect("etcd answers")
    }

    /// Starts it again where it was, and waits until it answers.
    pub fn restart(&mut self) {
        self.kill();
        self.spawn();
        self.wait_healthy();
    }

    /// Puts other data in the place of its own while it is down, as a restored backup does.
    pub fn restore(&mut self, data: &Path) {
        self.kill();
        std::fs::remove_dir_all(self.data()).unwrap();
        copy(data, &self.data());
        self.spawn();
        self.wait_healthy();
    }

    /// A copy of its data, taken while it is down.
    pub fn backup(&mut self) -> TempDir {
        self.kill();
        let folder = tempfile::tempdir().unwrap();
        copy(&self.data(), folder.path());
        self.spawn();
        self.wait_healthy();
        folder
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The body of a page over plain HTTP; none if nobody answers.
fn get(port: u16, path: &str) -> Option<String> {
    exchange(port, &format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n"))
}

fn exchange(port: u16, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}
