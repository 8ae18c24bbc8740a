//! A socket that is not read for every small piece that arrives.
//!
//! A server that streams a list writes each object by itself, and to be woken for each costs more than to
//! decrypt and to parse it. So while much arrives, the socket is taken from those that wake anybody, and
//! is read by the clock, in large pieces. What comes now and then is read at once.

use std::future::Future as _;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use crate::limits::{BUSY_BYTES, BUSY_PERIOD, PAUSE, PAUSE_BYTES, READ_BUFFER_BYTES};

/// What stands between a connection's TLS and its socket.
#[derive(Debug)]
pub(crate) struct Gathered {
    socket: Socket,
    /// Empty while little comes.
    buffer: Box<[u8]>,
    unread: Range<usize>,
}

#[derive(Debug)]
enum Socket {
    /// Wakes whoever waits for it. So many bytes came since a moment.
    Waking { tcp: TcpStream, bytes: usize, since: Instant },
    /// Wakes nobody: so much comes that something will be there when the time has come. There is no time
    /// to wait for if more was there than the buffer has room for.
    Resting { tcp: std::net::TcpStream, until: Option<Pin<Box<Sleep>>> },
    /// It could not become the other.
    Lost,
}

impl Gathered {
    pub(crate) fn new(tcp: TcpStream) -> Self {
        Self { socket: Socket::waking(tcp), buffer: Box::default(), unread: 0..0 }
    }

    /// Waits for the time and takes what has come; the end if that is nothing.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Socket::Resting { tcp, until } = &mut self.socket else { return lost() };
        if let Some(until) = until {
            ready!(until.as_mut().poll(cx));
        }
        if self.buffer.is_empty() {
            self.buffer = vec![0; READ_BUFFER_BYTES].into();
        }
        let read = tcp.read(&mut self.buffer)?;
        self.unread = 0..read;
        if read < PAUSE_BYTES {
            return Poll::Ready(self.socket.wake());
        }
        match until {
            until if read == self.buffer.len() => *until = None,
            Some(until) => until.as_mut().reset(Instant::now() + PAUSE),
            none => *none = Some(Box::pin(sleep(PAUSE))),
        }
        Poll::Ready(Ok(()))
    }

    fn take(&mut self, buf: &mut ReadBuf<'_>) {
        let taken = self.unread.len().min(buf.remaining());
        buf.put_slice(&self.buffer[self.unread.start..][..taken]);
        self.unread.start += taken;
    }
}

impl Socket {
    fn waking(tcp: TcpStream) -> Self {
        Self::Waking { tcp, bytes: 0, since: Instant::now() }
    }

    /// From waking to resting.
    fn rest(&mut self) -> io::Result<()> {
        if let Self::Waking { tcp, .. } = std::mem::replace(self, Self::Lost) {
            *self = Self::Resting { tcp: tcp.into_std()?, until: Some(Box::pin(sleep(PAUSE))) };
        }
        Ok(())
    }

    /// The other way.
    fn wake(&mut self) -> io::Result<()> {
        if let Self::Resting { tcp, .. } = std::mem::replace(self, Self::Lost) {
            *self = Self::waking(TcpStream::from_std(tcp)?);
        }
        Ok(())
    }
}

/// Returns `true` if so much has arrived lately that the next read will find more.
fn is_busy(bytes: &mut usize, since: &mut Instant, more: usize) -> bool {
    let now = Instant::now();
    if now - *since > BUSY_PERIOD {
        (*bytes, *since) = (0, now);
    }
    *bytes += more;
    *bytes >= BUSY_BYTES
}

fn lost<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(ErrorKind::NotConnected.into()))
}

impl AsyncRead for Gathered {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let it = self.get_mut();
        loop {
            if !it.unread.is_empty() {
                it.take(buf);
                return Poll::Ready(Ok(()));
            }
            match &mut it.socket {
                Socket::Waking { tcp, bytes, since } => {
                    it.buffer = Box::default();
                    let before = buf.filled().len();
                    ready!(Pin::new(tcp).poll_read(cx, buf))?;
                    if is_busy(bytes, since, buf.filled().len() - before) {
                        it.socket.rest()?;
                    }
                    return Poll::Ready(Ok(()));
                }
                Socket::Resting { .. } => match ready!(it.poll_fill(cx)) {
                    Ok(()) if it.unread.is_empty() => return Poll::Ready(Ok(())),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => it.socket.wake()?,
                    Err(error) if error.kind() != ErrorKind::Interrupted => {
                        return Poll::Ready(Err(error));
                    }
                    _ => {}
                },
                Socket::Lost => return lost(),
            }
        }
    }
}

impl AsyncWrite for Gathered {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let it = self.get_mut();
        loop {
            match &mut it.socket {
                Socket::Waking { tcp, .. } => return Pin::new(tcp).poll_write(cx, buf),
                Socket::Resting { tcp, .. } => match tcp.write(buf) {
                    // Only one that wakes says when there is room.
                    Err(error) if error.kind() == ErrorKind::WouldBlock => it.socket.wake()?,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    written => return Poll::Ready(written),
                },
                Socket::Lost => return lost(),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().socket {
            Socket::Waking { tcp, .. } => Pin::new(tcp).poll_shutdown(cx),
            Socket::Resting { tcp, .. } => Poll::Ready(tcp.shutdown(Shutdown::Write)),
            Socket::Lost => lost(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (Gathered, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        (Gathered::new(near), far)
    }

    fn is_resting(it: &Gathered) -> bool {
        matches!(it.socket, Socket::Resting { .. })
    }

    /// Bytes that tell where they belong.
    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at % 251).to_le_bytes()[0]).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_in_small_pieces_is_read_whole_and_in_order() {
        let (mut near, mut far) = pair().await;
        let sent = pattern(6 * 1024 * 1024);
        let expected = sent.clone();
        let sender = tokio::spawn(async move {
            for piece in sent.chunks(9_400) {
                far.write_all(piece).await.unwrap();
            }
        });
        let (mut read, mut rested, mut piece) = (Vec::new(), false, vec![0; 4096]);
        loop {
            let count = near.read(&mut piece).await.unwrap();
            if count == 0 {
                break;
            }
            read.extend_from_slice(&piece[..count]);
            rested |= is_resting(&near);
        }
        sender.await.unwrap();
        assert!(read == expected && rested);
    }

    #[tokio::test(start_paused = true)]
    async fn little_is_read_at_once_and_after_much_again() {
        let (mut near, mut far) = pair().await;
        let mut all = vec![0; BUSY_BYTES];
        for _ in 0..3 {
            far.write_all(b"hello").await.unwrap();
            near.read_exact(&mut all[..5]).await.unwrap();
            assert!(!is_resting(&near));
        }
        far.write_all(&pattern(BUSY_BYTES)).await.unwrap();
        near.read_exact(&mut all).await.unwrap();
        far.write_all(b"hello").await.unwrap();
        near.read_exact(&mut all[..5]).await.unwrap();
        assert!(!is_resting(&near), "what came was little");
        assert_eq!(&all[..5], b"hello");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_rests_can_be_written_to_and_hears_of_the_end() {
        let (mut near, mut far) = pair().await;
        let mut all = vec![0; BUSY_BYTES];
        far.write_all(&pattern(BUSY_BYTES)).await.unwrap();
        near.read_exact(&mut all).await.unwrap();
        assert!(is_resting(&near));
        // More than the kernel takes before somebody reads.
        let sent = pattern(16 * 1024 * 1024);
        let expected = sent.clone();
        let reader = tokio::spawn(async move {
            let mut read = vec![0; expected.len()];
            far.read_exact(&mut read).await.unwrap();
            assert!(read == expected);
        });
        near.write_all(&sent).await.unwrap();
        near.shutdown().await.unwrap();
        reader.await.unwrap();
        assert_eq!(near.read(&mut all).await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_comes_behind_what_came_before_it() {
        let (mut near, mut far) = pair().await;
        let sent = pattern(3 * BUSY_BYTES + 17);
        far.write_all(&sent).await.unwrap();
        drop(far);
        let mut read = Vec::new();
        near.read_to_end(&mut read).await.unwrap();
        assert!(read == sent);
    }
}
