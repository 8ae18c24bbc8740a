//! The Python client.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::server::Server;

/// The release that is tested against.
const CLIENT: &str = "kubernetes==36.0.3";

/// A Python with the client, made once below the target directory.
fn python() -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("python-{CLIENT}"));
    let python = home.join("bin/python");
    let marker = home.join("installed");
    if !marker.exists() {
        let run = |command: &mut Command, what: &str| {
            let output = command.output().unwrap_or_else(|error| panic!("{what}: {error}"));
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{what}: {error}");
        };
        let what = "python3 with venv is needed (apt install python3-venv)";
        run(Command::new("python3").args(["-m", "venv"]).arg(&home), what);
        let what = "the Python client is installed from PyPI";
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet", CLIENT]), what);
        std::fs::write(marker, CLIENT).unwrap();
    }
    python
}

#[test]
fn the_python_client_lists_pages_watches_and_resumes() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/processes/client.py");
    let output = Command::new(python()).arg(script).arg(&server.kubeconfig).output().unwrap();
    let (out, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{error}");
    assert_eq!(out.trim(), "all is well");
}
