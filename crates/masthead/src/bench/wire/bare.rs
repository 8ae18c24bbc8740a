//! Watches over HTTP/1.1 at the least cost that a client can have, as they share the machine with the
//! server: one read for what has arrived, and records opened where they lie. rustls shakes hands; what it
//! does after that, reading by 4 KB and copying each record twice, would cost as much as the server.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};

use anyhow::{Context as _, bail, ensure};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::ConnectionTrafficSecrets;
use rustls::crypto::cipher::{self, Iv};
use tokio::io::{AsyncRead as _, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;

use super::{BUFFER, Dialer, Seen, Watch};

/// Type, version and length of a record.
const HEAD_BYTES: usize = 5;
/// Of a record's content, after it.
const APPLICATION_DATA: u8 = 23;

/// A watch that is open.
pub(crate) struct Following {
    watch: Arc<Watch>,
    incoming: Incoming,
    seen: Seen,
}

/// What a server sends.
struct Incoming {
    stream: TcpStream,
    records: Option<Records>,
}

/// TLS 1.3 in one direction.
struct Records {
    key: LessSafeKey,
    iv: Iv,
    number: u64,
    /// A record that is not there whole.
    begun: Vec<u8>,
}

impl Following {
    /// Opens a watch; the server has answered when this returns. Events that came with the answer are
    /// taken note of.
    pub(crate) async fn open(
        dialer: &Dialer,
        number: usize,
        path: &str,
        watch: Arc<Watch>,
    ) -> anyhow::Result<Self> {
        let (mut incoming, mut head) = (dialer.ask(number, path).await?, Vec::new());
        let end = loop {
            let read = incoming.read(|bytes| head.extend_from_slice(bytes)).await?;
            let end = memchr::memmem::find(&head, b"\r\n\r\n");
            ensure!(read > 0 || end.is_some(), "the server ends without an answer");
            if let Some(end) = end {
                break end + 4;
            }
        };
        let (head, events) = head.split_at(end);
        let head = String::from_utf8_lossy(head);
        ensure!(head.starts_with("HTTP/1.1 200"), "the server answers {head:?}");
        let mut seen = Seen::default();
        watch.see(events, &mut seen);
        Ok(Self { watch, incoming, seen })
    }

    /// Reads to the end.
    pub(crate) async fn run(mut self) {
        let (watch, seen) = (&self.watch, &mut self.seen);
        while let Ok(1..) = self.incoming.read(|bytes| watch.see(bytes, seen)).await {}
        watch.end();
    }
}

impl Dialer {
    /// Sends the head of a request over connection `number`.
    async fn ask(&self, number: usize, path: &str) -> anyhow::Result<Incoming> {
        let Self { address, token, .. } = self;
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
             accept: application/json\r\nuser-agent: masthead-bench\r\n\r\n"
        );
        let mut stream = self.dial(number).await?;
        let Some(tls) = &self.tls else {
            stream.write_all(head.as_bytes()).await?;
            return Ok(Incoming { stream, records: None });
        };
        let mut tls = tls.connect(self.name(), stream).await?;
        tls.write_all(head.as_bytes()).await?;
        tls.flush().await?;
        // Nothing of what the server says after its handshake has been read: it speaks when spoken to.
        let (stream, connection) = tls.into_inner();
        let (number, secrets) = connection.dangerous_extract_secrets()?.rx;
        Ok(Incoming { stream, records: Some(Records::new(number, &secrets)?) })
    }
}

impl Incoming {
    /// Looks at what has arrived, in one or more pieces or none, as records are whole; gives the bytes
    /// that were read, none at the end.
    async fn read(&mut self, mut look: impl FnMut(&[u8])) -> anyhow::Result<usize> {
        let Self { stream, records } = self;
        poll_fn(|cx| {
            BUFFER.with_borrow_mut(|buffer| {
                let begun = records.as_ref().map_or(0, |it| it.begun.len());
                let mut free = ReadBuf::new(&mut buffer[begun..]);
                ready!(Pin::new(&mut *stream).poll_read(cx, &mut free))?;
                let read = free.filled().len();
                let Some(records) = records else {
                    look(&buffer[..read]);
                    return Poll::Ready(Ok(read));
                };
                buffer[..begun].copy_from_slice(&records.begun);
                records.open(&mut buffer[..begun + read], &mut look)?;
                Poll::Ready(Ok(read))
            })
        })
        .await
    }
}

impl Records {
    fn new(number: u64, secrets: &ConnectionTrafficSecrets) -> anyhow::Result<Self> {
        let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else {
            bail!("the server wants another cipher than the client's first");
        };
        let key = UnboundKey::new(&AES_128_GCM, key.as_ref())?;
        let iv = Iv::copy(iv.as_ref());
        Ok(Self { key: LessSafeKey::new(key), iv, number, begun: Vec::new() })
    }

    /// Looks at the content of all records that are whole, and keeps the rest.
    fn open(&mut self, bytes: &mut [u8], look: &mut impl FnMut(&[u8])) -> anyhow::Result<()> {
        let mut at = 0;
        while let Some((head, rest)) = bytes[at..].split_first_chunk_mut::<HEAD_BYTES>() {
            let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
            let Some(record) = rest.get_mut(..length) else { break };
            let nonce = Nonce::assume_unique_for_key(cipher::Nonce::new(&self.iv, self.number).0);
            self.number += 1;
            let opened = self.key.open_in_place(nonce, Aad::from(*head), record);
            let opened = opened.context("a record that is not the server's")?;
            // Tickets are of another type. Neither we nor Go pad.
            if let Some((&APPLICATION_DATA, content)) = opened.split_last() {
                look(content);
            }
            at += HEAD_BYTES + length;
        }
        self.begun.clear();
        self.begun.extend_from_slice(&bytes[at..]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICKET: u8 = 22;

    fn records() -> Records {
        let key = UnboundKey::new(&AES_128_GCM, &[7; 16]).expect("16 bytes");
        let (key, iv) = (LessSafeKey::new(key), Iv::copy(&[3; 12]));
        Records { key, iv, number: 0, begun: Vec::new() }
    }

    fn sealed(number: u64, content: &[u8], kind: u8) -> Vec<u8> {
        let Records { key, iv, .. } = records();
        let mut record = [content, &[kind]].concat();
        let length = u16::try_from(record.len() + AES_128_GCM.tag_len()).expect("it is short");
        let [high, low] = length.to_be_bytes();
        let head = [APPLICATION_DATA, 3, 3, high, low];
        let nonce = Nonce::assume_unique_for_key(cipher::Nonce::new(&iv, number).0);
        let sealed = key.seal_in_place_append_tag(nonce, Aad::from(head), &mut record);
        sealed.expect("it is short");
        [&head[..], &record].concat()
    }

    #[test]
    fn records_are_opened_whatever_the_steps_they_arrive_in() {
        let sent = [sealed(0, b"ticket", TICKET), sealed(1, b"{}\n", 23), sealed(2, b"{}\n", 23)];
        let sent = sent.concat();
        for step in 1..=sent.len() {
            let (mut records, mut seen) = (records(), Vec::new());
            for bytes in sent.chunks(step) {
                let mut bytes = [&records.begun, bytes].concat();
                let opened = records.open(&mut bytes, &mut |it| seen.extend_from_slice(it));
                opened.expect("good records");
            }
            assert_eq!(seen, b"{}\n{}\n", "in steps of {step}");
            assert!(records.begun.is_empty(), "in steps of {step}");
        }
    }

    #[test]
    fn a_record_that_was_changed_is_not_opened() {
        let mut sent = sealed(0, b"{}\n", APPLICATION_DATA);
        *sent.last_mut().expect("a tag") ^= 1;
        assert!(records().open(&mut sent, &mut |_| ()).is_err());
    }
}
