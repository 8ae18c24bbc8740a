//! Gathering what HTTP/2 writes.
//!
//! A DATA frame is 16 KiB, and each would be a write and a flush of its own. Within one poll of the
//! connection they are gathered instead, and go out together when it is over. What the frames are
//! made of is not copied for that: slices of an answer are held as what they are slices of.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use hyper::rt::{Read, ReadBufCursor, Write};
use parking_lot::Mutex;

use super::wire::{Socket, Wire};
use crate::body::{Slices, with_pieces};
use crate::limits::{
    COPIED_BYTES, GATHERED_BYTES_MAX, HELD_SLICE_BYTES_MIN, UNSENT_BYTES_MAX, UNSENT_LIST_BYTES_MAX,
};

thread_local! {
    /// Room for the connection that is being polled: one a thread, none a connection that waits.
    static ROOM: RefCell<Room> = RefCell::default();
}

/// A wire whose writes are gathered. hyper has one end; whoever polls hyper has the other, and sends.
pub(super) struct Gathered<S>(Arc<Mutex<Gathering<S>>>);

struct Gathering<S> {
    wire: Wire<S>,
    room: Room,
    /// Bytes since everything was sent last.
    gathered: usize,
    /// The kernel takes much at a time.
    wide: bool,
}

/// What was written and is not sent yet.
#[derive(Default)]
struct Room {
    out: Slices,
    /// Copies of what nothing else holds; they follow what is to go out.
    copied: BytesMut,
}

impl Room {
    fn is_new(&self) -> bool {
        self.out.capacity() == 0 && self.copied.capacity() == 0
    }

    fn copy(&mut self, bytes: &[u8]) {
        self.copied.extend_from_slice(bytes);
    }

    fn hold(&mut self, piece: Bytes) {
        self.close();
        self.out.push(piece);
    }

    /// Everything in its order.
    fn close(&mut self) -> &mut Slices {
        if !self.copied.is_empty() {
            self.out.push(self.copied.split().freeze());
        }
        &mut self.out
    }
}

impl<S: Socket> Gathered<S> {
    /// Both ends.
    pub(super) fn new(wire: Wire<S>) -> (Self, Self) {
        let gathering = Gathering { wire, room: Room::default(), gathered: 0, wide: false };
        let ours = Arc::new(Mutex::new(gathering));
        (Self(ours.clone()), Self(ours))
    }

    /// Sends what was gathered, down to the socket.
    pub(super) fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut gathering = self.0.lock();
        ready!(gathering.poll_send(cx))?;
        if !gathering.room.is_new() {
            ROOM.set(std::mem::take(&mut gathering.room));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Socket> Gathering<S> {
    /// Takes all of it, which is a frame at the most: so what is held may pass its bound by one.
    fn take(&mut self, slices: &[io::IoSlice<'_>]) -> usize {
        if self.room.is_new() {
            self.room = ROOM.take();
            self.room.copied.reserve(COPIED_BYTES);
        }
        let mut taken = 0;
        with_pieces(slices, |slice, piece| {
            taken += slice.len();
            match piece {
                Some(mut piece) if slice.len() >= HELD_SLICE_BYTES_MIN => {
                    piece.truncate(slice.len());
                    self.room.hold(piece);
                }
                _ => self.room.copy(slice),
            }
        });
        self.gathered += taken;
        taken
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.gathered < GATHERED_BYTES_MAX { Poll::Ready(Ok(())) } else { self.poll_send(cx) }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.gathered == 0 {
            return Poll::Ready(Ok(()));
        }
        self.widen();
        ready!(self.wire.poll_send(cx, self.room.close()))?;
        self.gathered = 0;
        Poll::Ready(Ok(()))
    }

    /// Lets the kernel have more of a large list at a time, and less again after it.
    fn widen(&mut self) {
        let wide = self.gathered > UNSENT_BYTES_MAX as usize;
        if wide != self.wide {
            self.wire.set_unsent_max(if wide { UNSENT_LIST_BYTES_MAX } else { UNSENT_BYTES_MAX });
            self.wide = wide;
        }
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
        Poll::Ready(Ok(gathering.take(slices)))
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
