//! The same through hyper, over HTTP/1.1 or HTTP/2.

use std::sync::Arc;

use anyhow::ensure;
use bytes::Bytes;
use http::Request;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, HOST};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::{Dialer, Seen, Watch};

/// Windows like those of Go's client: 4 MiB for a stream, 1 GiB for a connection.
pub(super) const STREAM_WINDOW: u32 = 4 << 20;
pub(super) const CONNECTION_WINDOW: u32 = 1 << 30;

/// A connection that requests can be sent on.
pub(crate) enum Sender {
    One(http1::SendRequest<Empty<Bytes>>),
    Two(http2::SendRequest<Empty<Bytes>>),
}

/// Connection `number`.
pub(crate) async fn connect(dialer: &Dialer, number: usize) -> anyhow::Result<Sender> {
    let io = TokioIo::new(dialer.connect(number).await?);
    if !dialer.http2 {
        let (sender, connection) = http1::handshake(io).await?;
        tokio::spawn(connection);
        return Ok(Sender::One(sender));
    }
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .handshake(io)
        .await?;
    tokio::spawn(connection);
    Ok(Sender::Two(sender))
}

/// Asks, and gives the body of the answer.
pub(crate) async fn ask(
    dialer: &Dialer,
    sender: &mut Sender,
    path: &str,
    encoding: Option<&str>,
) -> anyhow::Result<Incoming> {
    let scheme = if dialer.tls.is_some() { "https" } else { "http" };
    let uri = match sender {
        Sender::One(_) => path.to_owned(),
        Sender::Two(_) => format!("{scheme}://{}{path}", dialer.address),
    };
    let mut request = Request::get(uri)
        .header(AUTHORIZATION, dialer.authorization())
        .header(ACCEPT, "application/json");
    if matches!(sender, Sender::One(_)) {
        request = request.header(HOST, dialer.address.to_string());
    }
    let request = request.header(ACCEPT_ENCODING, encoding.unwrap_or("identity"));
    let request = request.body(Empty::new())?;
    let response = match sender {
        Sender::One(sender) => {
            sender.ready().await?;
            sender.send_request(request).await?
        }
        Sender::Two(sender) => {
            sender.ready().await?;
            sender.send_request(request).await?
        }
    };
    ensure!(response.status() == 200, "the server answers {}", response.status());
    Ok(response.into_body())
}

/// Reads an answer to its end; gives its bytes.
pub(crate) async fn drain(mut body: Incoming) -> anyhow::Result<u64> {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame?.data_ref().map_or(0, |data| data.len() as u64);
    }
    Ok(bytes)
}

/// Reads a watch to its end.
pub(crate) async fn follow(watch: Arc<Watch>, mut body: Incoming) {
    let mut seen = Seen::default();
    while let Some(Ok(frame)) = body.frame().await {
        if let Some(data) = frame.data_ref() {
            watch.see(data, &mut seen);
        }
    }
    watch.end();
}
