//! A server of its own for each test, and a client that shows what goes over the wire.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use masthead_cache::HistoryLimits;
use masthead_lab::{Etcd, EtcdOptions, Version};
use masthead_server::{Config, Limits, MASTERS, READERS, Security, Server, Tokens, User};
use masthead_store::{EmbeddedStore, EtcdSettings, EtcdStore, MemoryStore, Settings, Store};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// Longer than anything that a test waits for takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const TOKEN: &str = "conformance-token";

/// A server, and how to talk to it.
pub(crate) struct World {
    pub(crate) name: &'static str,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) address: SocketAddr,
    http2: bool,
    compress_bodies: Option<usize>,
    /// Where the objects are.
    _place: Place,
}

/// Where the objects of a world are.
pub(crate) enum Place {
    Memory,
    Directory(TempDir),
    Etcd(Box<Etcd>),
}

impl Place {
    pub(crate) fn directory() -> Self {
        Self::Directory(tempfile::tempdir().unwrap())
    }

    pub(crate) fn etcd(version: Version) -> Self {
        let options = EtcdOptions { version, ..EtcdOptions::default() };
        Self::Etcd(Box::new(Etcd::start_with(&options)))
    }

    async fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory => Arc::new(MemoryStore::new()),
            Self::Directory(it) => {
                Arc::new(EmbeddedStore::open(it.path(), Settings::default()).unwrap())
            }
            Self::Etcd(etcd) => {
                let settings = EtcdSettings::new([etcd.endpoint()]);
                Arc::new(EtcdStore::open(settings).await.unwrap())
            }
        }
    }
}

/// Runs a test against every store over every version of HTTP, and against caches that hold bodies
/// compressed, side by side.
pub(crate) fn everywhere(test: &impl AsyncFn(&World)) {
    everywhere_with(HistoryLimits::default(), test);
}

/// The same with caches that keep another amount of history.
pub(crate) fn everywhere_with(history: HistoryLimits, test: &impl AsyncFn(&World)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let run = async |name, place, http2, compress_bodies| {
        let config = Config { history, compress_bodies, ..config(Limits::default()) };
        let (world, server) = World::of(name, config, place, http2).await;
        world.namespace("shop").await;
        test(&world).await;
        server.shutdown().await;
    };
    runtime.block_on(async {
        tokio::join!(
            run("memory, HTTP/1.1", Place::Memory, false, None),
            run("memory, HTTP/2", Place::Memory, true, None),
            run("compressed, HTTP/1.1", Place::Memory, false, Some(0)),
            run("compressed, HTTP/2", Place::Memory, true, Some(0)),
            run("embedded, HTTP/1.1", Place::directory(), false, None),
            run("embedded, HTTP/2", Place::directory(), true, None),
            run("etcd, HTTP/1.1", Place::etcd(Version::Current), false, None),
            run("etcd 3.4, HTTP/2", Place::etcd(Version::Debian34), true, None),
        )
    });
}

/// Keeps four changes: enough to run out of.
pub(crate) fn short_history() -> HistoryLimits {
    HistoryLimits { changes: 4, ..HistoryLimits::default() }
}

/// A server in the clear on a free port that lets the tests' users in.
pub(crate) fn config(limits: Limits) -> Config {
    let mut tokens = Tokens::default();
    let user =
        |name: &str, group: &str| User { name: name.to_owned(), groups: vec![group.to_owned()] };
    tokens.add(TOKEN, user("conformance", MASTERS));
    tokens.add("quiet-token", user("quiet", MASTERS));
    tokens.add("reader-token", user("reader", READERS));
    tokens.add("stranger-token", user("stranger", "strangers"));
    Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        security: Security::InsecureHttp,
        tokens,
        limits,
        history: HistoryLimits::default(),
        compress_bodies: None,
    }
}

/// Runs one test on a runtime of its own.
pub(crate) fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(test);
}

/// Declares tests that run [`everywhere`].
#[macro_export]
macro_rules! rules {
    ($($(#[$meta:meta])* async fn $name:ident($world:ident) $body:block)*) => {
        $($(#[$meta])* #[test] fn $name() {
            $crate::world::everywhere(&async |$world: &$crate::world::World| $body);
        })*
    };
}

/// An answer that has been read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |it| it.to_str().unwrap())
    }

    /// The object, which the request must have got.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!(self.code < 300, "{}: {}", self.code, self.text());
        self.json()
    }

    /// The status, which must have this code and reason.
    #[track_caller]
    pub(crate) fn fails(self, code: u16, reason: &str) -> Value {
        assert_eq!(self.code, code, "{}", self.text());
        let status = self.json();
        assert_eq!((&status["kind"], &status["reason"]), (&json!("Status"), &json!(reason)));
        assert_eq!((&status["status"], &status["code"]), (&json!("Failure"), &json!(code)));
        status
    }
}

impl World {
    /// A server with these limits, its objects in memory, spoken to over HTTP/1.1 or HTTP/2.
    pub(crate) async fn limited(limits: Limits, http2: bool) -> (Self, Server) {
        let (world, server) = Self::of("limited", config(limits), Place::Memory, http2).await;
        world.namespace("shop").await;
        (world, server)
    }

    pub(crate) async fn of(
        name: &'static str,
        config: Config,
        place: Place,
        http2: bool,
    ) -> (Self, Server) {
        let store = place.store().await;
        let compress_bodies = config.compress_bodies;
        let server = Server::start(config, store.clone()).await.unwrap();
        server.ready().await;
        let address = server.address();
        (Self { name, store, address, http2, compress_bodies, _place: place }, server)
    }

    /// A server on a store of the test's own, spoken to over HTTP/1.1.
    pub(crate) async fn on(store: Arc<dyn Store>, limits: Limits) -> (Self, Server) {
        let server = Server::start(config(limits), store.clone()).await.unwrap();
        timeout(PATIENCE, server.ready()).await.expect("it starts");
        let address = server.address();
        let (http2, compress_bodies, place) = (false, None, Place::Memory);
        let world = Self { name: "replica", store, address, http2, compress_bodies, _place: place };
        (world, server)
    }

    /// Another server on the store of this one, spoken to as this one.
    pub(crate) async fn beside(&self, config: Config) -> (Self, Server) {
        let (store, http2, compress_bodies) =
            (self.store.clone(), self.http2, config.compress_bodies);
        let server = Server::start(config, store.clone()).await.unwrap();
        timeout(PATIENCE, server.ready()).await.expect("it starts");
        let (address, place) = (server.address(), Place::Memory);
        (Self { name: "beside", store, address, http2, compress_bodies, _place: place }, server)
    }

    /// Goes on with another server on the same store.
    pub(crate) async fn restart(&mut self, server: Server) -> Server {
        server.shutdown().await;
        let config = Config { compress_bodies: self.compress_bodies, ..config(Limits::default()) };
        let server = Server::start(config, self.store.clone()).await.unwrap();
        timeout(PATIENCE, server.ready()).await.expect("it starts again");
        self.address = server.address();
        server
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response<Incoming> {
        let mut request = Request::builder().method(method);
        let authority = self.address.to_string();
        request = if self.http2 {
            request.uri(format!("http://{authority}{path}"))
        } else {
            request.uri(path).header("host", authority)
        };
        if !headers.iter().any(|(name, _)| *name == "authorization") {
            request = request.header("authorization", format!("Bearer {TOKEN}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        let io = TokioIo::new(TcpStream::connect(self.address).await.unwrap());
        if self.http2 {
            let (mut sender, connection) =
                http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        } else {
            let (mut sender, connection) = http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        }
    }

    /// Sends bytes as they are on a connection of their own; what comes back until it closes.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // The server may answer and close before everything is written.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("an end in time");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// A connection on which the head of a request has been sent and nothing is read.
    pub(crate) async fn open_raw(&self, head: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(self.address).await.unwrap();
        let head = format!("{head}\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    }

    /// Asks until the answer is as it should be: for what the server notices in its own time.
    pub(crate) async fn until(&self, path: &str, right: impl Fn(&Answer) -> bool) -> Answer {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.get(path).await;
            if right(&answer) {
                return answer;
            }
            let text: String = answer.text().chars().take(300).collect();
            assert!(Instant::now() < deadline, "{path}: {text}");
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let response = timeout(PATIENCE, self.send(method, path, headers, body)).await.unwrap();
        let (head, body) = response.into_parts();
        let body = timeout(PATIENCE, body.collect()).await.unwrap().unwrap().to_bytes();
        Answer { code: head.status.as_u16(), headers: head.headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask(Method::POST, path, &[], body.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.ask(Method::PUT, path, &[], body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.ask(Method::DELETE, path, &[], "").await
    }

    pub(crate) async fn patch(&self, path: &str, kind: &str, body: &Value) -> Answer {
        let content_type = format!("application/{kind}+json");
        let headers = [("content-type", content_type.as_str())];
        self.ask(Method::PATCH, path, &headers, body.to_string()).await
    }

    pub(crate) async fn namespace(&self, name: &str) {
        let answer = self.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
        assert_eq!(answer.code, 201, "{}", answer.text());
    }

    /// A config map in `shop`, new or with another value.
    pub(crate) async fn set(&self, name: &str, value: &str) -> Value {
        let body = json!({"metadata": {"name": name}, "data": {"value": value}});
        let path = format!("{MAPS}/{name}");
        let answer = self.put(&path, &body).await;
        match answer.code {
            404 => self.post(MAPS, &body).await.ok(),
            _ => answer.ok(),
        }
    }

    pub(crate) async fn watch(&self, path: &str) -> Watch {
        self.watch_as(path, &[]).await
    }

    pub(crate) async fn watch_as(&self, path: &str, headers: &[(&str, &str)]) -> Watch {
        let response = timeout(PATIENCE, self.send(Method::GET, path, headers, "")).await.unwrap();
        assert_eq!(response.status(), 200);
        Watch::new(response)
    }

    /// The store's newest revision.
    pub(crate) async fn revision(&self) -> u64 {
        self.store.current().await.unwrap().0
    }
}

/// Config maps of the namespace `shop`.
pub(crate) const MAPS: &str = "/api/v1/namespaces/shop/configmaps";
/// Pods of the namespace `shop`.
pub(crate) const PODS: &str = "/api/v1/namespaces/shop/pods";

/// A watch that is being read.
pub(crate) struct Watch {
    pub(crate) headers: http::HeaderMap,
    body: Incoming,
    lines: VecDeque<Value>,
    rest: Vec<u8>,
}

impl Watch {
    pub(crate) fn new(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        Self { headers: head.headers, body, lines: VecDeque::new(), rest: Vec::new() }
    }

    /// The next event; none when the stream has ended cleanly.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        while self.lines.is_empty() {
            let frame = timeout(PATIENCE, self.body.frame()).await.expect("an event in time")?;
            self.rest.extend_from_slice(&frame.expect("a clean stream").into_data().unwrap());
            while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                self.lines.push_back(serde_json::from_slice(&line).expect("a line of JSON"));
            }
        }
        self.lines.pop_front()
    }

    /// The next event in short: `ADDED name@version`.
    pub(crate) async fn short(&mut self) -> String {
        let event = self.next().await.expect("one more event");
        let (kind, meta) = (&event["type"], &event["object"]["metadata"]);
        let kind = kind.as_str().unwrap();
        match kind {
            "BOOKMARK" => format!("BOOKMARK @{}", meta["resourceVersion"].as_str().unwrap()),
            "ERROR" => format!("ERROR {}", event["object"]["code"]),
            _ => format!(
                "{kind} {}@{}",
                meta["name"].as_str().unwrap(),
                meta["resourceVersion"].as_str().unwrap()
            ),
        }
    }
}

/// The resource version of an object or list.
pub(crate) fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// The names in a list, in their order.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|it| it["metadata"]["name"].as_str().unwrap()).collect()
}

/// A pod that can be created.
pub(crate) fn pod(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    })
}
