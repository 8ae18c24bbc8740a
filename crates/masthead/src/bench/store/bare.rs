//! The floor of every store: one file, one write and one sync for all who wait.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::Context as _;
use bytes::Bytes;
use tokio::sync::oneshot;

/// Appends bytes in groups: while one is synced, the next gathers.
pub(super) struct BareLog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    work: Condvar,
    groups: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    records: Vec<(Bytes, oneshot::Sender<()>)>,
    closed: bool,
}

impl BareLog {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let (file, shared) = (File::create(path)?, Arc::<Shared>::default());
        let worker = shared.clone();
        let thread = Some(thread::spawn(move || worker.write(file)));
        Ok(Self { shared, thread })
    }

    /// Resolves when the record is on disk.
    pub(super) fn append(
        &self,
        record: Bytes,
    ) -> impl Future<Output = anyhow::Result<()>> + Send + use<> {
        let (answer, done) = oneshot::channel();
        self.shared.lock().records.push((record, answer));
        self.shared.work.notify_one();
        async { done.await.context("the disk failed") }
    }

    pub(super) fn groups(&self) -> u64 {
        self.shared.groups.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, mut file: File) -> io::Result<()> {
        let mut buffer = Vec::new();
        while let Some(records) = self.take() {
            buffer.clear();
            for (record, _) in &records {
                buffer.extend_from_slice(record);
            }
            file.write_all(&buffer)?;
            file.sync_data()?;
            self.groups.fetch_add(1, Ordering::Relaxed);
            for (_, answer) in records {
                // Nobody stops waiting here.
                let _ = answer.send(());
            }
        }
        Ok(())
    }

    fn take(&self) -> Option<Vec<(Bytes, oneshot::Sender<()>)>> {
        let waiting = self.work.wait_while(self.lock(), |it| it.records.is_empty() && !it.closed);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        (!waiting.records.is_empty()).then(|| std::mem::take(&mut waiting.records))
    }
}

impl Drop for BareLog {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.take() {
            // A failure was told to those who waited.
            let _ = thread.join();
        }
    }
}
