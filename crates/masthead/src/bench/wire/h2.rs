//! The same over HTTP/2.

use std::sync::Arc;

use anyhow::ensure;
use bytes::Bytes;
use http::Request;
use http::header::{ACCEPT, AUTHORIZATION};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::{Dialer, Watch};

/// Windows like those of Go's client: 4 MiB for a stream, 1 GiB for a connection.
pub(super) const STREAM_WINDOW: u32 = 4 << 20;
pub(super) const CONNECTION_WINDOW: u32 = 1 << 30;

/// A connection that requests can be sent on.
pub(crate) type Sender = SendRequest<Empty<Bytes>>;

/// Connection `number`.
pub(crate) async fn connect(dialer: &Dialer, number: usize) -> anyhow::Result<Sender> {
    let io = TokioIo::new(dialer.connect(number).await?);
    let (sender, connection) = Builder::new(TokioExecutor::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .handshake(io)
        .await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Asks, and gives the body of the answer.
pub(crate) async fn ask(
    dialer: &Dialer,
    sender: &mut Sender,
    path: &str,
) -> anyhow::Result<Incoming> {
    let scheme = if dialer.tls.is_some() { "https" } else { "http" };
    let request = Request::get(format!("{scheme}://{}{path}", dialer.address))
        .header(AUTHORIZATION, dialer.authorization())
        .header(ACCEPT, "application/json")
        .body(Empty::new())?;
    sender.ready().await?;
    let response = sender.send_request(request).await?;
    ensure!(response.status() == 200, "the server answers {}", response.status());
    Ok(response.into_body())
}

/// Reads a watch to its end.
pub(crate) async fn follow(watch: Arc<Watch>, mut body: Incoming) {
    let mut last = 0;
    while let Some(Ok(frame)) = body.frame().await {
        if let Some(data) = frame.data_ref() {
            watch.see(data, &mut last);
        }
    }
    watch.end();
}
