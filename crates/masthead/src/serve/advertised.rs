//! The address under which clients reach the server.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A name or an address, and a port if it is not the one that the server listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Advertised {
    pub(super) host: String,
    port: Option<u16>,
}

impl Advertised {
    /// The host and the port as they stand in a URL.
    pub(super) fn authority(&self, listening_port: u16) -> String {
        let port = self.port.unwrap_or(listening_port);
        let host = &self.host;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// What a client on this machine connects to.
impl From<SocketAddr> for Advertised {
    fn from(address: SocketAddr) -> Self {
        let host = match address.ip() {
            ip if !ip.is_unspecified() => ip.to_string(),
            IpAddr::V4(_) => "127.0.0.1".to_owned(),
            IpAddr::V6(_) => "::1".to_owned(),
        };
        Self { host, port: Some(address.port()) }
    }
}

const EXPECTED: &str =
    "expected a name or an address, for example masthead.example.com, 10.0.0.5:6443 or [::1]:6443";

impl FromStr for Advertised {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self { host: address.ip().to_string(), port: Some(address.port()) });
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self { host: address.to_string(), port: None });
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port.parse().map_err(|_| EXPECTED)?)),
            None => (text, None),
        };
        let is_label = |label: &str| {
            let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            !label.is_empty() && label.bytes().all(is_inner) && !label.starts_with('-')
        };
        if !host.split('.').all(is_label) {
            return Err(EXPECTED);
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_read_with_and_without_a_port() {
        let authority = |text: &str| text.parse::<Advertised>().map(|it| it.authority(7443)).ok();
        for (text, expected) in [
            ("masthead.example.com", Some("masthead.example.com:7443")),
            ("masthead:6443", Some("masthead:6443")),
            ("10.0.0.5", Some("10.0.0.5:7443")),
            ("10.0.0.5:1", Some("10.0.0.5:1")),
            ("::1", Some("[::1]:7443")),
            ("[::1]:1", Some("[::1]:1")),
            ("https://masthead", None),
            ("masthead:port", None),
            ("a..b", None),
            ("", None),
        ] {
            assert_eq!(authority(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_server_on_all_addresses_is_reached_on_loopback() {
        let of = |text: &str| Advertised::from(text.parse::<SocketAddr>().unwrap()).authority(1);
        assert_eq!(of("0.0.0.0:5"), "127.0.0.1:5");
        assert_eq!(of("[::]:5"), "[::1]:5");
        assert_eq!(of("10.0.0.5:5"), "10.0.0.5:5");
    }
}
