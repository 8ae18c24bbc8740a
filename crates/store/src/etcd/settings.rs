//! How etcd is reached, and what is kept in it.

use std::time::Duration;

use crate::limits::{ETCD_REQUEST_TIMEOUT, KEEP_AGE};

/// How an etcd cluster is used.
#[derive(Clone)]
#[non_exhaustive]
pub struct EtcdSettings {
    /// `http://127.0.0.1:2379`, one for each member.
    pub endpoints: Vec<String>,
    /// What all keys begin with.
    pub prefix: String,
    /// Who vouches for the members' certificates, as PEM.
    pub authority: Option<Vec<u8>>,
    /// Certificate and key to show to the members, as PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// User and password.
    pub user: Option<(String, String)>,
    /// How long one call may take before another member is asked.
    pub request_timeout: Duration,
    /// History is kept at least this long, and at most twice as long.
    pub keep_age: Duration,
}

impl EtcdSettings {
    /// The members of a cluster, without TLS or user.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            prefix: "masthead".to_owned(),
            authority: None,
            identity: None,
            user: None,
            request_timeout: ETCD_REQUEST_TIMEOUT,
            keep_age: KEEP_AGE,
        }
    }

    /// What all keys begin with; `masthead` unless said.
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// How long history is kept.
    pub fn keep_age(mut self, age: Duration) -> Self {
        self.keep_age = age;
        self
    }

    /// User and password.
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.user = Some((name.to_owned(), password.to_owned()));
        self
    }

    /// Who vouches for the members' certificates, as PEM.
    pub fn authority(mut self, pem: Vec<u8>) -> Self {
        self.authority = Some(pem);
        self
    }

    /// Certificate and key to show to the members, as PEM.
    pub fn identity(mut self, certificate: Vec<u8>, key: Vec<u8>) -> Self {
        self.identity = Some((certificate, key));
        self
    }

    /// How long one call may take.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }
}

impl std::fmt::Debug for EtcdSettings {
    /// Never keys and passwords.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdSettings")
            .field("endpoints", &self.endpoints)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
