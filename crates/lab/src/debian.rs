//! Programs out of Debian's packages, without installing them.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Unpacks a package into a folder that is made for it. Panics with `otherwise`, which says what else helps,
/// if it cannot be had.
pub(crate) fn unpack(package: &str, into: &Path, otherwise: &str) {
    let folder = tempfile::tempdir().unwrap();
    let run = |command: &mut Command| {
        let done = command.current_dir(folder.path()).output();
        done.is_ok_and(|output| output.status.success())
    };
    let download = || run(Command::new("apt-get").args(["download", package]));
    let loaded = download() || {
        run(Command::new("apt-get").args(["update", "--quiet"]));
        download()
    };
    assert!(
        loaded,
        "{package} could not be got from Debian (apt-get download {package}): {otherwise}"
    );
    let file = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let into = std::path::absolute(into).unwrap();
    assert!(
        run(Command::new("dpkg-deb").arg("-x").arg(file).arg(into)),
        "{package} could not be unpacked"
    );
}
