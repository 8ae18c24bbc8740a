//! Polling an HTTP/2 connection with all its streams.
//!
//! A stream that has something to say wakes up the connection that writes it, and the connection that
//! has written it wakes up the stream. All of them are polled by one task, so such a wake means one
//! more turn and not one more way through the scheduler, which would hand the task to another thread.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use atomic_waker::AtomicWaker;
use tracing::debug;

use super::gathered::Gathered;
use super::streams::{Begun, Streams};
use super::wire::Socket;
use crate::limits::TURNS_MAX;

pub(super) struct Driver<S> {
    streams: Streams,
    sends: Gathered<S>,
    woken: Arc<Woken>,
    waker: Waker,
}

impl<S: Socket> Driver<S> {
    /// A driver of the streams that begin, which sends what is gathered.
    pub(super) fn new(begun: Begun, sends: Gathered<S>) -> Self {
        let woken = Arc::<Woken>::default();
        Self { streams: Streams::new(begun), sends, waker: woken.clone().into(), woken }
    }

    /// Polls a connection and its streams, and sends what each turn has written; ready at the end of
    /// the connection.
    pub(super) fn poll(
        &mut self,
        mut connection: Pin<&mut impl Future<Output = hyper::Result<()>>>,
        cx: &Context<'_>,
    ) -> Poll<()> {
        self.woken.task.register(cx.waker());
        for _ in 0..TURNS_MAX {
            self.woken.begin_turn();
            if let Poll::Ready(ended) = self.turn(connection.as_mut()) {
                if let Err(error) = ended {
                    debug!(%error, "connection ended");
                }
                return Poll::Ready(());
            }
            if !self.woken.end_turn() {
                return Poll::Pending;
            }
        }
        // Others want to be served, too.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Returns `true` while a request is under way.
    pub(super) fn has_streams(&self) -> bool {
        self.streams.has_begun() || self.streams.has_open()
    }

    /// Number of requests that have begun so far.
    pub(super) fn requests(&self) -> u64 {
        self.streams.count()
    }

    fn turn(
        &mut self,
        connection: Pin<&mut impl Future<Output = hyper::Result<()>>>,
    ) -> Poll<Result<(), Box<dyn std::error::Error + Send + Sync>>> {
        let mut cx = Context::from_waker(&self.waker);
        // First, as what they say is written by the connection.
        self.streams.poll(&mut cx);
        let ended = connection.poll(&mut cx);
        if self.streams.has_begun() {
            self.waker.wake_by_ref();
        }
        if let Poll::Ready(Err(error)) = self.sends.poll_send(&mut cx) {
            return Poll::Ready(Err(error.into()));
        }
        ended.map_err(Into::into)
    }
}

/// Says whether somebody was woken during a turn, and wakes the task up between them.
#[derive(Default)]
struct Woken {
    state: AtomicU8,
    task: AtomicWaker,
}

/// Nothing is to be done: a wake is for the task.
const WAITS: u8 = 0;
/// A turn is under way.
const POLLS: u8 = 1;
/// There was a wake since the last turn began.
const WOKEN: u8 = 2;

impl Woken {
    fn begin_turn(&self) {
        self.state.store(POLLS, Ordering::Release);
    }

    /// Ends a turn. Returns `true` if one more is needed.
    fn end_turn(&self) -> bool {
        let (acquire, release) = (Ordering::Acquire, Ordering::AcqRel);
        self.state.compare_exchange(POLLS, WAITS, release, acquire).is_err()
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, Ordering::AcqRel) == WAITS {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_wake_during_a_turn_asks_for_one_more_and_one_between_turns_wakes_the_task_once() {
        let (task, woken) = (Arc::new(Task::default()), Arc::<Woken>::default());
        woken.task.register(&task.clone().into());
        woken.begin_turn();
        woken.wake_by_ref();
        woken.wake_by_ref();
        assert!(woken.end_turn(), "woken during the turn");
        woken.begin_turn();
        assert!(!woken.end_turn(), "nothing came since");
        assert_eq!(task.0.load(Ordering::Relaxed), 0);
        woken.wake_by_ref();
        woken.wake_by_ref();
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
    }
}
