//! Where etcd comes from.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Which etcd.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// A current one, built from its Go modules.
    Current,
    /// Debian's 3.4, which does not tell progress reliably.
    Debian34,
}

impl Version {
    /// The program; got or built once for all tests of a target directory.
    pub fn program(self) -> &'static Path {
        static CURRENT: OnceLock<PathBuf> = OnceLock::new();
        static DEBIAN: OnceLock<PathBuf> = OnceLock::new();
        match self {
            Self::Current => CURRENT.get_or_init(|| got("etcd", build)),
            Self::Debian34 => DEBIAN.get_or_init(|| got("etcd-3.4", unpack)),
        }
    }
}

/// A program (or its tree) in the folder of tools, made there if it is missing. Tests of several processes
/// may ask at the same time.
pub(crate) fn got(name: &str, make: fn(&Path)) -> PathBuf {
    let tools = tools();
    fs::create_dir_all(&tools).unwrap();
    let lock = File::create(tools.join(format!("{name}.lock"))).unwrap();
    lock.lock().unwrap();
    let program = tools.join(name);
    if !program.exists() {
        let unfinished = tools.join(format!("{name}.new"));
        make(&unfinished);
        fs::rename(unfinished, &program).unwrap();
    }
    program
}

/// Beside what cargo builds: the program that asks is somewhere below `target/debug`.
fn tools() -> PathBuf {
    let asking = std::env::current_exe().unwrap();
    let is_profile = |folder: &&Path| folder.ends_with("debug") || folder.ends_with("release");
    let profile = asking.ancestors().find(is_profile).expect("cargo has built it");
    profile.with_file_name("tools")
}

fn build(program: &Path) {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("etcd");
    let built = Command::new("go").arg("build").arg("-o").arg(program).current_dir(module).status();
    let built = built.expect("Go on PATH, to build etcd with (https://go.dev/dl)");
    assert!(built.success(), "etcd could not be built: {built}");
}

fn unpack(program: &Path) {
    if let Some(own) = std::env::var_os("MASTHEAD_ETCD_3_4") {
        fs::copy(own, program).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("unpacked");
    crate::debian::unpack("etcd-server", &tree, "name one with MASTHEAD_ETCD_3_4=/path/to/etcd");
    fs::copy(tree.join("usr/bin/etcd"), program).unwrap();
}
