//! Accepting connections and serving requests on them.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioTimer;
use parking_lot::Mutex;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::app::{App, Peer};
use crate::authn::{User, user_of_certificate};
use crate::flights::{Clock, Connection};
use crate::limits::{
    ACCEPT_PAUSE, Limits, REFUSALS_MAX, SHUTDOWN_GRACE, SHUTDOWN_PATIENCE, STREAM_BUFFER_BYTES,
    UNSENT_BYTES_MAX,
};

mod driver;
mod gathered;
mod grace;
mod plain_http;
mod sending;
mod streams;
mod wire;

use driver::Driver;
use gathered::Gathered;
use grace::{Grace, Idle};
use sending::Long;
use streams::Begun;
use wire::{Socket, Tcp, Wire};

/// Serves the connections of one listener.
pub(crate) struct Connections {
    app: Arc<App>,
    tls: Option<TlsAcceptor>,
    http1: http1::Builder,
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
        let http1 = http1(&app.limits);
        Arc::new(Self { app, tls, http1, clock, open: AtomicUsize::new(0), shutdown })
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
        if timeout(SHUTDOWN_GRACE, gone.recv()).await.is_err() {
            self.app.flights.cut_all();
        }
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
            return self.talk(Tcp(stream), None, refused).await;
        };
        let handshake = Box::pin(async {
            let stream = plain_http::refuse(stream).await?;
            tls.accept(Tcp(stream)).await
        });
        let Some(secured) =
            self.unless_down(timeout(self.app.limits.handshake_timeout, handshake)).await
        else {
            return debug!("connection ended: the server goes down");
        };
        match secured {
            Ok(Ok(stream)) => {
                let certificates = stream.get_ref().1.peer_certificates();
                let user = certificates.and_then(|it| user_of_certificate(it.first()?));
                self.talk(Box::new(stream), user.map(Arc::new), refused).await;
            }
            failed => {
                self.app.metrics.handshake_errors.inc();
                debug!(error = ?failed.map(Result::err), "TLS handshake failed");
            }
        }
    }

    async fn talk<S: Socket>(&self, stream: S, certificate: Option<Arc<User>>, refused: bool) {
        let connection = Connection::new(self.clock);
        let mut wire = Wire::new(stream, connection.clone());
        let peer = Arc::new(Peer { connection, certificate, refused });
        let preface = timeout(self.app.limits.header_timeout, wire.speaks_http2());
        let Some(is_http2) = self.unless_down(preface).await else {
            return debug!("connection ended: the server goes down");
        };
        match is_http2 {
            Ok(Ok(true)) => Box::pin(self.talk_http2(wire, &peer)).await,
            Ok(Ok(false)) => self.talk_http1(wire, &peer).await,
            Ok(Err(error)) => debug!(%error, "connection ended"),
            Err(_) => debug!("connection ended: it said nothing"),
        }
    }

    async fn talk_http2<S: Socket>(&self, wire: Wire<S>, peer: &Arc<Peer>) {
        let (app, for_service) = (self.app.clone(), peer.clone());
        let service = service_fn(move |request| {
            let (app, peer) = (app.clone(), for_service.clone());
            // On the heap, and gone with the answer: a watch keeps no room for how it was answered.
            Box::pin(async move { Ok::<_, Infallible>(app.handle(request, &peer).await) })
        });
        let (wire, sends) = Gathered::new(wire);
        let begun = Begun::default();
        let http2 = http2(&self.app.limits, begun.clone());
        let mut connection = std::pin::pin!(http2.serve_connection(wire, service));
        let mut driver = Driver::new(begun, sends);
        let mut idle = Idle::new(&self.app.limits);
        let ended = poll_fn(|cx| {
            if driver.poll(connection.as_mut(), cx).is_ready() {
                return Poll::Ready(true);
            }
            let is_over = idle.poll_over(cx, driver.has_streams(), driver.requests());
            is_over.map(|()| false)
        });
        // An idle connection ends as all do when the server stops: its client is told which requests count.
        tokio::select! {
            has_ended = ended => if has_ended { return },
            () = peer.connection.cut() => return debug!("connection cut: its client does not read"),
            () = self.goes_down() => {}
        }
        connection.as_mut().graceful_shutdown();
        let mut grace = Grace::new(peer.connection.clone());
        poll_fn(|cx| {
            if driver.poll(connection.as_mut(), cx).is_ready() {
                return Poll::Ready(());
            }
            grace.poll_over(cx, !driver.has_streams())
        })
        .await;
    }

    /// Requests one after the other, of which some have long answers. While one of these is sent,
    /// only it is looked at: it knows when it is to end, and that is most of what a server does.
    async fn talk_http1<S: Socket>(&self, mut wire: Wire<S>, peer: &Arc<Peer>) {
        while let Some((answer, taken)) = Box::pin(self.until_long(wire, peer)).await {
            wire = taken;
            if let Err(error) = answer.send(&mut wire).await {
                return debug!(%error, "connection ended");
            }
            if *self.shutdown.borrow() {
                // The client has its answer, whether it sees the end of the connection or not.
                let _ = timeout(SHUTDOWN_PATIENCE, wire.close()).await;
                return;
            }
        }
    }

    async fn until_long<S: Socket>(
        &self,
        wire: Wire<S>,
        peer: &Arc<Peer>,
    ) -> Option<(Long, Wire<S>)> {
        tokio::select! {
            found = self.serve_until_long(wire, peer) => found,
            () = peer.connection.cut() => {
                debug!("connection cut: its client does not read");
                None
            }
        }
    }

    /// Serves requests until one has a long answer, which gets the connection; none at the end of it.
    async fn serve_until_long<S: Socket>(
        &self,
        wire: Wire<S>,
        peer: &Arc<Peer>,
    ) -> Option<(Long, Wire<S>)> {
        let found = Arc::new(Mutex::new(None));
        let under_way = Arc::new(AtomicBool::new(false));
        let (app, for_service, finds) = (self.app.clone(), peer.clone(), found.clone());
        let marks = under_way.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let (app, peer, finds) = (app.clone(), for_service.clone(), finds.clone());
            let marks = marks.clone();
            Box::pin(async move {
                let simple = sending::is_simple(&request);
                marks.store(true, Ordering::Relaxed);
                let response = app.handle(request, &peer).await;
                marks.store(false, Ordering::Relaxed);
                if !simple || !sending::is_long(&response) {
                    return Ok::<_, Infallible>(response);
                }
                *finds.lock() = Long::of(response);
                // The connection is taken from hyper, and this with it.
                std::future::pending().await
            })
        });
        let mut serving = self.http1.serve_connection(wire, service);
        let mut shutdown = self.shutdown.clone();
        let mut down = std::pin::pin!(shutdown.wait_for(|down| *down));
        let mut grace = None;
        let answer = poll_fn(|cx| {
            if grace.is_none() && down.as_mut().poll(cx).is_ready() {
                grace = Some(Grace::new(peer.connection.clone()));
                Pin::new(&mut serving).graceful_shutdown();
            }
            if let Poll::Ready(result) = Pin::new(&mut serving).poll(cx) {
                log(result);
                return Poll::Ready(None);
            }
            let is_idle = !under_way.load(Ordering::Relaxed);
            if grace.as_mut().is_some_and(|grace| grace.poll_over(cx, is_idle).is_ready()) {
                debug!("connection cut: the server goes down");
                return Poll::Ready(None);
            }
            // What hyper still has to write is written first: its next write wakes this up.
            let taken = if peer.connection.is_blocked() { None } else { found.lock().take() };
            taken.map_or(Poll::Pending, |answer| Poll::Ready(Some(answer)))
        })
        .await?;
        let parts = serving.into_parts();
        let mut wire = parts.io;
        wire.put_back(&parts.read_buf);
        Some((answer, wire))
    }

    /// Resolves when the server goes down.
    async fn goes_down(&self) {
        let mut shutdown = self.shutdown.clone();
        // Without a sender the server is gone.
        let _ = shutdown.wait_for(|down| *down).await;
    }

    /// The result of what is waited for before the first request of a connection; none if the server goes
    /// down first. What has arrived by then is still read.
    async fn unless_down<T>(&self, greeting: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            result = greeting => Some(result),
            () = self.goes_down() => None,
        }
    }
}

fn log(result: hyper::Result<()>) {
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

fn http1(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        // hyper takes no less than 8 KiB.
        .max_buf_size(limits.header_bytes.max(8192));
    builder
}

fn http2(limits: &Limits, streams: Begun) -> http2::Builder<Begun> {
    let mut builder = http2::Builder::new(streams);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_per_connection)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .max_send_buf_size(STREAM_BUFFER_BYTES)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}
