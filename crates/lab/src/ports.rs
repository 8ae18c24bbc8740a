//! Ports that nobody listens on.

use std::net::TcpListener;

/// A free port of the loopback address. Another process may take it before it is used; whoever starts
/// a program on it looks whether that one got it.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}
