//! Sending long answers over HTTP/1.1: watches and large lists.
//!
//! A watch lives long and mostly waits, so it does not keep hyper's state and its 16 KiB of buffers
//! for as long; a large list is little more than vectored writes, and hyper makes them small. So once
//! one of them is to be answered, the connection is taken back from hyper and is a socket and a
//! [`Body`], until the answer ends and hyper reads the next request.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use bytes::{Buf as _, Bytes};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};

use super::wire::{Socket, Wire};
use crate::body::{Body, BodyError, Slices};
use crate::flights::Wide;
use crate::limits::{TAKEN_LIST_BYTES_MIN, UNSENT_BYTES_MAX, UNSENT_LIST_BYTES_MAX};
use crate::listing::ListStream;
use crate::watching::{Framing, WatchStream};

/// The chunk that ends an answer.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// A long answer whose head is not sent yet.
pub(super) struct Long {
    status: StatusCode,
    headers: HeaderMap,
    stream: Stream,
}

enum Stream {
    /// In chunks.
    Watch(Box<WatchStream>),
    /// Of a known length.
    List(ListStream),
}

/// Returns `true` if the answer to a request needs nothing but a body, on a connection that stays open.
pub(super) fn is_simple<B: http_body::Body>(request: &Request<B>) -> bool {
    let kept = |it: &HeaderValue| it.as_bytes().eq_ignore_ascii_case(b"keep-alive");
    request.version() == Version::HTTP_11
        && request.method() == Method::GET
        && request.body().is_end_stream()
        && request.headers().get_all(CONNECTION).iter().all(kept)
}

/// Returns `true` if a response is sent without hyper, provided that the request allows it.
pub(super) fn is_long(response: &Response<Body>) -> bool {
    match response.body() {
        Body::Whole(_) | Body::Counted(..) => false,
        Body::List(list) => list.length().is_some_and(|bytes| bytes >= TAKEN_LIST_BYTES_MIN),
        Body::Watch(_) => true,
    }
}

impl Long {
    /// The answer that a long response is; none if it is something else.
    pub(super) fn of(response: Response<Body>) -> Option<Self> {
        let (mut parts, body) = response.into_parts();
        let (stream, name, value) = match body {
            Body::Whole(_) | Body::Counted(..) => return None,
            Body::List(list) => {
                let length = HeaderValue::from(list.length()?);
                (Stream::List(list), CONTENT_LENGTH, length)
            }
            Body::Watch(mut watch) => {
                watch.set_framing(Framing::Chunks);
                (Stream::Watch(watch), TRANSFER_ENCODING, HeaderValue::from_static("chunked"))
            }
        };
        parts.headers.insert(name, value);
        Some(Self { status: parts.status, headers: parts.headers, stream })
    }

    /// Sends it to its end. An error is the end of the connection, too.
    pub(super) async fn send<S: Socket>(self, wire: &mut Wire<S>) -> io::Result<()> {
        let mut out = Slices::from(head(self.status, &self.headers));
        let (mut stream, mut ended) = (self.stream, false);
        drop(self.headers);
        let mut room = Room::default();
        // What there is already goes out with the head.
        match poll_fn(|cx| Poll::Ready(stream.poll_next(cx))).await {
            Poll::Ready(Some(part)) => out.append(part.map_err(io::Error::other)?),
            Poll::Ready(None) => {
                out.append(stream.end());
                ended = true;
            }
            Poll::Pending => {}
        }
        let mut unsent = true;
        poll_fn(|cx| {
            loop {
                if unsent {
                    room.widen(wire, &stream, out.remaining());
                    match wire.poll_send(cx, &mut out) {
                        Poll::Ready(sent) => sent?,
                        Poll::Pending if stream.is_stalled(cx) => {
                            return Poll::Ready(Err(io::Error::other(BodyError::Stalled)));
                        }
                        Poll::Pending => return Poll::Pending,
                    }
                }
                if ended {
                    room.narrow(wire);
                    return Poll::Ready(Ok(()));
                }
                unsent = true;
                match stream.poll_next(cx) {
                    Poll::Ready(Some(part)) => out = part.map_err(io::Error::other)?,
                    Poll::Ready(None) => (out, ended) = (stream.end(), true),
                    Poll::Pending => {
                        unsent = false;
                        room.narrow(wire);
                        let Some(waker) = stream.looks_around() else { return Poll::Pending };
                        return wire.poll_gone(&mut Context::from_waker(&waker)).map(Err);
                    }
                }
            }
        })
        .await
    }
}

/// How much the kernel takes before the client has room for it: the fewer the waits, the cheaper. A list
/// has a budget for that, and of watches with much to catch up with only some get it.
#[derive(Default)]
enum Room {
    #[default]
    Narrow,
    Wide {
        _held: Option<Wide>,
    },
}

impl Room {
    fn widen<S: Socket>(&mut self, wire: &Wire<S>, stream: &Stream, bytes: usize) {
        if matches!(self, Self::Wide { .. }) || bytes <= UNSENT_BYTES_MAX as usize {
            return;
        }
        let right = match stream {
            Stream::List(_) => None,
            Stream::Watch(watch) => match watch.ticket().widen() {
                None => return,
                right => right,
            },
        };
        wire.set_unsent_max(UNSENT_LIST_BYTES_MAX);
        *self = Self::Wide { _held: right };
    }

    fn narrow<S: Socket>(&mut self, wire: &Wire<S>) {
        if let Self::Wide { .. } = std::mem::take(self) {
            wire.set_unsent_max(UNSENT_BYTES_MAX);
        }
    }
}

impl Stream {
    /// What it handed out is not taken: has it been given up for that? Wakes when it is.
    fn is_stalled(&self, cx: &mut Context<'_>) -> bool {
        let ticket = match self {
            Self::Watch(watch) => watch.ticket(),
            Self::List(list) => list.ticket(),
        };
        ticket.held_up();
        ticket.is_stalled(cx)
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Slices, BodyError>>> {
        match self {
            Self::Watch(watch) => watch.poll_next(cx),
            Self::List(list) => Poll::Ready(list.next()),
        }
    }

    /// The waker to wait for the client with; none while it need not be waited for.
    fn looks_around(&mut self) -> Option<Waker> {
        match self {
            Self::Watch(watch) => watch.looks_around(),
            // It never waits for anything but its client to read.
            Self::List(_) => None,
        }
    }

    /// What follows the last part.
    fn end(&self) -> Slices {
        match self {
            Self::Watch(_) => Bytes::from_static(LAST_CHUNK).into(),
            Self::List(_) => Slices::default(),
        }
    }
}

fn head(status: StatusCode, headers: &HeaderMap) -> Bytes {
    let reason = status.canonical_reason().unwrap_or_default();
    let mut head = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).into_bytes();
    let mut line = |name: &str, value: &[u8]| {
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            head.extend_from_slice(part);
        }
    };
    headers.iter().for_each(|(name, value)| line(name.as_str(), value.as_bytes()));
    line(DATE.as_str(), httpdate::fmt_http_date(SystemTime::now()).as_bytes());
    head.extend_from_slice(b"\r\n");
    head.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_has_the_status_and_the_headers_of_the_response() {
        let mut headers = HeaderMap::new();
        headers.insert("warning", HeaderValue::from_static("299 - x"));
        for (status, line) in [
            (StatusCode::OK, "HTTP/1.1 200 OK\r\n"),
            (StatusCode::PARTIAL_CONTENT, "HTTP/1.1 206 Partial Content\r\n"),
        ] {
            let head = head(status, &headers);
            let text = str::from_utf8(&head).unwrap();
            assert!(text.starts_with(&format!("{line}warning: 299 - x\r\ndate: ")), "{text}");
            assert!(text.ends_with("\r\n\r\n"), "{text}");
        }
    }
}
