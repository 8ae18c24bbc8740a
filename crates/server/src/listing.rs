//! Sending a list.

use std::io::Write;

use bytes::{Buf, Bytes};
use flate2::Compression;
use flate2::write::GzEncoder;
use masthead_core::ListBody;

use crate::body::{BodyError, Slices};
use crate::flights::{Ending, Ticket};
use crate::limits::{
    CONNECTION_BUFFER_BYTES, QUICK_STREAM_MS, SLICES_PER_WRITE, STREAM_BUFFER_BYTES,
    STREAM_BYTES_MAX,
};

/// What of a list is still to be sent.
#[derive(Debug)]
pub(crate) struct Listed {
    slices: ListBody,
    gzip: Option<GzEncoder<Vec<u8>>>,
    /// Bytes of the whole; not known before it is compressed.
    length: Option<u64>,
}

impl Listed {
    pub(crate) fn new(slices: ListBody, gzip: bool) -> Self {
        let length = (!gzip).then_some(slices.bytes() as u64);
        // Level 1 as everything faster: the client waits and the CPU is the server's.
        let gzip = gzip.then(|| GzEncoder::new(Vec::new(), Compression::new(1)));
        Self { slices, gzip, length }
    }

    /// The next part, of about so many bytes; none at the end.
    fn next(&mut self, bytes: usize) -> Option<Slices> {
        let mut part = Slices::with_capacity(SLICES_PER_WRITE.min(self.slices.len()));
        while part.count() < SLICES_PER_WRITE && part.remaining() < bytes {
            let Some(slice) = self.slices.next() else { break };
            part.push(slice);
        }
        if self.gzip.is_some() {
            return self.compress(part);
        }
        part.has_remaining().then_some(part)
    }

    fn compress(&mut self, mut part: Slices) -> Option<Slices> {
        let mut gzip = self.gzip.take()?;
        loop {
            if !part.has_remaining() {
                // The end of the list: what the encoder still holds comes last.
                let rest = gzip.finish().expect("a vector takes everything");
                return (!rest.is_empty()).then(|| Bytes::from(rest).into());
            }
            while part.has_remaining() {
                let chunk = part.chunk();
                gzip.write_all(chunk).expect("a vector takes everything");
                part.advance(chunk.len());
            }
            if !gzip.get_ref().is_empty() {
                let done = std::mem::take(gzip.get_mut());
                self.gzip = Some(gzip);
                return Some(Bytes::from(done).into());
            }
            if let Some(slice) = self.slices.next() {
                part.push(slice);
            }
        }
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
        let part = next?;
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
