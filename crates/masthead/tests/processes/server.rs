//! A `masthead serve` that ends with the test, pass or fail.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// A server in a process of its own.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    pub(crate) address: SocketAddr,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) token: String,
}

/// The command with nothing of this process's settings.
pub(crate) fn masthead(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_masthead"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MASTHEAD_")) {
        command.env_remove(name);
    }
    command.args(arguments);
    command
}

impl Server {
    /// Starts on a free port and waits until it is ready.
    pub(crate) fn start(directory: &Path, arguments: &[&str]) -> Self {
        Self::start_on(directory, "127.0.0.1:0", arguments)
    }

    pub(crate) fn start_on(directory: &Path, listen: &str, arguments: &[&str]) -> Self {
        let mut command = masthead(&["serve", "--listen", listen, "--data-dir"]);
        command.arg(directory).args(arguments);
        Self::start_with(directory, command)
    }

    /// Starts by a command that becomes the server, and waits until it is ready.
    pub(crate) fn start_with(directory: &Path, mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().map(|line| line.unwrap());
        let Some(first) = first else {
            let status = child.wait().unwrap();
            panic!("the server did not start: {status}");
        };
        let url = first.split_whitespace().nth(2).unwrap().trim_end_matches(',').to_owned();
        let address = url.split_once("://").unwrap().1.parse().unwrap();
        // The rest is for people; it must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let kubeconfig = directory.join("admin.kubeconfig");
        let text = std::fs::read_to_string(&kubeconfig).unwrap();
        let token = text.lines().find_map(|line| line.trim().strip_prefix("token: "));
        let token = token.unwrap().to_owned();
        Self { child, url, address, kubeconfig, token }
    }

    /// A path as the server sees it, which may have file systems of its own.
    pub(crate) fn seen(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.child.id()));
        root.join(path.strip_prefix("/").unwrap())
    }

    /// What it has in memory.
    pub(crate) fn resident_bytes(&self) -> usize {
        let status = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// As when the power goes.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// As an operator stops it.
    pub(crate) fn terminate(self) -> ExitStatus {
        self.stop("TERM")
    }

    /// Sends a signal by its name and waits for the end of the process.
    pub(crate) fn stop(mut self, signal: &str) -> ExitStatus {
        self.signal(signal);
        self.child.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
