//! Gathering what HTTP/2 writes.
//!
//! A DATA frame is 16 KiB, and each would be a write and a flush of its own. Within one poll of the
//! connection they are gathered instead, and go out together when it is over.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use parking_lot::Mutex;

use super::wire::{Socket, Wire};
use crate::limits::GATHERED_BYTES_MAX;

thread_local! {
    /// Room for the connection that is being polled: one a thread, none a connection that waits.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A wire whose writes are gathered. hyper has one end; whoever polls hyper has the other, and sends.
pub(super) struct Gathered<S>(Arc<Mutex<Gathering<S>>>);

struct Gathering<S> {
    wire: Wire<S>,
    held: Vec<u8>,
    /// So much of what is held has been written.
    sent: usize,
    /// Something was written that may not have got as far as the socket.
    unflushed: bool,
}

impl<S: Socket> Gathered<S> {
    /// Both ends.
    pub(super) fn new(wire: Wire<S>) -> (Self, Self) {
        let gathering = Gathering { wire, held: Vec::new(), sent: 0, unflushed: false };
        let ours = Arc::new(Mutex::new(gathering));
        (Self(ours.clone()), Self(ours))
    }

    /// Sends what was gathered, down to the socket.
    pub(super) fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut gathering = self.0.lock();
        ready!(gathering.poll_send(cx))?;
        if gathering.held.capacity() > 0 {
            ROOM.set(std::mem::take(&mut gathering.held));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Socket> Gathering<S> {
    /// Takes as much as there is room for.
    fn hold(&mut self, bytes: &[u8]) -> usize {
        if self.held.capacity() == 0 {
            self.held = ROOM.take();
        }
        let count = bytes.len().min(GATHERED_BYTES_MAX.saturating_sub(self.held.len()));
        self.held.extend_from_slice(&bytes[..count]);
        count
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.held.len() < GATHERED_BYTES_MAX { Poll::Ready(Ok(())) } else { self.poll_send(cx) }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.held.len() {
            let written = Pin::new(&mut self.wire).poll_write(cx, &self.held[self.sent..]);
            let written = ready!(written)?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += written;
            self.unflushed = true;
        }
        self.held.clear();
        self.sent = 0;
        if self.unflushed {
            ready!(Pin::new(&mut self.wire).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Socket> Read for Gathered<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().wire).poll_read(cx, buffer)
    }
}

impl<S: Socket> Write for Gathered<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut gathering = self.0.lock();
        ready!(gathering.poll_room(cx))?;
        Poll::Ready(Ok(slices.iter().map(|slice| gathering.hold(slice)).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Done at once: what is held goes out when the poll is over.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut gathering = self.0.lock();
        ready!(gathering.poll_send(cx))?;
        Pin::new(&mut gathering.wire).poll_shutdown(cx)
    }
}
