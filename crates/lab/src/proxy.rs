//! A link that can be cut.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What a link does with bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Mode {
    /// Passes them on.
    Pass,
    /// Passes on what goes to the server, and loses what comes back.
    LoseAnswers,
    /// Loses what goes to the server.
    LoseRequests,
    /// Takes connections and closes them.
    Refuse,
}

/// A TCP proxy on a port of its own. Ends with the last reference to it.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    mode: AtomicU8,
    stop: AtomicBool,
    /// Both ends of each connection.
    open: Mutex<HashMap<u64, [TcpStream; 2]>>,
    next: AtomicU64,
    lost: AtomicU64,
}

impl Proxy {
    /// A link to a port of this machine.
    pub fn to(server: u16) -> Self {
        Self::to_any(vec![server])
    }

    /// A balancer: each connection goes to the next of these ports that takes it.
    pub fn to_any(servers: Vec<u16>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mode = AtomicU8::new(Mode::Pass as u8);
        let (stop, open) = (AtomicBool::new(false), Mutex::default());
        let (next, lost) = (AtomicU64::new(0), AtomicU64::new(0));
        let shared = Arc::new(Shared { mode, stop, open, next, lost });
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for (turn, client) in listener.incoming().enumerate() {
                if accepting.stop.load(Ordering::Acquire) {
                    return;
                }
                let (Ok(client), Some(server)) = (client, connect(&servers, turn)) else {
                    continue;
                };
                if accepting.mode.load(Ordering::Acquire) != Mode::Refuse as u8 {
                    accepting.join(&client, &server);
                }
            }
        });
        Self { port, shared }
    }

    /// Where it listens.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What it does from now on.
    pub fn set(&self, mode: Mode) {
        self.shared.mode.store(mode as u8, Ordering::Release);
    }

    /// Bytes that it has lost.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Acquire)
    }

    /// Ends all connections.
    pub fn cut(&self) {
        for (_, ends) in self.shared.open.lock().unwrap().drain() {
            for end in ends {
                let _ = end.shutdown(Shutdown::Both);
            }
        }
    }
}

/// The first that takes a connection, beginning with another one each turn.
fn connect(servers: &[u16], turn: usize) -> Option<TcpStream> {
    let turns = (0..servers.len()).map(|step| servers[(turn + step) % servers.len()]);
    turns.into_iter().find_map(|port| TcpStream::connect(("127.0.0.1", port)).ok())
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // Wakes the one that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        self.cut();
    }
}

impl Shared {
    fn join(self: &Arc<Self>, client: &TcpStream, server: &TcpStream) {
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let clone = |stream: &TcpStream| stream.try_clone().unwrap();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.lock().unwrap().insert(number, [clone(client), clone(server)]);
        for (from, to, lost) in
            [(client, server, Mode::LoseRequests), (server, client, Mode::LoseAnswers)]
        {
            let (shared, from, to) = (self.clone(), clone(from), clone(to));
            std::thread::spawn(move || {
                shared.copy(from, to, lost);
                shared.open.lock().unwrap().remove(&number);
            });
        }
    }

    fn copy(&self, mut from: TcpStream, mut to: TcpStream, lost: Mode) {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if self.mode.load(Ordering::Acquire) == lost as u8 {
                self.lost.fetch_add(count as u64, Ordering::AcqRel);
            } else if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}
