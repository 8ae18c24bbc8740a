//! A handle to one API server.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use kube_client::Config;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use masthead_core::{Resource, Selectors};
use masthead_reflector::{Class, Failure, Meter, ServerMemory};

use crate::address::Address;
use crate::answer::{Answer, Chunks, Wire};
use crate::connector::Connector;
use crate::credentials::{Credentials, Current};
use crate::failures::of_transport;
use crate::outgoing::Outgoing;
use crate::pace::Pace;
use crate::pool::{Pool, Purpose};
use crate::{ApiSource, Namespaces, Representation, Settings, SourceError, UpstreamError};

/// What plain requests accept.
const JSON: &str = "application/json";

/// One API server, and everything that is shared by those who ask it: connections, credentials, pace,
/// and what it has shown of itself. A clone is the same upstream. It needs a tokio runtime.
///
/// Nothing is tried again here: a [`Source`](masthead_reflector::Source) has no opinion about that.
/// The exceptions are a kept connection that turns out to be dead, and credentials, which are loaded
/// again once when the server does not know them (R26).
#[derive(Clone)]
pub struct Upstream(Arc<Inner>);

struct Inner {
    transport: Transport,
    pace: Pace,
    gzip: bool,
    user_agent: HeaderValue,
    name: String,
    namespace: String,
    memory: ServerMemory,
}

enum Transport {
    Own(Box<Own>),
    Client(kube_client::Client),
}

/// Our own HTTP.
struct Own {
    pool: Pool,
    credentials: Credentials,
}

/// How a request is to be sent.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) purpose: Purpose,
    pub(crate) elsewhere: bool,
}

impl Upstream {
    /// The server that `kubectl` would ask: of `KUBECONFIG`, of `~/.kube/config`, or in a pod the
    /// cluster's own.
    pub async fn infer(settings: Settings) -> Result<Self, UpstreamError> {
        Self::from_config(Config::infer().await?, settings).await
    }

    /// The server of a kubeconfig: of this file or, without one, of `KUBECONFIG` and
    /// `~/.kube/config`; in this context or, without one, in the current.
    pub async fn from_kubeconfig(
        file: Option<&Path>,
        context: Option<&str>,
        settings: Settings,
    ) -> Result<Self, UpstreamError> {
        let context = context.map(str::to_owned);
        let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
        let config = match file {
            None => Config::from_kubeconfig(&options).await?,
            Some(file) => {
                Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &options).await?
            }
        };
        Self::from_config(config, settings).await
    }

    /// The server of a configuration of kube-client. Its time-outs and its retries are not used.
    pub async fn from_config(config: Config, settings: Settings) -> Result<Self, UpstreamError> {
        settings.validate()?;
        let address = Address::of(&config)?;
        let name = config.cluster_url.to_string();
        let namespace = config.default_namespace.clone();
        let gzip = settings.gzip && !config.disable_compression;
        let connector = Connector::new(address, &settings);
        let pool = Pool::new(connector, settings.streams_per_connection);
        let credentials = Credentials::load(config, settings.http).await?;
        let transport = Transport::Own(Box::new(Own { pool, credentials }));
        Self::new(transport, &settings, gzip, name, namespace)
    }

    /// The server of a ready client. Every request goes through it as a tower service, so its layers,
    /// its connections and its credentials count; of the settings only the pace and the user agent
    /// do. Build it with `default_retry` off: tries that a reflector does not see are not paced.
    pub fn from_client(
        client: kube_client::Client,
        settings: &Settings,
    ) -> Result<Self, UpstreamError> {
        settings.validate()?;
        let namespace = client.default_namespace().to_owned();
        let transport = Transport::Client(client);
        // A client that unpacks by itself stops after the first member.
        Self::new(transport, settings, false, "a ready client".to_owned(), namespace)
    }

    fn new(
        transport: Transport,
        settings: &Settings,
        gzip: bool,
        name: String,
        namespace: String,
    ) -> Result<Self, UpstreamError> {
        let pace = Pace::new(settings.requests_per_second, settings.burst);
        let (user_agent, memory) = (settings.user_agent_value()?, ServerMemory::new());
        Ok(Self(Arc::new(Inner { transport, pace, gzip, user_agent, name, namespace, memory })))
    }

    /// The namespace that the configuration names for those who name none.
    pub fn default_namespace(&self) -> &str {
        &self.0.namespace
    }

    /// What the server has shown of itself: to be given to every reflector that asks it (R2).
    pub fn memory(&self) -> ServerMemory {
        self.0.memory.clone()
    }

    /// Lists and watches of a resource.
    pub fn source(
        &self,
        resource: &Resource,
        namespaces: &Namespaces,
        selectors: &Selectors,
        representation: Representation,
    ) -> Result<ApiSource, SourceError> {
        ApiSource::new(self.clone(), resource, namespaces, selectors, representation)
    }

    /// A JSON document of the server, for example `/version`.
    pub async fn get(&self, path: &str) -> Result<Bytes, Failure> {
        self.get_as(path, JSON).await
    }

    /// Posts a JSON document and gives back what the server answers, for example a
    /// `SelfSubjectAccessReview`. It is not sent twice unless the server cannot have seen it.
    pub async fn post(&self, path: &str, body: impl Into<Bytes>) -> Result<Bytes, Failure> {
        let outgoing = self.outgoing(path, JSON)?.posting(body.into());
        self.send(&outgoing, Manner::PLAIN, Meter::default()).await?.whole().await
    }

    pub(crate) async fn get_as(&self, path: &str, accept: &'static str) -> Result<Bytes, Failure> {
        let outgoing = self.outgoing(path, accept)?;
        self.send(&outgoing, Manner::PLAIN, Meter::default()).await?.whole().await
    }

    pub(crate) fn outgoing(&self, path: &str, accept: &'static str) -> Result<Outgoing, Failure> {
        let prefix = match &self.0.transport {
            Transport::Own(own) => own.pool.prefix(),
            Transport::Client(_) => "",
        };
        let outgoing = Outgoing::new(prefix, path, accept)?;
        Ok(outgoing.with(self.0.gzip, self.0.user_agent.clone()))
    }

    /// Sends a request and waits for the head of an answer that says yes.
    pub(crate) async fn send(
        &self,
        outgoing: &Outgoing,
        manner: Manner,
        meter: Meter,
    ) -> Result<Chunks, Failure> {
        self.0.pace.turn().await;
        match &self.0.transport {
            Transport::Own(own) => own.send(outgoing, manner, meter).await,
            Transport::Client(client) => through(client, outgoing, meter).await,
        }
    }
}

impl Own {
    async fn send(
        &self,
        outgoing: &Outgoing,
        manner: Manner,
        meter: Meter,
    ) -> Result<Chunks, Failure> {
        let current = self.credentials.now();
        let refused = match self.ask(&current, outgoing, manner, meter.clone()).await {
            Err(failure) if failure.class() == Class::Unauthorized => failure,
            answered => return answered,
        };
        let Some(renewed) = self.credentials.reload(&current).await? else { return Err(refused) };
        if renewed.certificate {
            self.pool.retire();
        }
        self.ask(&self.credentials.now(), outgoing, manner, meter).await
    }

    async fn ask(
        &self,
        current: &Current,
        outgoing: &Outgoing,
        manner: Manner,
        meter: Meter,
    ) -> Result<Chunks, Failure> {
        let mut outgoing = outgoing.clone();
        outgoing.headers.extend(current.headers().await?);
        let Manner { purpose, elsewhere } = manner;
        let sent = self.pool.send(&outgoing, purpose, elsewhere, current.tls.clone()).await;
        let (response, lease) = sent?;
        let (head, body) = response.into_parts();
        Answer::new(head, Wire::Own(body, lease), meter).accepted().await
    }
}

impl Manner {
    const PLAIN: Self = Self { purpose: Purpose::List, elsewhere: false };
}

async fn through(
    client: &kube_client::Client,
    outgoing: &Outgoing,
    meter: Meter,
) -> Result<Chunks, Failure> {
    let sent = client.send(outgoing.for_client()).await;
    let (head, body) = sent.map_err(|error| of_transport(&error))?.into_parts();
    Answer::new(head, Wire::Client(body), meter).accepted().await
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Upstream").field(&self.0.name).finish()
    }
}
