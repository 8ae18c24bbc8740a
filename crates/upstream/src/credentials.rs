//! Who we are, and how that is renewed.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::Empty;
use kube_client::Config;
use kube_client::client::ConfigExt;
use masthead_reflector::Failure;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use tower::util::{BoxCloneSyncService, option_layer};
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tracing::info;

use crate::failures::{chain, unauthorized};
use crate::{HttpVersion, UpstreamError};

/// kube-client's layers around a service that answers with the headers it was sent: so we have what
/// they add without sending anything through them.
type Stamp = BoxCloneSyncService<Request<Empty<Bytes>>, Response<HeaderMap>, BoxError>;

/// The credentials of a configuration, as they are now.
pub(crate) struct Credentials {
    config: Config,
    http: HttpVersion,
    now: Mutex<Arc<Current>>,
    /// Held while they are loaded, so that many refused requests lead to one load.
    door: tokio::sync::Mutex<()>,
}

/// One state of them.
pub(crate) struct Current {
    stamp: Stamp,
    /// Where the address is secure.
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

impl Current {
    /// The headers that say who we are.
    pub(crate) async fn headers(&self) -> Result<HeaderMap, Failure> {
        let stamped = self.stamp.clone().oneshot(Request::new(Empty::new())).await;
        stamped.map(Response::into_body).map_err(|error| unauthorized(&chain(&*error)))
    }
}

impl Credentials {
    /// Loads them. This may read files and run the kubeconfig's plugin.
    pub(crate) async fn load(config: Config, http: HttpVersion) -> Result<Self, UpstreamError> {
        let failed = |error| UpstreamError::Credentials(Box::new(error));
        let current = current(config.clone(), http).await.map_err(failed)?;
        let now = Mutex::new(Arc::new(current));
        Ok(Self { config, http, now, door: tokio::sync::Mutex::default() })
    }

    pub(crate) fn now(&self) -> Arc<Current> {
        self.now.lock().clone()
    }

    /// The server does not know who `refused` is: loads the credentials again (R26). Says whether
    /// there are others now, and whether those may have another certificate.
    pub(crate) async fn reload(&self, refused: &Arc<Current>) -> Result<Option<Renewed>, Failure> {
        let auth = &self.config.auth_info;
        let certificate = auth.exec.is_some() || auth.client_certificate.is_some();
        if !certificate && auth.token_file.is_none() && auth.auth_provider.is_none() {
            return Ok(None);
        }
        let _door = self.door.lock().await;
        if Arc::ptr_eq(&self.now(), refused) {
            info!("the server does not know us: loading the credentials again");
            let loaded = current(self.config.clone(), self.http).await;
            let loaded = loaded.map_err(|error| unauthorized(&chain(&error)))?;
            *self.now.lock() = Arc::new(loaded);
        }
        Ok(Some(Renewed { certificate }))
    }
}

/// There are other credentials now.
pub(crate) struct Renewed {
    /// They may have another certificate, which only counts on a new connection.
    pub(crate) certificate: bool,
}

async fn current(config: Config, http: HttpVersion) -> kube_client::Result<Current> {
    let making = tokio::task::spawn_blocking(move || make(&config, http));
    making.await.map_err(|error| kube_client::Error::Service(error.into()))?
}

fn make(config: &Config, http: HttpVersion) -> kube_client::Result<Current> {
    if CryptoProvider::get_default().is_none() {
        // Somebody may be faster, and then theirs is used.
        let _ = aws_lc_rs::default_provider().install_default();
    }
    let secure = config.cluster_url.scheme_str() == Some("https");
    let tls = secure.then(|| tls(config, http)).transpose()?;
    let echo = service_fn(|request: Request<Empty<Bytes>>| async {
        Ok::<_, BoxError>(Response::new(request.into_parts().0.headers))
    });
    let stamped = option_layer(config.auth_layer()?).layer(echo);
    let stamped = config.extra_headers_layer()?.layer(stamped);
    Ok(Current { stamp: BoxCloneSyncService::new(stamped.map_err(BoxError::from)), tls })
}

fn tls(config: &Config, http: HttpVersion) -> kube_client::Result<Arc<ClientConfig>> {
    let mut tls = config.rustls_client_config()?;
    let offered: &[&[u8]] = match http {
        HttpVersion::Auto => &[b"h2", b"http/1.1"],
        HttpVersion::Http1 => &[b"http/1.1"],
        HttpVersion::Http2 => &[b"h2"],
    };
    tls.alpn_protocols = offered.iter().map(|it| it.to_vec()).collect();
    Ok(Arc::new(tls))
}
