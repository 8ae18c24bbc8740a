//! `cargo xtask tidy`: papers, rules and rooms hold together.
//!
//! Reads text only, so it takes a second. What it checks, each in a module of its own: every rule of the
//! contract that is cited exists and is held by a test (`rules`), rooms import only what stands below them
//! (`rooms`), and papers have links that resolve, lines that fit and a place for the next changes (`papers`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

mod papers;
mod rooms;
mod rules;

/// The text files of a tree, by their paths from its root with `/` between.
pub(crate) struct Tree {
    files: Vec<(String, String)>,
}

impl Tree {
    /// The files that git knows in a checkout.
    pub(crate) fn of_checkout(root: &Path) -> io::Result<Self> {
        let listed = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let read = |path: &str| {
            // A file that was removed and not committed yet, and one that is no text, have nothing to check.
            let text = fs::read_to_string(root.join(path)).ok()?;
            Some((path.to_owned(), text))
        };
        Ok(Self { files: listed.lines().filter_map(read).collect() })
    }

    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Self {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        Self { files: files.iter().map(owned).collect() }
    }

    /// The files whose names end so.
    fn ending<'a>(&'a self, end: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let all = self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        all.filter(move |(path, _)| path.ends_with(end))
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|(name, _)| name == path).map(|(_, text)| text.as_str())
    }

    /// Whether there is a file or a folder at a path.
    fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        self.files.iter().any(|(name, _)| name == path || name.starts_with(&folder))
    }
}

/// Everything that is not as it should be, one line each.
pub(crate) fn findings(tree: &Tree) -> Vec<String> {
    [rules::check(tree), rooms::check(tree), papers::check(tree)].concat()
}

/// Checks the checkout that cargo runs this program in.
pub(crate) fn run() -> Result<(), String> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR");
    let manifest = manifest.map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let root: PathBuf =
        manifest.parent().expect("the manifest is in a folder of the checkout").into();
    let tree = Tree::of_checkout(&root).map_err(|error| format!("git cannot be asked: {error}"))?;
    let findings = findings(&tree);
    if findings.is_empty() { Ok(()) } else { Err(findings.join("\n")) }
}
