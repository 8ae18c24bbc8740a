//! Clients that only count what they are sent.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, ready};

use anyhow::Context as _;
use bytes::Bytes;
use masthead_core::{Object, Resource, WatchLine};
use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CipherSuite, ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

use super::child::{Hello, microseconds};

pub(super) mod bare;
pub(super) mod frames;
pub(super) mod http;

/// Connections from one of our addresses: a third of the ports that the system hands out for each.
const PER_ADDRESS: usize = 10_000;
/// What is read at a time.
const READ_BYTES: usize = 256 * 1024;

thread_local! {
    /// A buffer a thread, so that many clients cost little beside the server.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}
pub(super) type Stream = Box<dyn Duplex>;

/// Makes connections to a server.
#[derive(Clone)]
pub(super) struct Dialer {
    address: SocketAddr,
    token: String,
    tls: Option<TlsConnector>,
    http2: bool,
}

impl Dialer {
    pub(super) fn new(hello: &Hello, http2: bool) -> anyhow::Result<Self> {
        let tls = hello.ca.as_deref().map(|ca| trusting(ca, http2)).transpose()?;
        Ok(Self { address: hello.address, token: hello.token.clone(), tls, http2 })
    }

    /// Connection `number`, in the clear; many come from several addresses.
    async fn dial(&self, number: usize) -> anyhow::Result<TcpStream> {
        let host = u8::try_from(number / PER_ADDRESS + 1).context("too many connections")?;
        let socket = TcpSocket::new_v4()?;
        socket.bind((IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)), 0).into())?;
        let stream = socket.connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// The same, with TLS if the server wants it.
    pub(super) async fn connect(&self, number: usize) -> anyhow::Result<Stream> {
        let stream = self.dial(number).await?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        Ok(Box::new(tls.connect(self.name(), stream).await?))
    }

    fn name(&self) -> ServerName<'static> {
        self.address.ip().into()
    }

    pub(super) fn authorization(&self) -> String {
        format!("Bearer {}", self.token)
    }
}

fn trusting(ca: &str, http2: bool) -> anyhow::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes())?)?;
    // As Go's client prefers them on a processor with AES: the cheapest first.
    let mut provider = CryptoProvider::clone(&masthead_server::crypto_provider());
    provider.cipher_suites.sort_by_key(|it| it.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.enable_secret_extraction = true;
    config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The path of a watch of pods that begins with everything there is.
pub(super) const INITIAL_PATH: &str = "/api/v1/pods?watch=1&sendInitialEvents=true&\
    allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=3600";

/// The path of a watch of pods that begins with the next change.
pub(super) fn watch_path(revision: u64, selector: &str) -> String {
    format!("/api/v1/pods?watch=1&resourceVersion={revision}&timeoutSeconds=3600{selector}")
}

/// Reads what there is into the thread's buffer and looks at it; nothing at the end.
pub(super) async fn read<T>(
    stream: &mut Stream,
    mut look: impl FnMut(&[u8]) -> T,
) -> io::Result<T> {
    poll_fn(|cx| {
        BUFFER.with_borrow_mut(|buffer| {
            let mut buffer = ReadBuf::new(buffer);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer))?;
            Poll::Ready(Ok(look(buffer.filled())))
        })
    })
    .await
}

/// What arrived at all watches.
#[derive(Default)]
pub(super) struct Arrivals {
    pub(super) events: AtomicU64,
    pub(super) ended: AtomicU64,
    /// Clients decode each event, as an informer does: of this.
    pub(super) decoded: Option<Resource>,
}

/// What a client knows of the stream that it reads.
#[derive(Default)]
pub(super) struct Seen {
    last: u8,
    /// A line that is not there whole, for those who decode it.
    begun: Vec<u8>,
}

/// What arrived at one watch.
pub(super) struct Watch {
    all: Arc<Arrivals>,
    /// When each event was there, in microseconds since 1970.
    times: Mutex<Vec<u64>>,
}

impl Watch {
    pub(super) fn new(all: &Arc<Arrivals>) -> Arc<Self> {
        Arc::new(Self { all: all.clone(), times: Mutex::default() })
    }

    pub(super) fn times(&self) -> Vec<u64> {
        self.times.lock().clone()
    }

    /// Takes note of bytes. An event is a line, and lines end with `}`.
    pub(super) fn see(&self, bytes: &[u8], seen: &mut Seen) {
        let before = |at: usize| if at == 0 { seen.last } else { bytes[at - 1] };
        let ends = memchr::memchr_iter(b'\n', bytes).filter(|&at| before(at) == b'}').count();
        seen.last = bytes.last().copied().unwrap_or(seen.last);
        if let Some(resource) = &self.all.decoded {
            seen.begun.extend_from_slice(bytes);
            if decode(resource, &mut seen.begun, ends).is_none() {
                return self.end();
            }
        }
        if ends > 0 {
            let mut times = self.times.lock();
            let length = times.len() + ends;
            times.resize(length, microseconds());
            self.all.events.fetch_add(ends as u64, Ordering::Relaxed);
        }
    }

    pub(super) fn end(&self) {
        self.all.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// Decodes so many events at the beginning of what has arrived, and takes them out of it; nothing if they
/// are none. Around them stand the lengths of chunks.
fn decode(resource: &Resource, arrived: &mut Vec<u8>, events: usize) -> Option<()> {
    let mut at = 0;
    for _ in 0..events {
        let start = at + memchr::memchr(b'{', &arrived[at..])?;
        at = start + memchr::memmem::find(&arrived[start..], b"}\n")? + 2;
        let line = Bytes::copy_from_slice(&arrived[start..at]);
        let object = WatchLine::split(&line).ok()?.object;
        Object::parse(resource, line.slice(object)).ok()?;
    }
    arrived.drain(..at);
    Some(())
}
