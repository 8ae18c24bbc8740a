//! `masthead sync` and `masthead watch` as processes.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use crate::http::Client;
use crate::server::{Server, masthead};

/// A command that is running; it ends with the test.
pub(crate) struct Follower {
    child: Child,
    /// Lines of standard output, and of standard error.
    pub(crate) output: Receiver<String>,
    pub(crate) errors: Receiver<String>,
}

impl Follower {
    pub(crate) fn start(kubeconfig: &Path, arguments: &[&str]) -> Self {
        let mut command = command(kubeconfig, arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = lines(child.stdout.take().unwrap());
        let errors = lines(child.stderr.take().unwrap());
        Self { child, output, errors }
    }

    /// As Ctrl-C does; the exit code and the rest of the output.
    pub(crate) fn interrupt(mut self) -> (Option<i32>, Vec<String>) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let rest = self.output.iter().collect();
        (self.child.wait().unwrap().code(), rest)
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines() {
            if send.send(line.unwrap()).is_err() {
                return;
            }
        }
    });
    receive
}

/// The command with nothing of this process's settings.
pub(crate) fn command(kubeconfig: &Path, arguments: &[&str]) -> Command {
    let mut command = masthead(arguments);
    command.env("KUBECONFIG", kubeconfig);
    command
}

/// Runs to the end: exit code, standard output, standard error.
pub(crate) fn run(kubeconfig: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command(kubeconfig, arguments).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// The administrator's kubeconfig with something else in it.
pub(crate) fn kubeconfig(server: &Server, from: &str, to: &str) -> PathBuf {
    let text = std::fs::read_to_string(&server.kubeconfig).unwrap();
    assert!(text.contains(from), "{text}");
    let path = server.kubeconfig.with_extension("other");
    std::fs::write(&path, text.replace(from, to)).unwrap();
    path
}

/// The same for another address.
pub(crate) fn kubeconfig_at(server: &Server, address: SocketAddr) -> PathBuf {
    kubeconfig(server, &server.address.to_string(), &address.to_string())
}

pub(crate) fn client(server: &Server) -> Client {
    Client { address: server.address, token: server.token.clone() }
}

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Makes a config map.
pub(crate) fn create(client: &Client, name: &str, content: &str) {
    let body = serde_json::json!({"metadata": {"name": name}, "data": {"it": content}});
    let (code, answer) = client.ask("POST", MAPS, &body.to_string()).unwrap();
    assert_eq!(code, 201, "{answer}");
}
