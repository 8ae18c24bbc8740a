//! Where a measurement may write.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context as _;

/// How many there have been: their names.
static PLACES: AtomicU32 = AtomicU32::new(0);

/// A directory of our own, removed at the end.
pub(super) struct Place(PathBuf);

impl Place {
    pub(super) fn new(dir: &Path) -> anyhow::Result<Self> {
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!("masthead-bench-{}-{number}", std::process::id()));
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
