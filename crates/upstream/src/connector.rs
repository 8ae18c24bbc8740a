//! From an address to a connection that speaks HTTP.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use masthead_reflector::Failure;
use rustls::ClientConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tracing::debug;

use crate::address::{Address, Proxy};
use crate::failures::of_transport;
use crate::gather::Gathered;
use crate::limits::{
    CONNECTION_WINDOW_BYTES, FRAME_BYTES, PROXY_ANSWER_BYTES_MAX, STREAM_WINDOW_BYTES, TCP_PROBES,
};
use crate::{HttpVersion, Settings};

/// What requests carry.
pub(crate) type Payload = Full<Bytes>;

/// A connection that is ready for requests. It is closed when this and the answers are dropped.
pub(crate) enum Connection {
    Http1(http1::SendRequest<Payload>),
    Http2 {
        sender: http2::SendRequest<Payload>,
        /// How many streams the server allows, as far as it has told.
        streams_max: Arc<AtomicUsize>,
    },
}

#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) address: Address,
    http: HttpVersion,
    timeout: Duration,
    ping_interval: Duration,
    ping_timeout: Duration,
}

impl Connector {
    pub(crate) fn new(address: Address, settings: &Settings) -> Self {
        let Settings { http, connect_timeout, ping_interval, ping_timeout, .. } = *settings;
        Self { address, http, timeout: connect_timeout, ping_interval, ping_timeout }
    }

    /// Makes a connection. `tls` is there where the address is secure.
    pub(crate) async fn connect(
        &self,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Connection, Failure> {
        let made = timeout(self.timeout, self.connect_in_time(tls)).await;
        made.unwrap_or_else(|_| {
            let (authority, within) = (&self.address.authority, self.timeout);
            Err(Failure::Refused(format!("no connection to {authority} within {within:?}")))
        })
    }

    async fn connect_in_time(&self, tls: Option<Arc<ClientConfig>>) -> Result<Connection, Failure> {
        let tcp = match &self.address.proxy {
            None => self.tcp(&self.address.host, self.address.port).await?,
            Some(proxy) => self.tunnel(proxy).await?,
        };
        let (Some(tls), Some(name)) = (tls, &self.address.server_name) else {
            return self.handshake(tcp, self.http == HttpVersion::Http2).await;
        };
        let connected = TlsConnector::from(tls).connect(name.clone(), Gathered::new(tcp)).await;
        let stream = connected.map_err(|error| of_transport(&error))?;
        let http2 = match self.http {
            HttpVersion::Auto => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
            HttpVersion::Http1 => false,
            HttpVersion::Http2 => true,
        };
        self.handshake(stream, http2).await
    }

    async fn tcp(&self, host: &str, port: u16) -> Result<TcpStream, Failure> {
        let refused = |what: &str, error: &io::Error| {
            Failure::Refused(format!("{what} {host}, port {port}: {error}"))
        };
        let found = tokio::net::lookup_host((host, port)).await;
        let addresses: Vec<_> = found.map_err(|error| refused("no address for", &error))?.collect();
        let tcp = TcpStream::connect(&*addresses).await;
        let tcp = tcp.map_err(|error| refused("no connection to", &error))?;
        let probes = TcpKeepalive::new()
            .with_time(self.ping_interval)
            .with_interval(self.ping_timeout / TCP_PROBES)
            .with_retries(TCP_PROBES);
        // A socket without these is slower to notice what is wrong, and works.
        let tuned =
            tcp.set_nodelay(true).and_then(|()| SockRef::from(&tcp).set_tcp_keepalive(&probes));
        if let Err(error) = tuned {
            debug!(%error, "socket options");
        }
        Ok(tcp)
    }

    /// Lets a proxy connect us.
    async fn tunnel(&self, proxy: &Proxy) -> Result<TcpStream, Failure> {
        let mut tcp = self.tcp(&proxy.host, proxy.port).await?;
        let Address { host, port, .. } = &self.address;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let authorization = proxy.authorization.as_ref();
        let authorization =
            authorization.map_or(String::new(), |it| format!("Proxy-Authorization: {}\r\n", it.0));
        let ask =
            format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{authorization}\r\n");
        let broken = |error: io::Error| Failure::Reset(format!("the proxy: {error}"));
        tcp.write_all(ask.as_bytes()).await.map_err(broken)?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            // Byte by byte: what comes behind the answer is the server's.
            answer.push(tcp.read_u8().await.map_err(broken)?);
            if answer.len() == PROXY_ANSWER_BYTES_MAX {
                return Err(Failure::Refused("the proxy's answer does not end".into()));
            }
        }
        let line = String::from_utf8_lossy(answer.split(|it| *it == b'\r').next().unwrap_or(&[]));
        match line.split(' ').nth(1) {
            Some("200") => Ok(tcp),
            _ => Err(Failure::Refused(format!("the proxy answers {line:?}"))),
        }
    }

    async fn handshake<T>(&self, stream: T, http2: bool) -> Result<Connection, Failure>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = TokioIo::new(stream);
        debug!(server = %self.address.authority, http2, "connected");
        if !http2 {
            let made = http1::Builder::new().handshake(io).await;
            let (sender, connection) = made.map_err(|error| of_transport(&error))?;
            tokio::spawn(ended(connection));
            return Ok(Connection::Http1(sender));
        }
        let made = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES)
            .keep_alive_interval(self.ping_interval)
            .keep_alive_timeout(self.ping_timeout)
            // Without streams too: hyper would otherwise miss a first stream that opens while it looks.
            .keep_alive_while_idle(true)
            .handshake(io)
            .await;
        let (sender, mut connection) = made.map_err(|error| of_transport(&error))?;
        let streams_max = Arc::new(AtomicUsize::new(usize::MAX));
        let told = streams_max.clone();
        // The server may change its mind at any time, and only the connection knows.
        tokio::spawn(ended(std::future::poll_fn(move |cx| {
            let polled = pin!(&mut connection).poll(cx);
            if polled.is_pending() {
                told.store(connection.current_max_send_streams(), Ordering::Relaxed);
            }
            polled
        })));
        Ok(Connection::Http2 { sender, streams_max })
    }
}

/// Runs a connection to its end. Those who use it hear of it in their own way.
async fn ended(connection: impl Future<Output = hyper::Result<()>>) {
    if let Err(error) = connection.await {
        debug!(%error, "connection ended");
    }
}
