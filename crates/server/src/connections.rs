//! Accepting connections and serving requests on them.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::app::{App, Peer};
use crate::authn::{User, user_of_certificate};
use crate::flights::{Clock, Connection};
use crate::limits::{
    ACCEPT_PAUSE, Limits, REFUSALS_MAX, SHUTDOWN_GRACE, STREAM_BUFFER_BYTES, UNSENT_BYTES_MAX,
};

/// Serves the connections of one listener.
pub(crate) struct Connections {
    app: Arc<App>,
    tls: Option<TlsAcceptor>,
    builder: Builder<TokioExecutor>,
    clock: Clock,
    open: AtomicUsize,
    /// True once the server goes down.
    shutdown: watch::Receiver<bool>,
}

impl Connections {
    pub(crate) fn new(
        app: Arc<App>,
        tls: Option<TlsAcceptor>,
        clock: Clock,
        shutdown: watch::Receiver<bool>,
    ) -> Arc<Self> {
        let builder = builder(&app.limits);
        Arc::new(Self { app, tls, builder, clock, open: AtomicUsize::new(0), shutdown })
    }

    /// Accepts until the server goes down, and then until the last connection is gone.
    pub(crate) async fn run(self: Arc<Self>, listener: TcpListener) {
        let mut shutdown = self.shutdown.clone();
        let (alive, mut gone) = tokio::sync::mpsc::channel::<Infallible>(1);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = shutdown.wait_for(|down| *down) => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    let (this, alive) = (self.clone(), alive.clone());
                    tokio::spawn(async move {
                        this.serve(stream).await;
                        drop(alive);
                    });
                }
                // Out of file descriptors, or the client went away: others still come.
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop((listener, alive));
        let _ = timeout(SHUTDOWN_GRACE, gone.recv()).await;
    }

    async fn serve(&self, stream: TcpStream) {
        let open = self.open.fetch_add(1, Ordering::AcqRel);
        let _counted = Counted(self);
        let refused = open >= self.app.limits.connections;
        if refused {
            self.app.metrics.refused_connections.inc();
        }
        if open >= self.app.limits.connections + REFUSALS_MAX {
            return;
        }
        let _ = stream.set_nodelay(true);
        // What the kernel holds for a client that does not read is bounded too.
        let _ = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
        let Some(tls) = &self.tls else {
            return self.talk(stream, None, refused).await;
        };
        match timeout(self.app.limits.handshake_timeout, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                let certificates = stream.get_ref().1.peer_certificates();
                let user = certificates.and_then(|it| user_of_certificate(it.first()?));
                self.talk(stream, user.map(Arc::new), refused).await;
            }
            failed => {
                self.app.metrics.handshake_errors.inc();
                debug!(error = ?failed.map(Result::err), "TLS handshake failed");
            }
        }
    }

    async fn talk<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        certificate: Option<Arc<User>>,
        refused: bool,
    ) {
        let connection = Connection::new(self.clock);
        let io = Noted { io: TokioIo::new(stream), connection: connection.clone() };
        let peer = Arc::new(Peer { connection: connection.clone(), certificate, refused });
        let app = self.app.clone();
        let service = service_fn(move |request| {
            let (app, peer) = (app.clone(), peer.clone());
            async move { Ok::<_, Infallible>(app.handle(request, &peer).await) }
        });
        let mut serving = std::pin::pin!(self.builder.serve_connection(io, service));
        let mut shutdown = self.shutdown.clone();
        tokio::select! {
            result = serving.as_mut() => return log(result),
            () = connection.cut() => return debug!("connection cut: its client does not read"),
            _ = shutdown.wait_for(|down| *down) => {}
        }
        serving.as_mut().graceful_shutdown();
        if let Ok(result) = timeout(SHUTDOWN_GRACE, serving).await {
            log(result);
        }
    }
}

fn log(result: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = result {
        debug!(%error, "connection ended");
    }
}

struct Counted<'a>(&'a Connections);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
        self.0
            .app
            .metrics
            .connections
            .set(i64::try_from(self.0.open.load(Ordering::Acquire)).unwrap_or(i64::MAX));
    }
}

fn builder(limits: &Limits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        // hyper takes no less than 8 KiB.
        .max_buf_size(limits.header_bytes.max(8192));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_per_connection)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .max_send_buf_size(STREAM_BUFFER_BYTES)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

/// Notes when bytes go out, so that a client that does not read is told from one that is slow.
struct Noted<S> {
    io: TokioIo<S>,
    connection: Arc<Connection>,
}

impl<S: AsyncRead + Unpin> Read for Noted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<S> Noted<S> {
    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.connection.note_write();
        }
        written
    }
}

impl<S: AsyncWrite + Unpin> Write for Noted<S> {
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
