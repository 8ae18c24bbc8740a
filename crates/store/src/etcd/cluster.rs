//! The members of a cluster: whom to ask, and what to do when one does not answer.

use std::error::Error;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::uri::PathAndQuery;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, ConnectError, Request, Status, Streaming};
use tonic_prost::ProstCodec;
use tracing::{debug, warn};

use super::messages::{
    Answer, AuthenticateRequest, Call, StatusRequest, WATCH_PATH, WatchCreateRequest, WatchRequest,
    WatchResponse, Watching,
};
use super::settings::EtcdSettings;
use crate::limits::{
    ETCD_CONNECT_TIMEOUT, ETCD_CONNECTION_WINDOW_BYTES, ETCD_ENDPOINTS_MAX, ETCD_KEEP_ALIVE,
    ETCD_KEEP_ALIVE_TIMEOUT, ETCD_PATIENCE, ETCD_RETRY_PAUSE, ETCD_STREAM_WINDOW_BYTES,
    ETCD_WATCH_REQUESTS_MAX,
};

/// The cluster as one peer. Members are asked in turn: the same one as long as it answers.
pub(crate) struct Cluster {
    members: Vec<Member>,
    /// Whom to ask next.
    turn: AtomicUsize,
    user: Option<(String, String)>,
    token: Mutex<Option<MetadataValue<Ascii>>>,
    request_timeout: Duration,
    /// Which cluster it is; zero before the first answer.
    id: AtomicU64,
}

struct Member {
    endpoint: String,
    calls: Channel,
    /// Apart, so that a long page does not hold up events.
    watches: Channel,
}

/// A watch stream.
pub(crate) struct WatchStream {
    pub(crate) requests: mpsc::Sender<WatchRequest>,
    pub(crate) responses: Streaming<WatchResponse>,
    /// Which member it goes to.
    pub(crate) member: usize,
}

/// Why a call has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// No member could be connected to: nothing was sent.
    #[error("no etcd member can be reached ({endpoints}): {why}")]
    Unreachable { endpoints: String, why: String },
    /// etcd said no: nothing happened.
    #[error("etcd refused it: {}", .0.message())]
    Refused(Arc<Status>),
    /// It was sent, and what became of it is not known.
    #[error("etcd did not answer: {0}")]
    Lost(String),
    /// Another cluster answered than before.
    #[error("cluster {is:x} answers where {was:x} did")]
    Stranger { was: u64, is: u64 },
}

impl Fault {
    /// Returns `true` if the request was for history that is gone.
    pub(crate) fn is_compacted(&self) -> bool {
        matches!(self, Self::Refused(status)
            if status.code() == Code::OutOfRange && status.message().contains("compacted"))
    }

    /// Returns `true` if the cluster has no room left.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Refused(status)
            if status.code() == Code::ResourceExhausted && status.message().contains("space exceeded"))
    }

    /// Returns `true` if the cluster is overloaded.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Self::Refused(status)
            if status.code() == Code::ResourceExhausted && status.message().contains("too many requests"))
    }

    /// Returns `true` if the lease of the object does not exist any more.
    pub(crate) fn is_unleased(&self) -> bool {
        matches!(self, Self::Refused(status) if status.message().contains("lease not found"))
    }

    /// Returns `true` if the request is larger than the cluster takes.
    pub(crate) fn is_too_large(&self) -> bool {
        matches!(self, Self::Refused(status)
            if status.message().contains("too large") || status.message().contains("larger than max"))
    }
}

/// Why a cluster cannot be used as it is described.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct Misdescribed {
    pub(crate) what: String,
}

impl Cluster {
    /// Connects when something is asked.
    pub(crate) fn new(settings: &EtcdSettings) -> Result<Self, Misdescribed> {
        let wrong = |what: String| Misdescribed { what };
        if settings.endpoints.is_empty() {
            return Err(wrong(
                "no endpoint is named: give at least one, as http://127.0.0.1:2379".into(),
            ));
        }
        if settings.endpoints.len() > ETCD_ENDPOINTS_MAX {
            return Err(wrong(format!("more than {ETCD_ENDPOINTS_MAX} endpoints are named")));
        }
        let members = settings.endpoints.iter().map(|it| Member::new(it, settings));
        let members = members.collect::<Result<_, _>>().map_err(wrong)?;
        Ok(Self {
            members,
            turn: AtomicUsize::new(0),
            user: settings.user.clone(),
            token: Mutex::default(),
            request_timeout: settings.request_timeout,
            id: AtomicU64::new(0),
        })
    }

    /// How many members are known.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Asks until there is an answer, for calls that may be made twice.
    pub(crate) async fn ask<C: Call>(&self, call: C) -> Result<C::Answer, Fault> {
        let deadline = Instant::now() + ETCD_PATIENCE.max(self.request_timeout);
        loop {
            let fault = match timeout_at(deadline, self.call(call.clone())).await {
                Err(_) => return Err(Fault::Lost(format!("no answer in {ETCD_PATIENCE:?}"))),
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(fault @ (Fault::Refused(_) | Fault::Stranger { .. }))) => return Err(fault),
                Ok(Err(fault)) => fault,
            };
            debug!(%fault, call = C::PATH, "asking again");
            if Instant::now() + ETCD_RETRY_PAUSE > deadline {
                return Err(fault);
            }
            sleep(ETCD_RETRY_PAUSE).await;
        }
    }

    /// Asks once. Only members that cannot be connected to are passed over.
    pub(crate) async fn call<C: Call>(&self, call: C) -> Result<C::Answer, Fault> {
        let mut why = String::new();
        for _ in 0..self.members.len() {
            let member = self.turn.load(Ordering::Relaxed);
            match self.call_one(member, call.clone()).await {
                Err(Trouble::Unconnected(what)) => {
                    self.pass_over(member);
                    why = what;
                }
                Err(Trouble::Lost(what)) => {
                    self.pass_over(member);
                    return Err(Fault::Lost(what));
                }
                Err(Trouble::Refused(status)) => return Err(Fault::Refused(Arc::new(status))),
                Ok(answer) => return self.recognise(answer),
            }
        }
        Err(Fault::Unreachable { endpoints: self.endpoints(), why })
    }

    /// The version of a member.
    pub(crate) async fn version(&self, member: usize) -> Result<String, Fault> {
        match self.call_one(member, StatusRequest {}).await {
            Ok(status) => Ok(self.recognise(status)?.version),
            Err(trouble) => Err(trouble.into()),
        }
    }

    /// Opens a watch. etcd does not answer before something is asked.
    pub(crate) async fn watch(&self, create: WatchCreateRequest) -> Result<WatchStream, Fault> {
        let mut last = None;
        for _ in 0..self.members.len() {
            let member = self.turn.load(Ordering::Relaxed);
            match self.watch_one(member, create.clone()).await {
                Ok(stream) => return Ok(stream),
                Err(trouble) => {
                    self.pass_over(member);
                    last = Some(trouble);
                }
            }
        }
        Err(last.map_or_else(|| Fault::Lost("there are no members".to_owned()), Fault::from))
    }

    async fn watch_one(
        &self,
        member: usize,
        create: WatchCreateRequest,
    ) -> Result<WatchStream, Trouble> {
        let (requests, outgoing) = mpsc::channel(ETCD_WATCH_REQUESTS_MAX);
        let create = WatchRequest { request: Some(Watching::Create(create)) };
        requests.try_send(create).expect("there is room in a new channel");
        let mut request = Request::new(ReceiverStream::new(outgoing));
        // A member that is cut off from the others ends the watch instead of staying silent.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        self.sign(&mut request, member).await?;
        let mut client = client(&self.members[member].watches);
        let open = async {
            client.ready().await.map_err(|error| Trouble::Unconnected(chain(&error)))?;
            let path = PathAndQuery::from_static(WATCH_PATH);
            client.streaming(request, path, ProstCodec::default()).await.map_err(Trouble::from)
        };
        let opened = timeout(self.request_timeout, open).await;
        let responses = opened.map_err(|_| self.silence(member))??.into_inner();
        Ok(WatchStream { requests, responses, member })
    }

    /// The next call goes to another member.
    pub(crate) fn pass_over(&self, member: usize) {
        let next = (member + 1) % self.members.len();
        let moved = self.turn.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
        if moved.is_ok() && next != member {
            warn!(
                from = self.members[member].endpoint,
                to = self.members[next].endpoint,
                "changing the etcd member"
            );
        }
    }

    async fn call_one<C: Call>(&self, member: usize, call: C) -> Result<C::Answer, Trouble> {
        match self.try_one(member, call.clone()).await {
            Err(Trouble::Refused(status)) if is_unsigned(&status) && self.user.is_some() => {
                *self.token.lock() = None;
                self.try_one(member, call).await
            }
            result => result,
        }
    }

    async fn try_one<C: Call>(&self, member: usize, call: C) -> Result<C::Answer, Trouble> {
        let mut request = Request::new(call);
        self.sign(&mut request, member).await?;
        self.send(member, request).await
    }

    async fn send<C: Call>(
        &self,
        member: usize,
        request: Request<C>,
    ) -> Result<C::Answer, Trouble> {
        let mut client = client(&self.members[member].calls);
        let path = PathAndQuery::from_static(C::PATH);
        let ask = async {
            client.ready().await.map_err(|error| Trouble::Unconnected(chain(&error)))?;
            let codec = ProstCodec::<C, C::Answer>::default();
            client.unary(request, path, codec).await.map_err(Trouble::from)
        };
        let answer = timeout(self.request_timeout, ask).await;
        Ok(answer.map_err(|_| self.silence(member))??.into_inner())
    }

    /// Adds the token of the user, if there is one.
    async fn sign<T>(&self, request: &mut Request<T>, member: usize) -> Result<(), Trouble> {
        let Some((name, password)) = &self.user else { return Ok(()) };
        let known = self.token.lock().clone();
        let token = if let Some(token) = known {
            token
        } else {
            let (name, password) = (name.clone(), password.clone());
            let call = Request::new(AuthenticateRequest { name, password });
            let token = self.send(member, call).await?.token;
            let token = MetadataValue::from_str(&token);
            let token = token.map_err(|_| Trouble::Lost("etcd's token is no text".to_owned()))?;
            self.token.lock().insert(token).clone()
        };
        request.metadata_mut().insert("token", token);
        Ok(())
    }

    fn silence(&self, member: usize) -> Trouble {
        let (endpoint, time) = (&self.members[member].endpoint, self.request_timeout);
        Trouble::Lost(format!("{endpoint} did not answer in {time:?}"))
    }

    /// Passes an answer on if it is from the cluster that answered before.
    pub(crate) fn recognise<A: Answer>(&self, answer: A) -> Result<A, Fault> {
        let is = answer.header().map_or(0, |header| header.cluster_id);
        self.recognise_id(is).map(|()| answer)
    }

    pub(crate) fn recognise_id(&self, is: u64) -> Result<(), Fault> {
        if is == 0 {
            return Ok(());
        }
        match self.id.compare_exchange(0, is, Ordering::AcqRel, Ordering::Acquire) {
            Err(was) if was != is => Err(Fault::Stranger { was, is }),
            _ => Ok(()),
        }
    }

    /// From now on it may be another cluster.
    pub(crate) fn forget(&self) {
        self.id.store(0, Ordering::Release);
    }

    fn endpoints(&self) -> String {
        let endpoints: Vec<_> = self.members.iter().map(|it| it.endpoint.as_str()).collect();
        endpoints.join(", ")
    }
}

impl Member {
    fn new(endpoint: &str, settings: &EtcdSettings) -> Result<Self, String> {
        let wrong = |error: &dyn Error| format!("{endpoint} is no endpoint: {}", chain(error));
        let channel = || -> Result<Channel, String> {
            let mut built = Endpoint::from_str(endpoint)
                .map_err(|error| wrong(&error))?
                .connect_timeout(ETCD_CONNECT_TIMEOUT)
                .http2_keep_alive_interval(ETCD_KEEP_ALIVE)
                .keep_alive_timeout(ETCD_KEEP_ALIVE_TIMEOUT)
                .keep_alive_while_idle(true)
                .initial_connection_window_size(ETCD_CONNECTION_WINDOW_BYTES)
                .initial_stream_window_size(ETCD_STREAM_WINDOW_BYTES)
                .tcp_nodelay(true);
            if endpoint.starts_with("https://") {
                built = built.tls_config(tls(settings)).map_err(|error| wrong(&error))?;
            } else if !endpoint.starts_with("http://") {
                return Err(format!(
                    "{endpoint} is no endpoint: it begins with neither http:// nor https://"
                ));
            }
            Ok(built.connect_lazy())
        };
        Ok(Self { endpoint: endpoint.to_owned(), calls: channel()?, watches: channel()? })
    }
}

fn tls(settings: &EtcdSettings) -> ClientTlsConfig {
    let mut tls = ClientTlsConfig::new();
    if let Some(authority) = &settings.authority {
        tls = tls.ca_certificate(Certificate::from_pem(authority));
    }
    if let Some((certificate, key)) = &settings.identity {
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    tls
}

fn client(channel: &Channel) -> Grpc<Channel> {
    // Pages are kept small by what is asked for, and one object may be as large as etcd takes it.
    Grpc::new(channel.clone()).max_decoding_message_size(usize::MAX)
}

/// What one member answered instead of an answer.
enum Trouble {
    /// Nothing was sent.
    Unconnected(String),
    Lost(String),
    Refused(Status),
}

impl From<Status> for Trouble {
    fn from(status: Status) -> Self {
        let mut source = status.source();
        while let Some(error) = source {
            if error.is::<ConnectError>() {
                return Self::Unconnected(chain(error));
            }
            source = error.source();
        }
        match status.code() {
            Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Unknown
            | Code::Internal
            | Code::Aborted => Self::Lost(status.message().to_owned()),
            _ => Self::Refused(status),
        }
    }
}

impl From<Trouble> for Fault {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Unconnected(why) | Trouble::Lost(why) => Self::Lost(why),
            Trouble::Refused(status) => Self::Refused(Arc::new(status)),
        }
    }
}

fn is_unsigned(status: &Status) -> bool {
    status.code() == Code::Unauthenticated || status.message().contains("auth token")
}

/// An error and its causes in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        // Some say their cause in their own words already.
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}
