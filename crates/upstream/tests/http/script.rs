//! A server that answers what a test tells it, when the test tells it.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use masthead_core::{Resource, Selectors};
use masthead_reflector::{Events, Failure, ListAt, ListRequest, Meter, Page, Source, WatchItem};
use masthead_reflector::{WatchFrom, WatchRequest};
use masthead_upstream::kube_client::Config;
use masthead_upstream::{ApiSource, HttpVersion, Namespaces, Representation, Settings, Upstream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// Longer than anything that a test waits for takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test with HTTP/1.1 and with HTTP/2, side by side.
pub(crate) fn both(test: impl AsyncFn(HttpVersion)) {
    run(async { tokio::join!(test(HttpVersion::Http1), test(HttpVersion::Http2)) });
}

/// Runs a test on a runtime of its own.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(2 * PATIENCE, test).await.expect("the test ends in time") })
}

/// In time, or the test fails.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("in time")
}

/// A server and what it was asked. Dropped, it is gone with all its connections.
pub(crate) struct Script {
    pub(crate) address: SocketAddr,
    asked: mpsc::UnboundedReceiver<Asked>,
    serving: JoinHandle<()>,
}

/// A request that waits for its answer.
pub(crate) struct Asked {
    /// Which connection it came on, from 0.
    pub(crate) connection: usize,
    pub(crate) version: http::Version,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    reply: oneshot::Sender<Response<Body>>,
}

impl Drop for Script {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Script {
    pub(crate) fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), None)
    }

    pub(crate) fn start_at(address: SocketAddr, tls: Option<TlsAcceptor>) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address).unwrap();
        let listener = socket.listen(128).unwrap();
        let address = listener.local_addr().unwrap();
        let (asks, asked) = mpsc::unbounded_channel();
        Self { address, asked, serving: tokio::spawn(accept(listener, tls, asks)) }
    }

    /// Ends it with all its connections, as a process does that is killed.
    pub(crate) async fn kill(mut self) -> SocketAddr {
        self.serving.abort();
        let _ = (&mut self.serving).await;
        self.address
    }

    /// The next request.
    pub(crate) async fn next(&mut self) -> Asked {
        soon(self.asked.recv()).await.expect("the server runs")
    }

    /// Returns `true` if no further request has come.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.asked.try_recv().is_err()
    }

    pub(crate) fn config(&self) -> Config {
        Config::new(format!("http://{}", self.address).parse().unwrap())
    }

    pub(crate) async fn upstream(&self, settings: Settings) -> Upstream {
        Upstream::from_config(self.config(), settings).await.unwrap()
    }

    /// Pods in all namespaces.
    pub(crate) async fn pods(&self, http: HttpVersion) -> ApiSource {
        pods(&self.upstream(Settings { http, ..Settings::default() }).await)
    }
}

async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    asks: mpsc::UnboundedSender<Asked>,
) {
    let mut connections = JoinSet::new();
    for number in 0.. {
        let (tcp, _) = listener.accept().await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let (tls, asks) = (tls.clone(), asks.clone());
        connections.spawn(async move {
            match tls {
                None => serve(tcp, number, asks).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(tcp).await {
                        serve(stream, number, asks).await;
                    }
                }
            }
        });
    }
}

async fn serve<T>(stream: T, connection: usize, asks: mpsc::UnboundedSender<Asked>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let asks = asks.clone();
        async move {
            let (head, body) = request.into_parts();
            let body =
                body.collect().await.map_or(Bytes::new(), http_body_util::Collected::to_bytes);
            let (reply, answer) = oneshot::channel();
            let (path, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or("").into());
            let (version, method, headers) = (head.version, head.method, head.headers);
            // A test that is over asks nobody.
            let _ =
                asks.send(Asked { connection, version, method, path, query, headers, body, reply });
            match answer.await {
                Ok(answer) => Ok::<_, Infallible>(answer),
                // A request that the test drops stays without an answer.
                Err(_) => std::future::pending().await,
            }
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(100);
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

/// A body that a test sends piece by piece.
pub(crate) struct Body(mpsc::UnboundedReceiver<io::Result<Bytes>>);

/// Its other end. Dropped, the body is whole.
pub(crate) struct Sending(mpsc::UnboundedSender<io::Result<Bytes>>);

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(cx).map(|it| it.map(|it| it.map(Frame::data)))
    }
}

impl Sending {
    pub(crate) fn send(&self, piece: impl Into<Bytes>) {
        // Whoever listened may be gone, and the test will see that.
        let _ = self.0.send(Ok(piece.into()));
    }

    /// Breaks the body off.
    pub(crate) fn cut(self) {
        let _ = self.0.send(Err(io::Error::other("cut")));
    }

    /// Resolves when nobody reads it any more.
    pub(crate) async fn abandoned(&self) {
        soon(self.0.closed()).await;
    }
}

impl Asked {
    /// The answer's head; its body comes as the test sends it.
    pub(crate) fn answer(self, code: u16, headers: &[(&str, &str)]) -> Sending {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut response = Response::builder().status(code);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        // A client that has gone needs no answer.
        let _ = self.reply.send(response.body(Body(receiver)).unwrap());
        Sending(sender)
    }

    pub(crate) fn open(self) -> Sending {
        self.answer(200, &[("content-type", "application/json")])
    }

    /// The whole answer.
    pub(crate) fn say(self, code: u16, body: impl Into<Bytes>) {
        self.answer(code, &[("content-type", "application/json")]).send(body);
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.query.contains("watch=true")
    }

    /// The value of a parameter; none if it is not there.
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        let pairs = self.query.split('&').filter_map(|it| it.split_once('='));
        pairs.into_iter().find(|(it, _)| *it == name).map(|(_, value)| value)
    }
}

pub(crate) fn pods(upstream: &Upstream) -> ApiSource {
    let (all, full) = (Namespaces::All, Representation::Full);
    upstream.source(&Resource::pods(), &all, &Selectors::default(), full).unwrap()
}

/// A pod as it stands in a watch.
pub(crate) fn pod(name: &str, version: u64) -> String {
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"shop","uid":"u-{name}","resourceVersion":"{version}"}}}}"#
    )
}

/// A list of these items.
pub(crate) fn list(version: u64, items: &[String]) -> String {
    let items = items.join(",");
    format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":[{items}]}}"#
    )
}

pub(crate) fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

pub(crate) fn bookmark(version: u64, end: bool) -> String {
    let end = if end { r#","annotations":{"k8s.io/initial-events-end":"true"}"# } else { "" };
    let meta = format!(r#"{{"resourceVersion":"{version}"{end}}}"#);
    event("BOOKMARK", &format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{meta}}}"#))
}

pub(crate) fn first_page() -> ListRequest {
    ListRequest { at: ListAt::Latest, limit: 500, bytes_max: usize::MAX, elsewhere: false }
}

/// A list that runs beside the test.
pub(crate) fn listing(
    source: &ApiSource,
    request: ListRequest,
) -> JoinHandle<Result<Page, Failure>> {
    tokio::spawn(source.list(request, Meter::default()))
}

pub(crate) fn after(version: u64) -> WatchRequest {
    let from = WatchFrom::After(version.to_string());
    WatchRequest { from, timeout: Duration::from_secs(300), elsewhere: false }
}

/// A watch that is being opened beside the test.
pub(crate) fn watching(source: &ApiSource, from: u64) -> JoinHandle<Result<Events, Failure>> {
    tokio::spawn(source.watch(after(from), Meter::default()))
}

/// What comes next on a stream.
pub(crate) async fn next(events: &mut Events) -> Option<Result<Vec<WatchItem>, Failure>> {
    soon(std::future::poll_fn(|cx| events.as_mut().poll_next(cx))).await
}

/// Events in short.
pub(crate) fn short(items: &[WatchItem]) -> String {
    let short = items.iter().map(|item| match item {
        WatchItem::Added(it) => format!("+{it:?}"),
        WatchItem::Modified(it) => format!("~{it:?}"),
        WatchItem::Deleted(it) => format!("-{it:?}"),
        WatchItem::DeletedUnread(it) => format!("-{}?", it.key()),
        WatchItem::Bookmark { resource_version, initial_events_end: false } => {
            format!("@{resource_version}")
        }
        WatchItem::Bookmark { resource_version, .. } => format!("end@{resource_version}"),
        WatchItem::Error(status) => format!("!{}", status.code()),
        WatchItem::Skipped => "?".to_owned(),
    });
    short.collect::<Vec<_>>().join(" ")
}

/// A certificate for 127.0.0.1 by an authority of its own: the server's side, and the authority.
pub(crate) fn tls(directory: &std::path::Path) -> (TlsAcceptor, String) {
    let made = masthead_server::Credentials::load_or_create(directory, &[]);
    let made = made.unwrap();
    (TlsAcceptor::from(Arc::clone(&made.tls(None).unwrap())), made.ca)
}
