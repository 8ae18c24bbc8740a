//! What answers are made of.
//!
//! **Invariant:** objects are never copied on their way out. Answers are slices of the stored bytes,
//! handed to the socket many at a time.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};

use crate::listing::ListStream;
use crate::watching::WatchStream;

/// Slices that are written one after the other.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    pieces: VecDeque<Bytes>,
    bytes: usize,
}

impl Slices {
    pub(crate) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    pub(crate) fn push_frame(&mut self, frame: masthead_core::Frame) {
        frame.into_iter().for_each(|piece| self.push(piece));
    }

    pub(crate) fn count(&self) -> usize {
        self.pieces.len()
    }

    pub(crate) fn with_capacity(pieces: usize) -> Self {
        Self { pieces: VecDeque::with_capacity(pieces), bytes: 0 }
    }
}

impl From<Bytes> for Slices {
    fn from(whole: Bytes) -> Self {
        let mut slices = Self::with_capacity(1);
        slices.push(whole);
        slices
    }
}

impl Buf for Slices {
    fn remaining(&self) -> usize {
        self.bytes
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut used = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(piece);
            used += 1;
        }
        used
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.bytes, "more was written than there is");
        self.bytes -= count;
        while let Some(piece) = self.pieces.front_mut() {
            if count < piece.len() {
                piece.advance(count);
                break;
            }
            count -= piece.len();
            self.pieces.pop_front();
        }
    }
}

/// Why an answer was broken off. The client sees a reset.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// Its bytes did not move for too long.
    #[error("the client did not read for too long")]
    Stalled,
}

/// The body of an answer.
pub(crate) enum Body {
    /// Everything is there.
    Whole(Option<Bytes>),
    /// Objects that are written as fast as the client reads.
    List(ListStream),
    /// Changes as they happen.
    Watch(Box<WatchStream>),
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(whole: T) -> Self {
        let whole = whole.into();
        Self::Whole((!whole.is_empty()).then_some(whole))
    }
}

impl http_body::Body for Body {
    type Data = Slices;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Slices>, BodyError>>> {
        match self.get_mut() {
            Self::Whole(whole) => Poll::Ready(whole.take().map(|it| Ok(Frame::data(it.into())))),
            Self::List(list) => Poll::Ready(list.next().map(|it| it.map(Frame::data))),
            Self::Watch(watch) => watch.poll_next(cx).map(|it| it.map(|it| it.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) => {
                SizeHint::with_exact(whole.as_ref().map_or(0, |it| it.len() as u64))
            }
            Self::List(list) => list.length().map_or_else(SizeHint::new, SizeHint::with_exact),
            Self::Watch(_) => SizeHint::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_given_out_in_order_whatever_the_steps() {
        for step in 1..12 {
            let mut slices = Slices::default();
            for piece in ["abc", "", "d", "efghi"] {
                slices.push(Bytes::from_static(piece.as_bytes()));
            }
            let mut read: Vec<u8> = Vec::new();
            while slices.has_remaining() {
                let count = step.min(slices.remaining());
                let mut room = [IoSlice::new(&[]); 8];
                let used = slices.chunks_vectored(&mut room);
                let flat: Vec<u8> = room[..used].iter().flat_map(|it| it.to_vec()).collect();
                assert_eq!(flat.len(), slices.remaining());
                read.extend(&flat[..count]);
                slices.advance(count);
            }
            assert_eq!(read, b"abcdefghi", "in steps of {step}");
        }
    }
}
