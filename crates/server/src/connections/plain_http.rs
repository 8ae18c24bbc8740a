//! Clients that speak plain HTTP on a port of TLS: told so, as Go's servers do.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::limits::PLAIN_REQUEST_BYTES;

/// The text is that of Go's servers, which clients know.
const ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\n\
    content-length: 48\r\nconnection: close\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Hands a connection on if its client begins with something else than the name of a method. No record of
/// TLS begins with a capital letter.
pub(super) async fn refuse(mut stream: TcpStream) -> io::Result<TcpStream> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 || !first[0].is_ascii_uppercase() {
        return Ok(stream);
    }
    // What was sent and not read would reset the connection before the answer is there.
    let mut request = vec![0; PLAIN_REQUEST_BYTES];
    let _ = stream.read(&mut request).await?;
    stream.write_all(ANSWER).await?;
    stream.shutdown().await?;
    Err(io::Error::new(io::ErrorKind::InvalidData, "plain HTTP on a port of TLS"))
}
