//! Where lists and watches come from.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use parking_lot::Mutex;

use crate::{Failure, ListRequest, Page, WatchItem, WatchRequest};

/// A future on the heap.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The events of a watch, in batches. Its end is the end of the stream; an error is its last item.
pub type Events = Pin<Box<dyn Stream<Item = Result<Vec<WatchItem>, Failure>> + Send>>;

/// Answers requests for one resource.
///
/// Dropping a future or a stream cancels the request. Implementations report every byte that
/// arrives to the meter, since the deadline is on progress and not on the whole (R4), and have no
/// opinion of their own about retries. One that panics fails the request, which is logged and tried again.
pub trait Source: Send + Sync {
    /// One page of a list.
    fn list(&self, request: ListRequest, meter: Meter) -> BoxFuture<Result<Page, Failure>>;

    /// A watch. The future resolves when the server has accepted it.
    fn watch(&self, request: WatchRequest, meter: Meter) -> BoxFuture<Result<Events, Failure>>;
}

impl<S: Source + ?Sized> Source for Arc<S> {
    fn list(&self, request: ListRequest, meter: Meter) -> BoxFuture<Result<Page, Failure>> {
        (**self).list(request, meter)
    }

    fn watch(&self, request: WatchRequest, meter: Meter) -> BoxFuture<Result<Events, Failure>> {
        (**self).watch(request, meter)
    }
}

/// Counts the bytes of one request as they arrive.
#[derive(Clone, Default, Debug)]
pub struct Meter(Arc<Mutex<Reading>>);

#[derive(Default, Debug)]
struct Reading {
    bytes: u64,
    waker: Option<Waker>,
}

impl Meter {
    /// So many bytes have arrived.
    pub fn add(&self, bytes: u64) {
        let waker = {
            let mut reading = self.0.lock();
            reading.bytes += bytes;
            reading.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Bytes since the last call, without waiting for any.
    pub(crate) fn take(&self) -> u64 {
        std::mem::take(&mut self.0.lock().bytes)
    }

    /// Bytes since the last call.
    pub(crate) fn poll_bytes(&self, cx: &Context<'_>) -> Poll<u64> {
        let mut reading = self.0.lock();
        match std::mem::take(&mut reading.bytes) {
            0 => {
                reading.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            bytes => Poll::Ready(bytes),
        }
    }
}
