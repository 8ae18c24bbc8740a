//! Sending a list.

use bytes::Buf;
use masthead_core::ListBody;

use crate::body::{BodyError, Slices};
use crate::flights::{Ending, Ticket};
use crate::limits::{
    CONNECTION_BUFFER_BYTES, QUICK_STREAM_MS, SLICES_PER_WRITE, STREAM_BUFFER_BYTES,
    STREAM_BYTES_MAX,
};
use crate::zipped::Zipper;

/// What of a list is still to be sent.
#[derive(Debug)]
pub(crate) struct Listed {
    slices: ListBody,
    zipper: Option<Box<Zipper>>,
    /// Bytes of the whole; not known before it is compressed.
    length: Option<u64>,
}

impl Listed {
    pub(crate) fn new(slices: ListBody, zipper: Option<Zipper>) -> Self {
        let length = zipper.is_none().then_some(slices.bytes() as u64);
        Self { slices, zipper: zipper.map(Box::new), length }
    }

    /// The next part, of about so many bytes; none at the end.
    fn next(&mut self, bytes: usize) -> Option<Result<Slices, BodyError>> {
        let part = self.next_part(bytes);
        // What came before it is not sent either: the client must not take it for a whole.
        if self.slices.is_broken() { Some(Err(BodyError::Broken)) } else { part.map(Ok) }
    }

    fn next_part(&mut self, bytes: usize) -> Option<Slices> {
        if let Some(zipper) = &mut self.zipper {
            return zipper.next(&mut self.slices, bytes);
        }
        let mut part = Slices::with_capacity(SLICES_PER_WRITE.min(self.slices.len()));
        while part.count() < SLICES_PER_WRITE && part.remaining() < bytes {
            let Some(slice) = self.slices.next() else { break };
            part.push(slice);
        }
        part.has_remaining().then_some(part)
    }
}

/// A list on its way to a client.
#[derive(Debug)]
pub(crate) struct ListStream {
    ticket: Ticket,
    length: Option<u64>,
    /// What is handed out at a time.
    step: usize,
}

impl ListStream {
    pub(crate) fn new(ticket: Ticket) -> Self {
        let length = ticket.with_list(|list| list.length).flatten();
        let step = if ticket.multiplexed() { STREAM_BUFFER_BYTES } else { CONNECTION_BUFFER_BYTES };
        Self { ticket, length, step }
    }

    pub(crate) fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    pub(crate) fn length(&self) -> Option<u64> {
        self.length
    }

    pub(crate) fn next(&mut self) -> Option<Result<Slices, BodyError>> {
        let took = self.ticket.asked();
        if self.ticket.multiplexed() {
            self.step = step(self.step, took);
        }
        let Some(next) = self.ticket.with_list(|list| list.next(self.step)) else {
            debug_assert_eq!(self.ticket.ending(), Some(Ending::Stalled));
            return Some(Err(BodyError::Stalled));
        };
        let part = match next? {
            Ok(part) => part,
            broken => return Some(broken),
        };
        self.length = self.length.map(|length| length - part.remaining() as u64);
        self.ticket.handed_out();
        Some(Ok(part))
    }
}

/// What a stream of HTTP/2 is given next, after what it was given took so many milliseconds. A stream
/// has no other sign of life than that it asks, so one that is slow gets little at a time.
fn step(last: usize, took: u64) -> usize {
    if took > QUICK_STREAM_MS { STREAM_BUFFER_BYTES } else { (last * 2).min(STREAM_BYTES_MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_stream_gets_more_at_a_time_up_to_the_limit_and_a_slow_one_little() {
        assert_eq!(step(STREAM_BUFFER_BYTES, QUICK_STREAM_MS), 2 * STREAM_BUFFER_BYTES);
        assert_eq!(step(STREAM_BYTES_MAX, 0), STREAM_BYTES_MAX);
        assert_eq!(step(STREAM_BYTES_MAX, QUICK_STREAM_MS + 1), STREAM_BUFFER_BYTES);
    }
}
