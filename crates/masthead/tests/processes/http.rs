//! A client that does only what these tests need, so that nothing stands between them and the wire.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// How to reach a server.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
}

impl Client {
    fn open(&self, method: &str, path: &str, body: &str) -> io::Result<BufReader<TcpStream>> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let (token, length) = (&self.token, body.len());
        let content_type =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
             content-type: {content_type}\r\ncontent-length: {length}\r\n\r\n{body}"
        )?;
        Ok(BufReader::new(stream))
    }

    /// One request and its whole answer.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> io::Result<(u16, Value)> {
        let mut stream = self.open(method, path, body)?;
        let (code, length) = head(&mut stream)?;
        let mut body = vec![0; length.ok_or_else(|| io::Error::other("no length"))?];
        stream.read_exact(&mut body)?;
        Ok((code, serde_json::from_slice(&body).map_err(io::Error::other)?))
    }

    /// The whole answer to a request for text.
    pub(crate) fn text(&self, path: &str) -> io::Result<(u16, String)> {
        let mut stream = self.open("GET", path, "")?;
        let (code, length) = head(&mut stream)?;
        let mut body = vec![0; length.ok_or_else(|| io::Error::other("no length"))?];
        stream.read_exact(&mut body)?;
        Ok((code, String::from_utf8(body).map_err(io::Error::other)?))
    }

    /// The lines of a watch.
    pub(crate) fn watch(&self, path: &str) -> io::Result<Lines> {
        let mut stream = self.open("GET", path, "")?;
        let (code, _) = head(&mut stream)?;
        if code != 200 {
            return Err(io::Error::other(format!("the watch was refused with {code}")));
        }
        Ok(Lines { stream, rest: Vec::new(), searched: 0 })
    }
}

/// Status code, and length if it is told.
fn head(stream: &mut BufReader<TcpStream>) -> io::Result<(u16, Option<usize>)> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let code = line.split_whitespace().nth(1).and_then(|it| it.parse().ok());
    let code = code.ok_or_else(|| io::Error::other(format!("no answer: {line:?}")))?;
    let mut length = None;
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        match line.trim_end() {
            "" => return Ok((code, length)),
            header => {
                let value = header.to_ascii_lowercase();
                length = length
                    .or(value.strip_prefix("content-length: ").and_then(|it| it.parse().ok()));
            }
        }
    }
}

/// The events of a watch as they come.
pub(crate) struct Lines {
    stream: BufReader<TcpStream>,
    rest: Vec<u8>,
    /// So much of the rest has no end of a line in it.
    searched: usize,
}

impl Lines {
    /// The next event; none at a clean end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Value>> {
        loop {
            let begun = self.searched;
            if let Some(end) = self.rest[begun..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=begun + end).collect();
                self.searched = 0;
                return serde_json::from_slice(&line).map(Some).map_err(io::Error::other);
            }
            self.searched = self.rest.len();
            let mut size = String::new();
            self.stream.read_line(&mut size)?;
            let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
            let mut chunk = vec![0; size + 2];
            self.stream.read_exact(&mut chunk)?;
            if size == 0 {
                return Ok(None);
            }
            self.rest.extend_from_slice(&chunk[..size]);
        }
    }

    /// A handle that ends the watch from elsewhere.
    pub(crate) fn stopper(&self) -> TcpStream {
        self.stream.get_ref().try_clone().unwrap()
    }
}
