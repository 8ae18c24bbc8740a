//! What happened to the replicas of a controller, written down by themselves and by the test.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Something that a replica does, or that is done to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) replica: u64,
    /// The how manieth of the replica, if this is about a reconcile.
    pub(super) reconcile: Option<u64>,
    pub(super) event: Event,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Event {
    /// A reconcile, in a term, with a cache that is at this revision.
    Begins { term: i32, key: String, cache: u64 },
    /// It knows what to write, and does so next unless it is held.
    Means,
    /// It writes: nothing was sent before this.
    Acts,
    /// It was told that it wrote.
    Wrote { revision: u64 },
    /// It panics.
    Panics,
    /// It is over, for whatever reason.
    Ends,
    /// Nothing of this replica writes until it is let go.
    Held,
    /// All of its threads are stopped.
    Asleep,
    /// They go on.
    Awake,
    /// It is no more.
    Killed,
}

/// One file of many processes. Each line is appended by one call, so that their order is the order in which
/// things happened, whatever clocks say: there is nothing to be compared but places in the file.
pub(super) struct Record {
    path: PathBuf,
    file: File,
}

impl Record {
    pub(super) fn open(path: &Path) -> Self {
        let file = File::options().create(true).append(true).open(path).unwrap();
        Self { path: path.to_owned(), file }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn note(&self, replica: u64, reconcile: Option<u64>, event: Event) {
        let line = serde_json::to_string(&Line { replica, reconcile, event }).unwrap();
        // Behind a line that was cut, there has to be an end of it.
        (&self.file).write_all(format!("\n{line}\n").as_bytes()).unwrap();
    }

    /// All of it so far. A line that was cut when its process was killed is none: what it says was to be
    /// done after it.
    pub(super) fn lines(&self) -> Vec<Line> {
        let text = fs::read_to_string(&self.path).unwrap();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}
