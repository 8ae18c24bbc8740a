//! The store on disk.
//!
//! A directory holds a **base**, which is the state at the oldest kept revision, in an LSM tree
//! ([fjall](https://docs.rs/fjall)), and a **log** of every change since, in files that are only
//! appended to. Reading at a revision is reading the base with the log's changes up to there laid over
//! it; replaying is reading the log; letting history go is folding the oldest changes into the base.
//! An index of the log is in memory: 200 to 350 bytes a change.
//!
//! A commit writes its group to the log, waits for the disk, and shows it. Nothing else has to be
//! durable for it. Two threads do this: one decides and encodes what comes next while the other waits
//! for the disk; all that is decided by then is the next group.
//!
//! # Why not everything in the tree
//!
//! That was measured first: objects by key and revision and a log by revision in one atomic batch,
//! bodies beside the tree. Creating objects of 4 KB in groups of 64, the batch cost as much as its
//! sync, the sync twice that of a bare file since it competes with flushes, and looking up what is
//! there 5 to 10 µs an object: together a third of what a bare log of the same groups does. The tree
//! writes every body twice while commits wait for it. Here a body is written once, and a second time
//! much later and in the background, if it is still the newest by then. In the same run a bare log
//! with the same writers is 0 to 20 % faster.
//!
//! # What a crash leaves
//!
//! The log's last file may end in a group that nobody was told of; what is whole of it counts, the
//! rest is cut off. A fold is atomic in the base and names its revision; until it is on disk, the
//! log's files stay. So base and log always fit together.
//!
//! # What else may be missing
//!
//! A crash leaves files as they are, but people and tools remove, empty and exchange them. The file `REACHED`
//! names a revision that the log has reached. A log that ends before it, has a gap or does not begin where the
//! base ends is not opened.
//!
//! # A full disk
//!
//! When there is no room for a group, the log is cut back to its last answered end, all that was decided on top
//! of it is refused, and so is everything else until there is room. After a failed sync nothing is known of what
//! the disk has: the store is read-only until a restart.

use std::future::ready;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use masthead_core::{ObjectKey, Revision};

use crate::follow::{History, follow};
use crate::ledger::{self, Slot};
use crate::{
    BoxFuture, CommitError, Committed, Event, Events, Health, Range, RangePage, ResourceName,
    Store, StoreError, Value, Write,
};

mod base;
mod base_files;
mod committer;
mod decider;
mod directory;
mod failure;
mod handover;
mod keeper;
mod log;
mod queue;
mod reached;
mod readers;
mod record;
mod recover;
mod room;
mod settings;
mod shared;
mod window;

#[cfg(test)]
mod tests;

use base::{Base, Expected};
use committer::Committer;
use decider::Decider;
use directory::Directory;
pub use directory::OpenError;
use handover::Handover;
use keeper::{Bell, Keeper};
use log::{Disk, LogWriter, RealDisk};
use queue::Queue;
use reached::{Milestone, Reached};
use readers::Readers;
use recover::{Found, Recovered};
pub use settings::{Clock, Settings};
use shared::Shared;
use window::Window;

/// Keeps everything in a directory of its own.
///
/// Dropping it ends its threads and its watches, and answers the writes that wait; what was answered
/// is on disk.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    keeper: Arc<Bell>,
    readers: Readers,
    threads: Vec<JoinHandle<()>>,
}

impl EmbeddedStore {
    /// Opens the store in a directory, or makes one there if it is empty or absent.
    pub fn open(dir: impl AsRef<Path>, settings: Settings) -> Result<Self, OpenError> {
        Self::open_with(dir.as_ref(), settings, Arc::new(RealDisk))
    }

    /// Groups that were synced since it was opened: writes divided by this are what one sync covers.
    pub fn groups(&self) -> u64 {
        self.shared.groups.load(Ordering::Relaxed)
    }

    fn open_with(dir: &Path, settings: Settings, disk: Arc<dyn Disk>) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io { dir: dir.to_owned(), source };
        let directory = Directory::claim(dir)?;
        room::clean(dir).map_err(io)?;
        let milestone = Milestone::read(dir)?;
        let found = Found::look(&directory)?;
        let (base, mark) = Base::open(&directory, expected(&found, milestone.as_ref()))?;
        let mut window = Window::new(mark.revision, mark.history);
        let Recovered { segments, resumes } =
            recover::recover(&directory, found, milestone.as_ref(), &mut window)?;
        let segments = Arc::new(segments);
        let (base_at, newest) = (window.oldest(), window.current());
        let written = milestone.as_ref();
        let reached = Reached::new(dir, segments.clone(), disk.clone(), written, base_at, newest);
        let reached = Arc::new(reached);
        let bytes = settings.segment_bytes;
        let log = LogWriter::new(segments.clone(), reached.clone(), disk.clone(), bytes, resumes);
        let log = log.map_err(io)?;
        let shared = Shared::new(directory, base, window, segments, reached, settings, disk);
        if let Err(error) = shared.reached.settle() {
            // Reads go on. Writes do when there is room.
            shared.fail_write("noting what the log has reached", &error);
        }
        Self::start(Arc::new(shared), log).map_err(io)
    }

    fn start(shared: Arc<Shared>, log: LogWriter) -> io::Result<Self> {
        let (readers, threads) = Readers::start(&shared)?;
        let (queue, keeper) = (Arc::<Queue>::default(), Arc::<Bell>::default());
        let handover = Arc::<Handover>::default();
        let decider = Decider::new(shared.clone(), queue.clone(), handover.clone());
        let committer = Committer {
            shared: shared.clone(),
            queue: queue.clone(),
            handover,
            log,
            keeper: keeper.clone(),
            refused: None,
        };
        let folding = Keeper { shared: shared.clone(), queue: queue.clone(), bell: keeper.clone() };
        // From here on a failure drops the store, which ends what has been started.
        let mut store = Self { shared, queue, keeper, readers, threads };
        store.spawn("store-decider", move || decider.run())?;
        store.spawn("store-committer", move || committer.run())?;
        store.spawn("store-keeper", move || folding.run())?;
        Ok(store)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads.push(thread::Builder::new().name(name.to_owned()).spawn(work)?);
        Ok(())
    }
}

/// What has to be there of a base.
fn expected(found: &Found, milestone: Option<&Milestone>) -> Expected {
    let log = found.first();
    let reached = milestone.map_or(Revision::ZERO, |milestone| milestone.revision);
    Expected { was_opened: milestone.is_some() || log.is_some(), log, reached }
}

impl Store for EmbeddedStore {
    fn current(&self) -> BoxFuture<Result<Revision, StoreError>> {
        Box::pin(ready(Ok(self.shared.tail.current())))
    }

    fn oldest(&self) -> Revision {
        self.shared.tail.oldest()
    }

    fn get(
        &self,
        resource: &ResourceName,
        key: &ObjectKey,
    ) -> BoxFuture<Result<Option<Value>, StoreError>> {
        let slot = Slot { resource: resource.clone(), key: key.clone() };
        self.readers.read(move |shared| shared.get(&slot))
    }

    fn range(&self, range: Range) -> BoxFuture<Result<RangePage, StoreError>> {
        self.readers.read(move |shared| shared.range(&range))
    }

    fn commit(&self, writes: Vec<Write>) -> BoxFuture<Vec<Result<Committed, CommitError>>> {
        let count = writes.len();
        let all = move |error: CommitError| vec![Err(error); count];
        let submitted = ledger::admit(&writes).and_then(|()| self.queue.submit(writes));
        Box::pin(async move {
            match submitted {
                Ok(answer) => answer.await.unwrap_or_else(|_| all(CommitError::Closed)),
                Err(error) => all(error),
            }
        })
    }

    fn watch(&self, from: Revision) -> Result<Events, StoreError> {
        follow(&self.shared.tail, Log(self.readers.clone()), from)
    }

    fn compact(&self, before: Revision) -> BoxFuture<Result<Revision, StoreError>> {
        let asked = self.keeper.compact(before);
        Box::pin(async move { asked?.await.map_err(|_| StoreError::Closed)? })
    }

    fn health(&self) -> Health {
        self.shared.health()
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.queue.close();
        self.keeper.close();
        self.readers.close();
        self.shared.tail.close();
        for thread in self.threads.drain(..) {
            // One that panicked has said so itself.
            let _ = thread.join();
        }
        if !self.shared.is_broken()
            && let Err(error) = self.shared.reached.settle()
        {
            let error = error.into_source();
            tracing::warn!(%error, "what the log has reached could not be noted at the end");
        }
    }
}

/// The log, for watches that are behind the tail.
struct Log(Readers);

impl History for Log {
    fn read(&self, after: Revision) -> BoxFuture<Result<Vec<Event>, StoreError>> {
        self.0.read(move |shared| shared.events(after))
    }
}

impl std::fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedStore")
            .field("oldest", &self.shared.tail.oldest())
            .field("current", &self.shared.tail.current())
            .field("health", &self.shared.health())
            .finish_non_exhaustive()
    }
}
