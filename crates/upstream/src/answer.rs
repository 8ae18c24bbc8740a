//! An answer, read as it arrives.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::response::Parts;
use http_body::Body;
use hyper::body::Incoming;
use masthead_reflector::{Failure, Meter};

use crate::failures::{of_transport, retry_after};
use crate::gunzip::Gunzip;
use crate::limits::{ANSWER_BYTES_MAX, ERROR_BYTES_MAX, GUNZIP_BYTES};
use crate::pool::Lease;

/// The head of an answer whose body is still to come.
pub(crate) struct Answer {
    head: Parts,
    chunks: Chunks,
}

/// Where a body comes from.
pub(crate) enum Wire {
    Own(Incoming, Lease),
    Client(kube_client::client::Body),
}

/// A body in chunks, unpacked. Every byte that arrives is reported to the meter, packed as it is.
pub(crate) struct Chunks {
    /// None when it is over.
    wire: Option<Wire>,
    packed: Bytes,
    gunzip: Option<Gunzip>,
    meter: Meter,
}

impl Answer {
    pub(crate) fn new(head: Parts, wire: Wire, meter: Meter) -> Self {
        Self {
            head,
            chunks: Chunks { wire: Some(wire), packed: Bytes::new(), gunzip: None, meter },
        }
    }

    /// The body of an answer that says yes, in JSON; otherwise the failure that it is.
    pub(crate) async fn accepted(mut self) -> Result<Chunks, Failure> {
        let header = |name| self.head.headers.get(name).map_or(b"".as_slice(), |it| it.as_bytes());
        match header(CONTENT_ENCODING) {
            b"" | b"identity" => {}
            b"gzip" => self.chunks.gunzip = Some(Gunzip::new()),
            other => {
                let other = String::from_utf8_lossy(other);
                return Err(Failure::Decode(format!("the answer is packed as {other:?}")));
            }
        }
        let status = self.head.status;
        if !status.is_success() {
            let body = self.chunks.beginning(ERROR_BYTES_MAX).await;
            let later = retry_after(&self.head.headers);
            return Err(Failure::from_response(status.as_u16(), &body, later));
        }
        let kind = header(CONTENT_TYPE);
        if !kind.is_empty() && !is_json(kind) {
            let kind = String::from_utf8_lossy(kind);
            return Err(Failure::Decode(format!("the answer is {kind:?} and not JSON")));
        }
        Ok(self.chunks)
    }
}

fn is_json(content_type: &[u8]) -> bool {
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

impl Chunks {
    /// The next chunk; none at the end. An error is the last that comes.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Failure>>> {
        loop {
            if !self.packed.is_empty() {
                match self.unpack() {
                    Ok(chunk) if chunk.is_empty() => continue,
                    chunk => return Poll::Ready(Some(chunk)),
                }
            }
            match ready!(self.poll_wire(cx)) {
                Some(Ok(bytes)) if self.gunzip.is_some() => self.packed = bytes,
                Some(Ok(bytes)) if bytes.is_empty() => {}
                None => return Poll::Ready(self.end()),
                other => return Poll::Ready(other),
            }
        }
    }

    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, Failure>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// All of it in one piece.
    pub(crate) async fn whole(mut self) -> Result<Bytes, Failure> {
        let mut whole = Vec::new();
        while let Some(chunk) = self.next().await {
            let chunk = chunk?;
            if whole.len() + chunk.len() > ANSWER_BYTES_MAX {
                let what = format!("the answer is longer than {ANSWER_BYTES_MAX} bytes");
                return Err(Failure::Decode(what));
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.into())
    }

    /// What comes until so many bytes are there, or it ends one way or another.
    async fn beginning(&mut self, bytes_max: usize) -> Vec<u8> {
        let mut beginning = Vec::new();
        while beginning.len() < bytes_max
            && let Some(Ok(chunk)) = self.next().await
        {
            let room = bytes_max - beginning.len();
            beginning.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
        beginning
    }

    fn unpack(&mut self) -> Result<Bytes, Failure> {
        let packed = self.packed.split_to(self.packed.len().min(GUNZIP_BYTES));
        let gunzip = self.gunzip.as_mut().expect("only packed bytes wait to be unpacked");
        gunzip.unpack(&packed).map(Bytes::from)
    }

    fn end(&mut self) -> Option<Result<Bytes, Failure>> {
        match self.gunzip.take()?.finish() {
            Ok(rest) if rest.is_empty() => None,
            rest => Some(rest.map(Bytes::from)),
        }
    }

    fn poll_wire(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        loop {
            let polled = match &mut self.wire {
                None => return Poll::Ready(None),
                Some(Wire::Own(body, _)) => {
                    let frame = ready!(Pin::new(body).poll_frame(cx));
                    frame.map(|it| it.map_err(|error| of_transport(&error)))
                }
                Some(Wire::Client(body)) => {
                    let frame = ready!(Pin::new(body).poll_frame(cx));
                    frame.map(|it| it.map_err(|error| of_transport(&error)))
                }
            };
            match polled.map(|frame| frame.map(http_body::Frame::into_data)) {
                Some(Ok(Ok(bytes))) => {
                    self.meter.add(bytes.len() as u64);
                    return Poll::Ready(Some(Ok(bytes)));
                }
                // Trailers say nothing to us.
                Some(Ok(Err(_))) => {}
                Some(Err(failure)) => {
                    self.wire = None;
                    self.gunzip = None;
                    return Poll::Ready(Some(Err(failure)));
                }
                None => {
                    if let Some(Wire::Own(_, lease)) = self.wire.take() {
                        lease.give_back();
                    }
                    return Poll::Ready(None);
                }
            }
        }
    }
}
