//! Where a server is and how to get there.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use http::uri::Scheme;
use percent_encoding::percent_decode_str;
use rustls::pki_types::ServerName;

use crate::UpstreamError;

/// A server's address, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) secure: bool,
    /// Host and port as they stand in URLs.
    pub(crate) authority: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// What stands before every path, without a slash at its end.
    pub(crate) prefix: String,
    /// The name that the certificate must have; only where it is secure.
    pub(crate) server_name: Option<ServerName<'static>>,
    pub(crate) proxy: Option<Proxy>,
}

/// A proxy that tunnels.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// `Proxy-Authorization`, where the URL has a user.
    pub(crate) authorization: Option<Secret>,
}

/// A text that no log may show.
#[derive(Clone)]
pub(crate) struct Secret(pub(crate) String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[…]")
    }
}

impl Address {
    pub(crate) fn of(config: &kube_client::Config) -> Result<Self, UpstreamError> {
        let url = &config.cluster_url;
        let refuse = |what| UpstreamError::Url { url: url.to_string(), what };
        let secure = match url.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(refuse("it begins with neither https:// nor http://")),
        };
        let host = url.host().ok_or_else(|| refuse("it has no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = url.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let name = config.tls_server_name.clone().unwrap_or_else(|| host.clone());
        let server_name = match ServerName::try_from(name) {
            _ if !secure => None,
            Ok(name) => Some(name),
            Err(_) => return Err(refuse("its host cannot be the name in a certificate")),
        };
        let authority = url.authority().map(ToString::to_string).unwrap_or_default();
        let prefix = url.path().trim_end_matches('/').to_owned();
        let proxy = config.proxy_url.as_ref().map(Proxy::of).transpose()?;
        Ok(Self { secure, authority, host, port, prefix, server_name, proxy })
    }
}

impl Proxy {
    fn of(url: &Uri) -> Result<Self, UpstreamError> {
        let host = url.host().filter(|_| url.scheme() == Some(&Scheme::HTTP));
        // The URL may hold a password.
        let scheme = || url.scheme_str().unwrap_or_default().to_owned();
        let host = host.ok_or_else(|| UpstreamError::Proxy { scheme: scheme() })?;
        let user = url.authority().and_then(|it| it.as_str().rsplit_once('@'));
        let authorization = user.map(|(user, _)| {
            let plain: Vec<u8> = percent_decode_str(user).collect();
            Secret(format!("Basic {}", STANDARD.encode(plain)))
        });
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { host, port: url.port_u16().unwrap_or(80), authorization })
    }
}

#[cfg(test)]
mod tests {
    use kube_client::Config;

    use super::*;

    fn address(url: &'static str) -> Result<Address, UpstreamError> {
        Address::of(&Config::new(Uri::from_static(url)))
    }

    #[test]
    fn an_address_is_taken_apart() {
        let it = address("https://[::1]:6443/k8s/clusters/c-1/").unwrap();
        assert_eq!((it.host.as_str(), it.port, it.secure), ("::1", 6443, true));
        assert_eq!(
            (it.authority.as_str(), it.prefix.as_str()),
            ("[::1]:6443", "/k8s/clusters/c-1")
        );
        let it = address("http://api").unwrap();
        assert_eq!((it.port, it.prefix.as_str(), it.server_name.is_none()), (80, "", true));
        let error = address("ftp://api").unwrap_err().to_string();
        assert!(error.starts_with("ftp://api/ is no address of an API server"), "{error}");
    }

    #[test]
    fn a_proxy_is_used_or_refused_and_its_password_not_shown() {
        let mut config = Config::new(Uri::from_static("https://api"));
        config.proxy_url = Some(Uri::from_static("http://me:pa%40ss@proxy:3128"));
        let proxy = Address::of(&config).unwrap().proxy.unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), ("proxy", 3128));
        assert!(!format!("{proxy:?}").contains("Basic"));
        let plain = format!("Basic {}", STANDARD.encode("me:pa@ss"));
        assert_eq!(proxy.authorization.unwrap().0, plain);
        config.proxy_url = Some(Uri::from_static("socks5://me:secret@proxy"));
        let error = Address::of(&config).unwrap_err().to_string();
        assert!(error.contains("socks5") && !error.contains("secret"), "{error}");
    }
}
