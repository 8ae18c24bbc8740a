//! Where a measurement may write.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// A directory of our own, removed at the end.
pub(super) struct Place(PathBuf);

impl Place {
    pub(super) fn new(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join(format!("masthead-bench-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed is where the user said.
        let _ = fs::remove_dir_all(&self.0);
    }
}
