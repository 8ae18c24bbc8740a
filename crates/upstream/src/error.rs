//! Why there is no upstream.

use kube_client::config::{InferConfigError, KubeconfigError};

use crate::SettingsError;

/// Why an API server cannot be talked to at all. What goes wrong later is a
/// [`Failure`](masthead_reflector::Failure).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// A setting cannot be.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The kubeconfig cannot be used.
    #[error(
        "the kubeconfig cannot be used: check the file and its context with `kubectl config view`"
    )]
    Kubeconfig(#[from] KubeconfigError),
    /// There is neither a kubeconfig nor a service account.
    #[error(
        "there is no API server to talk to: set KUBECONFIG, write ~/.kube/config, or run in a pod \
         with a service account"
    )]
    Nowhere(#[from] InferConfigError),
    /// The server's URL is none.
    #[error("{url} is no address of an API server, {what}: write https://host:port")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A proxy of a sort that is not spoken.
    #[error(
        "a {scheme:?} proxy is not supported: use an http:// one, or hand in a kube client that is \
         built with support for it"
    )]
    Proxy {
        /// How its URL begins.
        scheme: String,
    },
    /// Certificates, keys or credentials of the configuration cannot be used.
    #[error("the certificates or credentials cannot be used: check them in the kubeconfig")]
    Credentials(#[source] Box<kube_client::Error>),
}
