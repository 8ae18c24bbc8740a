//! Threads that read from disk, so that no task of a runtime waits for it.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use tokio::sync::oneshot;

use super::shared::Shared;
use crate::limits::{READERS, READS_WAITING_MAX};
use crate::{BoxFuture, StoreError};

type Job = Box<dyn FnOnce(&Shared) + Send>;

/// Hands reads to the threads. Ends them when the last one is dropped or when told to.
#[derive(Clone)]
pub(crate) struct Readers {
    jobs: Arc<Mutex<Option<SyncSender<Job>>>>,
}

impl Readers {
    pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<(Self, Vec<JoinHandle<()>>)> {
        let (jobs, receiver) = sync_channel(READS_WAITING_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        let threads = (0..READERS).map(|_| {
            let (shared, receiver) = (shared.clone(), receiver.clone());
            let name = "store-reader".to_owned();
            thread::Builder::new().name(name).spawn(move || work(&shared, &receiver))
        });
        let threads = threads.collect::<Result<_, _>>()?;
        Ok((Self { jobs: Arc::new(Mutex::new(Some(jobs))) }, threads))
    }

    /// Reads something.
    pub(crate) fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Shared) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<Result<T, StoreError>> {
        let (answer, receiver) = oneshot::channel();
        let job: Job = Box::new(move |shared| {
            // Whoever is no longer there does not want to know.
            let _ = answer.send(read(shared));
        });
        let sent = match &*self.jobs.lock() {
            Some(jobs) => jobs.try_send(job).map_err(|error| match error {
                TrySendError::Full(_) => StoreError::Busy,
                TrySendError::Disconnected(_) => StoreError::Closed,
            }),
            None => Err(StoreError::Closed),
        };
        Box::pin(async move {
            sent?;
            receiver.await.map_err(|_| StoreError::Closed)?
        })
    }

    /// No more reads. Those that wait are still done.
    pub(crate) fn close(&self) {
        self.jobs.lock().take();
    }
}

fn work(shared: &Shared, jobs: &Mutex<Receiver<Job>>) {
    loop {
        // The lock is that of the queue's end: one waits in it, the others for it.
        let job = jobs.lock().recv();
        match job {
            Ok(job) => job(shared),
            Err(_) => return,
        }
    }
}
