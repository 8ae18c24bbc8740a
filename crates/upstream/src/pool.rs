//! Connections: which request goes on which.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::Response;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use masthead_reflector::Failure;
use rustls::ClientConfig;
use tokio::time::Instant;
use tracing::debug;

use crate::connector::{Connection, Connector};
use crate::failures::of_transport;
use crate::outgoing::Outgoing;

mod lane;

pub(crate) use lane::Lease;
use lane::{Lane, Shared, Slot};

/// What a request is for. Bulk and watches share no connection: an event would wait behind a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    List,
    Watch,
}

/// All connections to one server.
pub(crate) struct Pool {
    connector: Connector,
    streams_per_connection: usize,
    lists: Arc<Lane>,
    watches: Arc<Lane>,
}

/// An answer's head, and what its body holds on to.
type Answered = (Response<Incoming>, Lease);

impl Pool {
    pub(crate) fn new(connector: Connector, streams_per_connection: usize) -> Self {
        Self { connector, streams_per_connection, lists: Arc::default(), watches: Arc::default() }
    }

    /// Sends a request and waits for the answer's head. A connection that was there before and turns
    /// out to be dead is replaced, unless the server may have acted on the request.
    pub(crate) async fn send(
        &self,
        outgoing: &Outgoing,
        purpose: Purpose,
        elsewhere: bool,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Answered, Failure> {
        let lane = match purpose {
            Purpose::List => &self.lists,
            Purpose::Watch => &self.watches,
        };
        if elsewhere {
            // Another connection is the way to another server behind the same address.
            lane.retire();
        }
        // Each turn but the last uses up a connection that was there.
        loop {
            let (slot, fresh) = match self.kept(lane).await {
                Some(slot) => (slot, false),
                None => self.open(lane, tls.clone()).await?,
            };
            match self.send_on(slot, lane, outgoing).await {
                Ok(answered) => return Ok(answered),
                Err(error) if !fresh && (error.message().is_some() || outgoing.is_safe()) => {
                    debug!(error = %error.error(), "a kept connection is dead");
                }
                Err(error) => return Err(of_transport(error.error())),
            }
        }
    }

    /// What stands before every path.
    pub(crate) fn prefix(&self) -> &str {
        &self.connector.address.prefix
    }

    /// From now on requests go on new connections; what is under way stays on the old ones.
    pub(crate) fn retire(&self) {
        self.lists.retire();
        self.watches.retire();
    }

    async fn kept(&self, lane: &Lane) -> Option<Slot> {
        loop {
            match lane.take(self.streams_per_connection)? {
                Slot::Own(mut sender) => {
                    if sender.ready().await.is_ok() {
                        return Some(Slot::Own(sender));
                    }
                }
                stream @ Slot::Stream(..) => return Some(stream),
            }
        }
    }

    /// A place on a new connection. Where one connection serves many, many who ask at once wait for one
    /// to be made, or fail with it. Says whether the connection is new.
    async fn open(
        &self,
        lane: &Lane,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<(Slot, bool), Failure> {
        if !lane.one_each.load(Ordering::Relaxed) {
            let asked = Instant::now();
            let mut door = lane.door.lock().await;
            if let Some(slot) = self.kept(lane).await {
                return Ok((slot, false));
            }
            if let Some((at, failure)) = &*door
                && *at >= asked
            {
                return Err(failure.clone());
            }
            if !lane.one_each.load(Ordering::Relaxed) {
                let made = self.connect(lane, tls).await;
                *door = made.as_ref().err().map(|failure| (Instant::now(), failure.clone()));
                return made.map(|slot| (slot, true));
            }
        }
        self.connect(lane, tls).await.map(|slot| (slot, true))
    }

    async fn connect(&self, lane: &Lane, tls: Option<Arc<ClientConfig>>) -> Result<Slot, Failure> {
        let connection = self.connector.connect(tls).await?;
        lane.one_each.store(matches!(connection, Connection::Http1(_)), Ordering::Relaxed);
        Ok(match connection {
            Connection::Http1(sender) => Slot::Own(sender),
            Connection::Http2 { sender, streams_max } => {
                let shared = Shared::new(sender, streams_max);
                lane.share(shared.clone());
                Slot::Stream(shared)
            }
        })
    }

    async fn send_on(
        &self,
        slot: Slot,
        lane: &Arc<Lane>,
        outgoing: &Outgoing,
    ) -> Result<Answered, TrySendError<http::Request<crate::connector::Payload>>> {
        match slot {
            Slot::Own(mut sender) => {
                let request = outgoing.for_http1(&self.connector.address);
                let response = sender.try_send_request(request).await?;
                Ok((response, Lease::own(sender, lane.clone())))
            }
            Slot::Stream(mut shared) => {
                let request = outgoing.for_http2(&self.connector.address);
                match shared.sender.try_send_request(request).await {
                    Ok(response) => Ok((response, Lease::stream(&shared))),
                    Err(error) => {
                        lane.forget(&shared);
                        Err(error)
                    }
                }
            }
        }
    }
}
