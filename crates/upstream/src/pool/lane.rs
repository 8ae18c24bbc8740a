//! The connections of one purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hyper::client::conn::{http1, http2};
use masthead_reflector::Failure;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::connector::Payload;
use crate::limits::{IDLE_CONNECTIONS_MAX, IDLE_MAX};

/// Connections that can take a request, or soon can.
#[derive(Default)]
pub(super) struct Lane {
    kept: Mutex<Kept>,
    /// Held while a connection is made that others wait for; has the last failure and its time.
    pub(super) door: tokio::sync::Mutex<Option<(Instant, Failure)>>,
    /// Does a connection serve one request at a time? Then nobody waits for another's.
    pub(super) one_each: AtomicBool,
}

#[derive(Default)]
struct Kept {
    idle: Vec<(http1::SendRequest<Payload>, Instant)>,
    shared: Vec<Shared>,
}

/// A place for one request.
pub(super) enum Slot {
    Own(http1::SendRequest<Payload>),
    Stream(Shared),
}

/// An HTTP/2 connection. Whoever uses a stream of it holds a clone of `streams`.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) sender: http2::SendRequest<Payload>,
    streams: Arc<()>,
    streams_max: Arc<AtomicUsize>,
}

impl Shared {
    pub(super) fn new(sender: http2::SendRequest<Payload>, streams_max: Arc<AtomicUsize>) -> Self {
        Self { sender, streams: Arc::new(()), streams_max }
    }

    /// Streams in use. The lane's own clone is none.
    fn used(&self) -> usize {
        Arc::strong_count(&self.streams) - 1
    }

    fn has_room(&self, streams_max: usize) -> bool {
        self.used() < streams_max.min(self.streams_max.load(Ordering::Relaxed)).max(1)
    }
}

/// Holds a connection, or a stream of one, for as long as an answer is being read.
pub(crate) struct Lease(Held);

enum Held {
    Own(http1::SendRequest<Payload>, Arc<Lane>),
    Stream { _stream: Arc<()> },
}

impl Lease {
    pub(super) fn own(sender: http1::SendRequest<Payload>, lane: Arc<Lane>) -> Self {
        Self(Held::Own(sender, lane))
    }

    pub(super) fn stream(shared: &Shared) -> Self {
        Self(Held::Stream { _stream: shared.streams.clone() })
    }

    /// The answer was read to its end: the next request may have the connection.
    pub(crate) fn give_back(self) {
        if let Held::Own(sender, lane) = self.0 {
            lane.keep(sender);
        }
    }
}

impl Lane {
    /// A place on a connection that is there and, as far as is known, alive.
    pub(super) fn take(&self, streams_per_connection: usize) -> Option<Slot> {
        let mut kept = self.kept.lock();
        // One without streams is kept for the next watch; more are let go.
        let mut spare = false;
        kept.shared.retain(|it| {
            let needed = it.used() > 0 || !std::mem::replace(&mut spare, true);
            needed && !it.sender.is_closed()
        });
        if let Some(shared) = kept.shared.iter().find(|it| it.has_room(streams_per_connection)) {
            return Some(Slot::Stream(shared.clone()));
        }
        kept.idle.retain(|(sender, since)| !sender.is_closed() && since.elapsed() < IDLE_MAX);
        kept.idle.pop().map(|(sender, _)| Slot::Own(sender))
    }

    fn keep(&self, sender: http1::SendRequest<Payload>) {
        let mut kept = self.kept.lock();
        if kept.idle.len() < IDLE_CONNECTIONS_MAX {
            kept.idle.push((sender, Instant::now()));
        }
    }

    pub(super) fn share(&self, shared: Shared) {
        self.kept.lock().shared.push(shared);
    }

    pub(super) fn forget(&self, gone: &Shared) {
        self.kept.lock().shared.retain(|it| !Arc::ptr_eq(&it.streams, &gone.streams));
    }

    pub(super) fn retire(&self) {
        *self.kept.lock() = Kept::default();
    }
}
