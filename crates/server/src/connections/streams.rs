//! The streams of one HTTP/2 connection, in its own task.
//!
//! hyper hands every stream to an executor. As tasks of their own, a stream that has something to say
//! and the connection that writes it would wake each other up across threads, for every part of an
//! answer. Here a poll of the connection polls those of its streams that have something to do, and
//! what they say goes out together; and no client keeps more than one processor busy with one
//! connection.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use hyper::rt::Executor;
use parking_lot::Mutex;

type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where hyper leaves the streams that begin.
#[derive(Clone, Default)]
pub(super) struct Begun(Arc<Mutex<Vec<Stream>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Begun {
    fn execute(&self, stream: F) {
        // One that panics is reset; it is dropped and nobody looks at it again.
        let alone = AssertUnwindSafe(stream).catch_unwind().map(drop);
        self.0.lock().push(Box::pin(alone));
    }
}

/// The streams under way.
pub(super) struct Streams {
    begun: Begun,
    open: FuturesUnordered<Stream>,
    count: u64,
}

impl Streams {
    pub(super) fn new(begun: Begun) -> Self {
        Self { begun, open: FuturesUnordered::new(), count: 0 }
    }

    /// Returns `true` if there are streams that were not polled yet.
    pub(super) fn has_begun(&self) -> bool {
        !self.begun.0.lock().is_empty()
    }

    /// Returns `true` while one of them has not ended.
    pub(super) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Number of streams that have begun so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Polls those that began or were woken up.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        let open = self.open.len();
        self.open.extend(self.begun.0.lock().drain(..));
        self.count += (self.open.len() - open) as u64;
        while let Poll::Ready(Some(())) = self.open.poll_next_unpin(cx) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;
    use tokio::sync::oneshot;

    #[test]
    fn a_stream_that_panics_ends_alone() {
        let (begun, (say, mut said)) = (Begun::default(), oneshot::channel());
        let (go, goes) = oneshot::channel::<()>();
        begun.execute(async { panic!("this one is broken") });
        begun.execute(async {
            goes.await.expect("is told to go on");
            say.send(()).expect("somebody listens");
        });
        let mut streams = Streams::new(begun);
        let mut cx = Context::from_waker(Waker::noop());
        streams.poll(&mut cx);
        assert_eq!(streams.open.len(), 1);
        go.send(()).expect("it is still there");
        streams.poll(&mut cx);
        assert_eq!((said.try_recv(), streams.open.len()), (Ok(()), 0));
    }
}
