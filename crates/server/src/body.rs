//! What answers are made of.
//!
//! **Invariant:** an answer does not copy objects on their way out. Answers are slices of the stored
//! bytes, handed to the socket many at a time; what many watches are sent one after the other is put
//! together once for all of them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};

use crate::budget::Share;
use crate::limits::FRAME_BYTES;
use crate::listing::ListStream;
use crate::watching::WatchStream;

/// Slices that are written one after the other.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    /// Empty only if there is nothing at all. Many have no more than this one, and need no memory for it.
    first: Bytes,
    rest: VecDeque<Bytes>,
    bytes: usize,
}

impl Slices {
    pub(crate) fn push(&mut self, piece: Bytes) {
        self.bytes += piece.len();
        if self.first.is_empty() {
            self.first = piece;
        } else if !piece.is_empty() {
            self.rest.push_back(piece);
        }
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        let bytes = self.bytes + other.bytes;
        self.push(other.first);
        self.bytes = bytes;
        self.rest.append(&mut other.rest);
    }

    pub(crate) fn push_frame(&mut self, frame: masthead_core::Frame) {
        frame.into_iter().for_each(|piece| self.push(piece));
    }

    pub(crate) fn count(&self) -> usize {
        usize::from(!self.first.is_empty()) + self.rest.len()
    }

    fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.first).filter(|it| !it.is_empty()).chain(&self.rest)
    }

    /// The same as a chunk of HTTP/1.1.
    pub(crate) fn into_chunk(mut self) -> Self {
        let head = Bytes::from(format!("{:X}\r\n", self.bytes));
        self.bytes += head.len();
        let first = std::mem::replace(&mut self.first, head);
        if !first.is_empty() {
            self.rest.push_front(first);
        }
        self.push(Bytes::from_static(b"\r\n"));
        self
    }

    /// The pieces as slices to write, as many as there is room for.
    pub(crate) fn io_slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut used = 0;
        for (slice, piece) in slices.iter_mut().zip(self.pieces()) {
            *slice = IoSlice::new(piece);
            used += 1;
        }
        used
    }

    /// As many pieces as go into one frame.
    fn note_given(&self) {
        let mut room = FRAME_BYTES;
        let fits = |piece: &&Bytes| {
            let fits = room > 0;
            room = room.saturating_sub(piece.len());
            fits
        };
        GIVEN.with_borrow_mut(|given| {
            given.clear();
            given.extend(self.pieces().take_while(fits).cloned());
        });
    }

    pub(crate) fn capacity(&self) -> usize {
        self.rest.capacity()
    }

    pub(crate) fn with_capacity(pieces: usize) -> Self {
        Self { rest: VecDeque::with_capacity(pieces), ..Self::default() }
    }
}

thread_local! {
    /// Pieces whose slices were given out last, from the first on.
    static GIVEN: RefCell<Vec<Bytes>> = const { RefCell::new(Vec::new()) };
}

/// Goes through slices that are about to be written, each with the piece that it is the beginning of
/// if this thread has just given it out as such.
pub(crate) fn with_pieces(slices: &[IoSlice<'_>], mut each: impl FnMut(&[u8], Option<Bytes>)) {
    GIVEN.with_borrow_mut(|given| {
        // They are held here, so nothing else lies where they are.
        let mut pieces = given.drain(..).peekable();
        for slice in slices {
            let piece = pieces.next_if(|it| it.as_ptr() == slice.as_ptr());
            each(slice, piece.filter(|it| it.len() >= slice.len()));
        }
    });
}

impl From<Bytes> for Slices {
    fn from(whole: Bytes) -> Self {
        Self { bytes: whole.len(), first: whole, rest: VecDeque::new() }
    }
}

impl Buf for Slices {
    fn remaining(&self) -> usize {
        self.bytes
    }

    fn chunk(&self) -> &[u8] {
        &self.first
    }

    /// Only HTTP/2 asks here, and gets to know what its slices are slices of ([`with_pieces`]).
    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.note_given();
        self.io_slices(slices)
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.bytes, "more was written than there is");
        self.bytes -= count;
        while count > 0 && count >= self.first.len() {
            count -= self.first.len();
            self.first = self.rest.pop_front().unwrap_or_default();
        }
        self.first.advance(count);
    }
}

/// Why an answer was broken off. The client sees a reset.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// Its bytes did not move for too long.
    #[error("the client did not read for too long")]
    Stalled,
    /// An object that is in memory cannot be read.
    #[error("an object of the answer cannot be read")]
    Broken,
}

/// The body of an answer.
pub(crate) enum Body {
    /// Everything is there.
    Whole(Option<Bytes>),
    /// Everything is there, and so much that it has a share of a budget until it is sent.
    Counted(Option<Bytes>, #[expect(dead_code, reason = "given back when dropped")] Share),
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
            Self::Whole(whole) | Self::Counted(whole, _) => {
                Poll::Ready(whole.take().map(|it| Ok(Frame::data(it.into()))))
            }
            Self::List(list) => Poll::Ready(list.next().map(|it| it.map(Frame::data))),
            Self::Watch(watch) => {
                let next = watch.poll_next(cx);
                if matches!(next, Poll::Ready(Some(Ok(_)))) {
                    watch.ticket().handed_out();
                }
                next.map(|it| it.map(|it| it.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None) | Self::Counted(None, _))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) | Self::Counted(whole, _) => {
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
    fn a_chunk_says_its_length_in_hexadecimal() {
        let mut chunk =
            Slices::from(Bytes::from_static(b"twenty-seven bytes of text!")).into_chunk();
        assert_eq!(chunk.copy_to_bytes(chunk.remaining()), "1B\r\ntwenty-seven bytes of text!\r\n");
    }

    #[test]
    fn what_was_just_given_out_is_known_as_the_piece_that_it_begins() {
        let [one, two, other] = ["one piece", "another", "not one of them"].map(Bytes::from);
        let mut slices = Slices::from(one.clone());
        slices.push(two.clone());
        let mut room = [IoSlice::new(&[]); 4];
        assert_eq!(Buf::chunks_vectored(&slices, &mut room[1..]), 2);
        room[0] = IoSlice::new(&other);
        // Of the last one only a part is written.
        room[2] = IoSlice::new(&two[..3]);
        let mut seen = Vec::new();
        with_pieces(&room[..3], |slice, piece| seen.push((slice.to_vec(), piece)));
        let expected =
            [(&*other, None), (&*one, Some(one.clone())), (&two[..3], Some(two.clone()))];
        assert_eq!(seen, expected.map(|(slice, piece)| (slice.to_vec(), piece)));
        with_pieces(&room[1..3], |_, piece| assert_eq!(piece, None, "was given out before"));
    }

    #[test]
    fn a_slice_that_is_longer_than_the_piece_is_not_taken_for_it() {
        let whole = Bytes::from("a whole of which a part was given out");
        let part = Slices::from(whole.slice(..7));
        let mut room = [IoSlice::new(&[]); 1];
        Buf::chunks_vectored(&part, &mut room);
        with_pieces(&[IoSlice::new(&whole)], |_, piece| assert_eq!(piece, None));
    }

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
