//! Where valgrind comes from.

use std::path::Path;
use std::process::Command;

use crate::{debian, program};

/// Valgrind, ready for its arguments: the one on PATH, else Debian's, got once for a target directory.
pub fn valgrind() -> Command {
    let installed = Command::new("valgrind").arg("--version").output();
    if installed.is_ok_and(|output| output.status.success()) {
        return Command::new("valgrind");
    }
    let tree = program::got("valgrind", unpack);
    let mut command = Command::new(tree.join("usr/bin/valgrind"));
    // It looks for its tools where it would have been installed.
    command.env("VALGRIND_LIB", tree.join("usr/libexec/valgrind"));
    command
}

fn unpack(into: &Path) {
    debian::unpack("valgrind", into, "put valgrind on PATH");
}
