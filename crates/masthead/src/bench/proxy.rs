//! A way to a server that is slow, or gone for a while.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Duration, Instant, sleep_until};

/// Bytes that are handed on at a time.
const PART: usize = 8 * 1024;

pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    whole: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

/// What all answers share: when the next byte may go, and how many a second.
struct Pace {
    next: Mutex<Instant>,
    bytes: Option<u32>,
}

impl Proxy {
    /// To a server; all answers together have so many bytes a second.
    pub(super) async fn to(server: SocketAddr, bytes: Option<u32>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, whole) = (listener.local_addr()?, watch::Sender::new(true));
        let pace = Arc::new(Pace { next: Mutex::new(Instant::now()), bytes });
        let told = whole.subscribe();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // While the way is cut, whoever comes is turned away.
                if *told.borrow() {
                    tokio::spawn(carry(client, server, pace.clone(), told.clone()));
                }
            }
        });
        Ok(Self { address, whole, accepting })
    }

    /// Ends all connections and takes no new ones.
    pub(super) fn cut(&self) {
        self.whole.send_replace(false);
    }

    pub(super) fn heal(&self) {
        self.whole.send_replace(true);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

/// Carries bytes both ways until one side ends or the way is cut.
async fn carry(
    client: TcpStream,
    server: SocketAddr,
    pace: Arc<Pace>,
    mut whole: watch::Receiver<bool>,
) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    let ((mut asks, hears), (answers, mut told)) = (client.into_split(), server.into_split());
    tokio::select! {
        _ = tokio::io::copy(&mut asks, &mut told) => {}
        _ = hand_on(answers, hears, &pace) => {}
        _ = whole.wait_for(|whole| !whole) => {}
    }
}

async fn hand_on(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    pace: &Pace,
) -> std::io::Result<()> {
    let mut part = vec![0; PART];
    loop {
        let count = from.read(&mut part).await?;
        if count == 0 {
            return Ok(());
        }
        if let Some(bytes) = pace.bytes {
            let cost = Duration::from_secs(1) * u32::try_from(count).unwrap_or(u32::MAX) / bytes;
            let at = {
                let mut next = pace.next.lock();
                let at = (*next).max(Instant::now());
                *next = at + cost;
                at
            };
            sleep_until(at).await;
        }
        to.write_all(&part[..count]).await?;
    }
}
