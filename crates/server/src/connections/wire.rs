//! A client's byte stream, as both hyper and the sending of long answers use it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::body::Slices;
use crate::flights::Connection;
use crate::limits::{READ_AHEAD_MAX, SLICES_PER_WRITE};

/// What a client that speaks HTTP/2 without being asked says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Slices that most writes of a watch have at most: no room for more is made for these.
const FEW: usize = 16;

/// A stream to a client.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Ready if something has arrived since the last read found nothing.
    fn poll_arrived(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    fn tcp(&self) -> &TcpStream;
}

/// A connection in the clear, or what lies under TLS. A single slice is written as one, whoever hands
/// it over: the kernel has less to look at.
pub(super) struct Tcp(pub(super) TcpStream);

impl AsyncRead for Tcp {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match slices {
            [one] => Pin::new(&mut self.0).poll_write(cx, one),
            _ => Pin::new(&mut self.0).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl Socket for Tcp {
    fn poll_arrived(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read_ready(cx)
    }

    fn tcp(&self) -> &TcpStream {
        &self.0
    }
}

impl Socket for Box<TlsStream<Tcp>> {
    /// Asks the socket: looking for a record costs more than finding that there is none.
    fn poll_arrived(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tcp().poll_read_ready(cx)
    }

    fn tcp(&self) -> &TcpStream {
        &self.get_ref().0.0
    }
}

/// Notes when bytes go out, so that a client that does not read is told from one that is slow, and
/// keeps what was read too early.
pub(super) struct Wire<S> {
    io: TokioIo<S>,
    /// Read and not looked at yet.
    ahead: Vec<u8>,
    /// The last read found nothing.
    drained: bool,
    connection: Arc<Connection>,
}

impl<S: Socket> Wire<S> {
    pub(super) fn new(stream: S, connection: Arc<Connection>) -> Self {
        Self { io: TokioIo::new(stream), ahead: Vec::new(), drained: false, connection }
    }

    /// Looks at the first bytes; they are read again by whoever is next.
    pub(super) async fn speaks_http2(&mut self) -> io::Result<bool> {
        let (mut head, mut length) = ([0; PREFACE.len()], 0);
        while length < head.len() {
            let count = self.io.inner_mut().read(&mut head[length..]).await?;
            length += count;
            if count == 0 || head[..length] != PREFACE[..length] {
                break;
            }
        }
        self.ahead.extend_from_slice(&head[..length]);
        Ok(head == PREFACE)
    }

    /// Puts back what somebody has read and does not need.
    pub(super) fn put_back(&mut self, bytes: &[u8]) {
        self.ahead.splice(..0, bytes.iter().copied());
    }

    /// How much the kernel takes before the client has room for it.
    pub(super) fn set_unsent_max(&self, bytes: u32) {
        // Where the kernel does not know this, it takes what it takes.
        let _ = SockRef::from(self.io.inner().tcp()).set_tcp_notsent_lowat(bytes);
    }

    /// Writes everything, down to the socket.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Slices,
    ) -> Poll<io::Result<()>> {
        while out.has_remaining() {
            let written = match out.count() {
                // As when many watches share it: no list of slices is made for it.
                1 => Pin::new(self.io.inner_mut()).poll_write(cx, out.chunk()),
                2..=FEW => self.poll_write_some::<FEW>(cx, out),
                _ => self.poll_write_some::<SLICES_PER_WRITE>(cx, out),
            };
            let written = ready!(written)?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            out.advance(written);
            // Of one that wrote all there was nobody asks when that was.
            if out.has_remaining() {
                self.connection.note_write();
            }
        }
        Pin::new(self.io.inner_mut()).poll_flush(cx)
    }

    fn poll_write_some<const N: usize>(
        &mut self,
        cx: &mut Context<'_>,
        out: &Slices,
    ) -> Poll<io::Result<usize>> {
        let mut slices = [io::IoSlice::new(&[]); N];
        let count = out.io_slices(&mut slices);
        Pin::new(self.io.inner_mut()).poll_write_vectored(cx, &slices[..count])
    }

    /// Tells the client that nothing more will come.
    pub(super) async fn close(&mut self) -> io::Result<()> {
        self.io.inner_mut().shutdown().await
    }

    /// Resolves when the client has gone. What it sends is kept for later, within bounds.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        while self.ahead.len() < READ_AHEAD_MAX {
            if self.drained && ready!(self.io.inner().poll_arrived(cx)).is_err() {
                return Poll::Ready(io::ErrorKind::BrokenPipe.into());
            }
            let mut room = [0; 512];
            let mut buffer = ReadBuf::new(&mut room);
            let read = Pin::new(self.io.inner_mut()).poll_read(cx, &mut buffer);
            self.drained = read.is_pending();
            match ready!(read) {
                Err(error) => return Poll::Ready(error),
                Ok(()) if buffer.filled().is_empty() => {
                    return Poll::Ready(io::ErrorKind::UnexpectedEof.into());
                }
                Ok(()) => self.ahead.extend_from_slice(buffer.filled()),
            }
        }
        Poll::Pending
    }

    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.connection.note_blocked(written.is_pending());
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.connection.note_write();
        }
        written
    }
}

impl<S: Socket> Read for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.drained = false;
        if self.ahead.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buffer);
        }
        let count = self.ahead.len().min(buffer.remaining());
        buffer.put_slice(&self.ahead[..count]);
        self.ahead.drain(..count);
        self.ahead.shrink_to_fit();
        Poll::Ready(Ok(()))
    }
}

impl<S: Socket> Write for Wire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
