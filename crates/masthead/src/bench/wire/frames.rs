//! HTTP/2 that only counts bytes, as bare as the client of the floor: what a server's answer costs is
//! seen, and not how its client reads.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use anyhow::{bail, ensure};

use super::super::child::Hello;
use super::http::{CONNECTION_WINDOW, STREAM_WINDOW};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD_BYTES: usize = 9;
/// What is read at a time.
const READ_BYTES: usize = 1 << 20;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
/// Of SETTINGS.
const ACKNOWLEDGED: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const INITIAL_WINDOW_SIZE: u16 = 4;
/// What every connection's window is before it is told otherwise.
const FIRST_WINDOW: u32 = 65_535;
/// `:status: 200` in HPACK.
const STATUS_OK: u8 = 0x88;

/// A connection that asks for one thing after the other.
pub(crate) struct Client {
    stream: TcpStream,
    authority: String,
    authorization: String,
    /// Of the last request.
    number: u32,
    buffer: Vec<u8>,
    frames: Frames,
}

/// What is known of the frames that arrive.
#[derive(Default)]
struct Frames {
    /// A head that is not there whole, with what follows it unless that is data.
    begun: Vec<u8>,
    /// What is still to come of a frame of data.
    left: usize,
}

struct Head {
    length: usize,
    kind: u8,
    flags: u8,
}

/// What is known of an answer.
#[derive(Default)]
struct Answer {
    bytes: u64,
    /// Bytes that the server was not given back yet.
    owed: u32,
    ended: bool,
}

impl Client {
    pub(crate) fn connect(hello: &Hello) -> anyhow::Result<Self> {
        let mut stream = TcpStream::connect(hello.address)?;
        stream.set_nodelay(true)?;
        let mut window = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
        window.extend(STREAM_WINDOW.to_be_bytes());
        let mut opening = PREFACE.to_vec();
        opening.extend(frame(SETTINGS, 0, 0, &window));
        opening.extend(window_update(0, CONNECTION_WINDOW - FIRST_WINDOW));
        stream.write_all(&opening)?;
        Ok(Self {
            stream,
            authority: hello.address.to_string(),
            authorization: format!("Bearer {}", hello.token),
            number: 0,
            buffer: vec![0; READ_BYTES],
            frames: Frames::default(),
        })
    }

    /// Asks, reads the answer, and gives its bytes.
    pub(crate) fn get(&mut self, path: &str) -> anyhow::Result<u64> {
        self.number = if self.number == 0 { 1 } else { self.number + 2 };
        let headers = headers(&self.authority, &self.authorization, path);
        let flags = END_STREAM | END_HEADERS;
        self.stream.write_all(&frame(HEADERS, flags, self.number, &headers))?;
        let mut answer = Answer::default();
        while !answer.ended || self.frames.left > 0 {
            let read = self.stream.read(&mut self.buffer)?;
            ensure!(read > 0, "the answer broke off");
            let mut bytes = &self.buffer[..read];
            while let Some((head, content)) = self.frames.next(&mut bytes) {
                let reply = answer.see(self.number, &head, &content)?;
                self.stream.write_all(&reply)?;
            }
        }
        Ok(answer.bytes)
    }
}

impl Frames {
    /// Takes bytes until a frame is known: its head, and what it carries unless that is data.
    fn next(&mut self, bytes: &mut &[u8]) -> Option<(Head, Vec<u8>)> {
        let skipped = self.left.min(bytes.len());
        *bytes = &bytes[skipped..];
        self.left -= skipped;
        let head = self.take(bytes, HEAD_BYTES).then(|| parse(&self.begun))?;
        let data = head.kind == DATA;
        if !data && !self.take(bytes, HEAD_BYTES + head.length) {
            return None;
        }
        self.left = if data { head.length } else { 0 };
        let content = self.begun.split_off(HEAD_BYTES);
        self.begun.clear();
        Some((head, content))
    }

    /// Takes bytes until `wanted` of them are there. Returns `true` once they are.
    fn take(&mut self, bytes: &mut &[u8], wanted: usize) -> bool {
        let missing = wanted.saturating_sub(self.begun.len()).min(bytes.len());
        self.begun.extend_from_slice(&bytes[..missing]);
        *bytes = &bytes[missing..];
        self.begun.len() >= wanted
    }
}

impl Answer {
    /// Looks at a frame; gives what is to be said to it.
    fn see(&mut self, number: u32, head: &Head, content: &[u8]) -> anyhow::Result<Vec<u8>> {
        match head.kind {
            DATA => {
                self.bytes += head.length as u64;
                self.ended = head.flags & END_STREAM != 0;
                self.owed += u32::try_from(head.length)?;
                // By halves, as hyper's client does.
                if self.owed < STREAM_WINDOW / 2 && !self.ended {
                    return Ok(Vec::new());
                }
                let owed = std::mem::take(&mut self.owed);
                let mut updates = window_update(0, owed);
                if !self.ended {
                    updates.extend(window_update(number, owed));
                }
                Ok(updates)
            }
            HEADERS => {
                ensure!(content.first() == Some(&STATUS_OK), "the server refuses");
                Ok(Vec::new())
            }
            SETTINGS if head.flags & ACKNOWLEDGED == 0 => Ok(frame(SETTINGS, ACKNOWLEDGED, 0, &[])),
            SETTINGS | WINDOW_UPDATE => Ok(Vec::new()),
            kind => bail!("the server sends a frame of kind {kind}"),
        }
    }
}

fn parse(head: &[u8]) -> Head {
    let length = head[..3].iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    Head { length, kind: head[3], flags: head[4] }
}

fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("a short frame");
    let mut frame = length.to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(content);
    frame
}

fn window_update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// In HPACK, with names of its static table and values as they are.
fn headers(authority: &str, authorization: &str, path: &str) -> Vec<u8> {
    // `:method: GET` and `:scheme: http` stand there whole.
    let mut block = vec![0x82, 0x86];
    let values: [(&[u8], &str); 4] = [
        (&[0x01], authority),
        (&[0x04], path),
        (&[0x0f, 23 - 15], authorization),
        (&[0x0f, 19 - 15], "application/json"),
    ];
    for (name, value) in values {
        let length = u8::try_from(value.len()).ok().filter(|it| *it < 127);
        block.extend(name);
        block.push(length.expect("a short value"));
        block.extend(value.as_bytes());
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_whatever_the_steps_they_arrive_in() {
        let mut sent = frame(SETTINGS, 0, 0, &[0; 6]);
        sent.extend(frame(HEADERS, END_HEADERS, 1, &[STATUS_OK]));
        sent.extend(frame(DATA, 0, 1, &[7; 30]));
        sent.extend(frame(DATA, END_STREAM, 1, &[]));
        for step in 1..sent.len() {
            let (mut frames, mut answer) = (Frames::default(), Answer::default());
            for mut bytes in sent.chunks(step) {
                while let Some((head, content)) = frames.next(&mut bytes) {
                    answer.see(1, &head, &content).expect("a good frame");
                }
            }
            assert_eq!((answer.bytes, answer.ended), (30, true), "in steps of {step}");
        }
    }
}
