//! A link that is slow, or is cut now and then.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

/// Stands between clients and a server. Everything that comes back shares one rate.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    link: Arc<Link>,
    tasks: Vec<JoinHandle<()>>,
}

/// How late a clock may wake.
const LATENESS: Duration = Duration::from_millis(20);

struct Link {
    server: SocketAddr,
    /// When the next byte may go, and seconds for each.
    next: Mutex<Instant>,
    seconds_per_byte: f64,
    /// Counts the cuts: all connections end when it moves.
    cut: watch::Sender<u64>,
}

impl Proxy {
    /// So many bytes a second; all connections are cut every so often, if at all.
    pub(crate) async fn start(server: SocketAddr, rate: f64, cut: Option<Duration>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let link = Arc::new(Link {
            server,
            next: Mutex::new(Instant::now()),
            seconds_per_byte: 1.0 / rate,
            cut: watch::Sender::new(0),
        });
        let mut tasks = vec![tokio::spawn(accept(listener, link.clone()))];
        if let Some(every) = cut {
            let link = link.clone();
            tasks.push(tokio::spawn(async move {
                loop {
                    sleep(every).await;
                    link.cut.send_modify(|cuts| *cuts += 1);
                }
            }));
        }
        Self { address, link, tasks }
    }

    pub(crate) fn cuts(&self) -> u64 {
        *self.link.cut.borrow()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.link.cut.send_modify(|cuts| *cuts += 1);
    }
}

async fn accept(listener: TcpListener, link: Arc<Link>) {
    while let Ok((client, _)) = listener.accept().await {
        let (link, mut cut) = (link.clone(), link.cut.subscribe());
        tokio::spawn(async move {
            cut.borrow_and_update();
            tokio::select! {
                _ = cut.changed() => {}
                () = carry(client, &link) => {}
            }
        });
    }
}

async fn carry(client: TcpStream, link: &Link) {
    let Ok(server) = TcpStream::connect(link.server).await else { return };
    // The last bytes of an answer are not to wait for an acknowledgement.
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = tokio::io::copy(&mut from_client, &mut to_server);
    let down = async {
        let mut part = vec![0; 4096];
        while let Ok(count @ 1..) = from_server.read(&mut part).await {
            link.pace(count).await;
            if to_client.write_all(&part[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = up => {}
        () = down => {}
    }
}

impl Link {
    /// Waits until so many bytes may go.
    async fn pace(&self, bytes: usize) {
        let due = {
            let mut next = self.next.lock();
            #[expect(clippy::cast_precision_loss, reason = "at most 4,096")]
            let takes = Duration::from_secs_f64(bytes as f64 * self.seconds_per_byte);
            // Clocks wake late: what was not used for that long may be used now.
            *next = (*next).max(Instant::now() - LATENESS) + takes;
            *next
        };
        sleep_until(due).await;
    }
}
