//! How an API server is talked to.

use std::time::Duration;

use http::HeaderValue;

use crate::limits;

/// Which HTTP is spoken.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum HttpVersion {
    /// HTTP/2 where the TLS handshake agrees on it (ALPN), otherwise HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1: a connection for each watch.
    Http1,
    /// HTTP/2, also in the clear, where nothing can be agreed on beforehand.
    Http2,
}

/// All numbers of an upstream. The default is right for a Kubernetes API server.
///
/// ```
/// use masthead_upstream::Settings;
///
/// let wrong = Settings { requests_per_second: 5, burst: 0, ..Settings::default() };
/// let error = wrong.validate().unwrap_err().to_string();
/// assert_eq!(error, "burst must not be zero where requests_per_second is 5");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Requests a second, lists, watches and all others together; 0 = as they come. Off by default: a
    /// reflector paces itself, and the server's own priority and fairness knows better than a number
    /// here.
    pub requests_per_second: u32,
    /// So many requests may go at once before the pace counts.
    pub burst: u32,
    /// From the look-up of the name to the end of the TLS handshake.
    pub connect_timeout: Duration,
    /// Streams on one HTTP/2 connection before another one is made. Never more than the server allows.
    pub streams_per_connection: usize,
    /// Ask for lists and watches compressed. Off by default: packing is what costs a server most about
    /// a list, and inside a cluster bandwidth is cheaper. Worth it across the internet. A kubeconfig
    /// with `disable-compression` switches it off, and so does a ready client.
    pub gzip: bool,
    /// `User-Agent`.
    pub user_agent: String,
    /// Which HTTP is spoken.
    pub http: HttpVersion,
    /// How often a watch's HTTP/2 connection is asked whether it is still there.
    pub ping_interval: Duration,
    /// How long the answer to that may take.
    pub ping_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            requests_per_second: 0,
            burst: 0,
            connect_timeout: limits::CONNECT_TIMEOUT,
            streams_per_connection: limits::STREAMS_PER_CONNECTION,
            gzip: false,
            user_agent: concat!("masthead/", env!("CARGO_PKG_VERSION")).to_owned(),
            http: HttpVersion::Auto,
            ping_interval: limits::PING_INTERVAL,
            ping_timeout: limits::PING_TIMEOUT,
        }
    }
}

/// A setting that cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A value that makes no sense.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// A pace that lets nothing through.
    #[error("burst must not be zero where requests_per_second is {requests_per_second}")]
    Burst {
        /// The pace.
        requests_per_second: u32,
    },
    /// A text that is no header.
    #[error("user_agent {0:?} cannot be sent: use printable ASCII without line breaks")]
    UserAgent(String),
    /// Times out of order (R27).
    #[error("connect_timeout is {connect:?}, progress is {progress:?}: the first must be shorter")]
    Order {
        /// This upstream's.
        connect: Duration,
        /// The reflector's.
        progress: Duration,
    },
}

impl Settings {
    /// Can it be so? The error names the setting that cannot.
    pub fn validate(&self) -> Result<(), SettingsError> {
        if self.connect_timeout.is_zero() {
            return Err(SettingsError::Zero("connect_timeout"));
        }
        if self.streams_per_connection == 0 {
            return Err(SettingsError::Zero("streams_per_connection"));
        }
        if self.ping_interval.is_zero() {
            return Err(SettingsError::Zero("ping_interval"));
        }
        if self.ping_timeout.is_zero() {
            return Err(SettingsError::Zero("ping_timeout"));
        }
        if self.requests_per_second > 0 && self.burst == 0 {
            let requests_per_second = self.requests_per_second;
            return Err(SettingsError::Burst { requests_per_second });
        }
        self.user_agent_value().map(drop)
    }

    /// Do they fit a reflector's (R27)? A connection must be given up before the request is.
    pub fn fit(&self, reflector: &masthead_reflector::Settings) -> Result<(), SettingsError> {
        let (connect, progress) = (self.connect_timeout, reflector.progress);
        if connect < progress { Ok(()) } else { Err(SettingsError::Order { connect, progress }) }
    }

    pub(crate) fn user_agent_value(&self) -> Result<HeaderValue, SettingsError> {
        HeaderValue::from_str(&self.user_agent)
            .map_err(|_| SettingsError::UserAgent(self.user_agent.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_possible_and_fits_a_reflector() {
        let settings = Settings::default();
        assert_eq!(settings.validate(), Ok(()));
        assert_eq!(settings.fit(&masthead_reflector::Settings::default()), Ok(()));
    }

    #[test]
    fn a_refused_setting_is_named() {
        let text = |settings: Settings| settings.validate().unwrap_err().to_string();
        let it = Settings::default;
        let zero = Duration::ZERO;
        assert!(text(Settings { connect_timeout: zero, ..it() }).starts_with("connect_timeout"));
        assert!(text(Settings { ping_interval: zero, ..it() }).starts_with("ping_interval"));
        assert!(text(Settings { ping_timeout: zero, ..it() }).starts_with("ping_timeout"));
        let none = Settings { streams_per_connection: 0, ..it() };
        assert!(text(none).starts_with("streams_per_connection"));
        let broken = Settings { user_agent: "a\nb".into(), ..it() };
        assert!(text(broken).starts_with("user_agent"));
    }

    #[test]
    fn r27_a_connection_is_given_up_before_the_request_is() {
        let settings = Settings { connect_timeout: Duration::from_secs(30), ..Settings::default() };
        let error = settings.fit(&masthead_reflector::Settings::default()).unwrap_err();
        let text = "connect_timeout is 30s, progress is 30s: the first must be shorter";
        assert_eq!(error.to_string(), text);
    }
}
