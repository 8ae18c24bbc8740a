//! A certificate authority, a server certificate and an administrator, made at the first start.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use crate::records::crypto_provider;

/// What can go wrong with keys and certificates.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// A file cannot be read or written.
    #[error("cannot {action} {path}")]
    File {
        /// `read`, `write`, `create`.
        action: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file that the server made is not what it should be.
    #[error("{path} is not usable: {what}; remove it to have a new one made")]
    Content {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A file that the server was given is not what it should be.
    #[error("{path} is not usable: {what}")]
    Given {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A key or a certificate could not be made.
    #[error("cannot make a key or a certificate")]
    Make(#[source] rcgen::Error),
}

/// Where a server's own credentials are: below its data directory, readable by its user only.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The authority's certificate, as PEM.
    pub ca: String,
    /// The server's certificate, as PEM.
    pub certificate: String,
    key: String,
    /// The administrator's bearer token.
    pub admin_token: String,
}

impl Credentials {
    /// Reads what is in the directory, and makes what is missing. The server's certificate is good
    /// for the names of this machine's loopback and for `names`, which may be addresses.
    pub fn load_or_create(directory: &Path, names: &[String]) -> Result<Self, CredentialsError> {
        let failed = |source| CredentialsError::File {
            action: "create",
            path: directory.to_owned(),
            source,
        };
        fs::create_dir_all(directory).map_err(failed)?;
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).map_err(failed)?;
        let path = |name: &str| directory.join(name);
        let (ca_file, ca_key_file) = (path("ca.crt"), path("ca.key"));
        if !ca_file.exists() || !ca_key_file.exists() {
            let (certificate, key) = make_authority().map_err(CredentialsError::Make)?;
            write_secret(&ca_key_file, &key)?;
            write_secret(&ca_file, &certificate)?;
        }
        let (ca, ca_key) = (read(&ca_file)?, read(&ca_key_file)?);
        let (file, key_file) = (path("server.crt"), path("server.key"));
        let names_file = path("server.names");
        let names = server_names(names);
        let same_names = fs::read_to_string(&names_file).is_ok_and(|it| it == names.join("\n"));
        if !same_names || !file.exists() || !key_file.exists() {
            let (certificate, key) = make_server(&ca, &ca_key, &ca_file, &names)?;
            write_secret(&key_file, &key)?;
            write_secret(&file, &certificate)?;
            write_secret(&names_file, &names.join("\n"))?;
        }
        let token_file = path("admin.token");
        if !token_file.exists() {
            write_secret(&token_file, &random_token())?;
        }
        let admin_token = read(&token_file)?.trim().to_owned();
        if admin_token.len() < 16 {
            let what = "the token is shorter than 16 characters".to_owned();
            return Err(CredentialsError::Content { path: token_file, what });
        }
        Ok(Self { ca, certificate: read(&file)?, key: read(&key_file)?, admin_token })
    }

    /// The TLS side of a server with these credentials. Clients may show certificates of the own
    /// authority or of `client_ca`.
    pub fn tls(&self, client_ca: Option<&Path>) -> Result<Arc<ServerConfig>, CredentialsError> {
        let damaged = |file: &str, what| CredentialsError::Content { path: file.into(), what };
        let mut roots = RootCertStore::empty();
        add_authorities(&mut roots, &self.ca).map_err(|what| damaged("ca.crt", what))?;
        add_client_authorities(&mut roots, client_ca)?;
        let chain = certificates_in(&self.certificate);
        let chain = chain.map_err(|what| damaged("server.crt", what))?;
        let key = key_in(&self.key).map_err(|what| damaged("server.key", what))?;
        tls(chain, key, roots).map_err(|what| damaged("server.crt", what))
    }

    /// The address, the trust and the token of the administrator.
    pub fn kubeconfig(&self, url: &str, trust: &Trust) -> String {
        let mut cluster = vec![format!("server: {url}")];
        if let Some(certificates) = &trust.certificates {
            let certificates = STANDARD.encode(certificates);
            cluster.push(format!("certificate-authority-data: {certificates}"));
        }
        if let Some(name) = &trust.server_name {
            cluster.push(format!("tls-server-name: {name}"));
        }
        let cluster = cluster.join("\n    ");
        let token = &self.admin_token;
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: masthead\n  cluster:\n    {cluster}\nusers:\n\
             - name: admin\n  user:\n    token: {token}\ncontexts:\n- name: masthead\n  context:\n    \
             cluster: masthead\n    user: admin\n    namespace: default\ncurrent-context: masthead\n"
        )
    }

    /// What clients need to trust the server's own certificate.
    pub fn trust(&self) -> Trust {
        Trust { certificates: Some(self.ca.clone()), server_name: None }
    }
}

/// What a client needs to trust a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Certificates that the server's must be, or be issued by, as PEM. None for a server without TLS.
    pub certificates: Option<String>,
    /// The name to check the certificate against, if it is not the one in the URL.
    pub server_name: Option<String>,
}

impl Trust {
    /// What clients need to trust a certificate that the server was given: its authority, or the
    /// certificates of the file themselves. A certificate that is not good for `host` is checked against
    /// the first name that it has.
    pub fn of_files(
        certificate: &Path,
        authority: Option<&Path>,
        host: &str,
    ) -> Result<Self, CredentialsError> {
        let read_certificates = |path: &Path| {
            let unusable = |what| CredentialsError::Given { path: path.to_owned(), what };
            let text = read(path)?;
            let found = certificates_in(&text).map_err(unusable)?;
            Ok::<_, CredentialsError>((text, found))
        };
        let (text, chain) = read_certificates(certificate)?;
        let (_, first) = X509Certificate::from_der(&chain[0]).map_err(|error| {
            CredentialsError::Given { path: certificate.to_owned(), what: error.to_string() }
        })?;
        let server_name = name_other_than(&first, host);
        let trusted = match authority {
            Some(path) => read_certificates(path)?.0,
            None => text,
        };
        Ok(Self { certificates: Some(trusted), server_name })
    }
}

/// The first name of a certificate that is not good for a host.
fn name_other_than(certificate: &X509Certificate<'_>, host: &str) -> Option<String> {
    let names = certificate.subject_alternative_name().ok().flatten()?;
    let names: Vec<String> = names
        .value
        .general_names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => address_of(bytes),
            _ => None,
        })
        .collect();
    if names.iter().any(|name| covers(name, host)) {
        return None;
    }
    names.into_iter().find(|name| !name.contains('*'))
}

/// The address that a certificate has as bytes.
fn address_of(bytes: &[u8]) -> Option<String> {
    let four: Result<[u8; 4], _> = bytes.try_into();
    let sixteen: Result<[u8; 16], _> = bytes.try_into();
    let four = four.ok().map(|bytes| IpAddr::from(bytes).to_string());
    four.or_else(|| sixteen.ok().map(|bytes| IpAddr::from(bytes).to_string()))
}

/// Returns `true` if a certificate's name is good for a host. A `*` stands for the first label.
fn covers(name: &str, host: &str) -> bool {
    match name.strip_prefix("*.") {
        Some(domain) => host.split_once('.').is_some_and(|(_, rest)| rest == domain),
        None => name.eq_ignore_ascii_case(host),
    }
}

/// The TLS side of a server with a certificate from somewhere else.
pub fn tls_from_files(
    certificate: &Path,
    key: &Path,
    client_ca: Option<&Path>,
) -> Result<Arc<ServerConfig>, CredentialsError> {
    let unusable = |path: &Path, what| CredentialsError::Given { path: path.to_owned(), what };
    let mut roots = RootCertStore::empty();
    add_client_authorities(&mut roots, client_ca)?;
    let chain = certificates_in(&read(certificate)?);
    let chain = chain.map_err(|what| unusable(certificate, what))?;
    let private = key_in(&read(key)?).map_err(|what| unusable(key, what))?;
    let fits = |what| format!("with the key {}: {what}", key.display());
    tls(chain, private, roots).map_err(|what| unusable(certificate, fits(what)))
}

/// Clients may show a certificate that one of `roots` issued. Without roots none is asked for.
fn tls(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: RootCertStore,
) -> Result<Arc<ServerConfig>, String> {
    let provider = crypto_provider();
    let config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let config = if roots.is_empty() {
        config.with_no_client_auth()
    } else {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build()
            .map_err(|error| error.to_string())?;
        config.with_client_cert_verifier(verifier)
    };
    let mut config = config.with_single_cert(chain, key).map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn add_client_authorities(
    roots: &mut RootCertStore,
    file: Option<&Path>,
) -> Result<(), CredentialsError> {
    let Some(path) = file else { return Ok(()) };
    let unusable = |what| CredentialsError::Given { path: path.to_owned(), what };
    add_authorities(roots, &read(path)?).map_err(unusable)
}

fn add_authorities(roots: &mut RootCertStore, pem: &str) -> Result<(), String> {
    for authority in certificates_in(pem)? {
        roots.add(authority).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The certificates of a PEM text, at least one.
fn certificates_in(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let found = found.map_err(|error| error.to_string())?;
    if found.is_empty() {
        return Err("it has no certificate in PEM form (-----BEGIN CERTIFICATE-----)".to_owned());
    }
    Ok(found)
}

fn key_in(pem: &str) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| format!("it has no private key in PEM form: {error}"))
}

fn server_names(more: &[String]) -> Vec<String> {
    let mut names: Vec<String> = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "127.0.0.1",
        "::1",
    ]
    .map(str::to_owned)
    .into();
    for name in more {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// Certificates are good for twenty years from here, so that a wrong clock does not lock anybody out.
const BACKDATED_YEAR: i32 = 2025;

fn make_authority() -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "masthead-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = rcgen::date_time_ymd(BACKDATED_YEAR, 1, 1);
    params.not_after = rcgen::date_time_ymd(BACKDATED_YEAR + 20, 1, 1);
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn make_server(
    ca: &str,
    ca_key: &str,
    ca_file: &Path,
    names: &[String],
) -> Result<(String, String), CredentialsError> {
    let unusable = |error: rcgen::Error| CredentialsError::Content {
        path: ca_file.to_owned(),
        what: error.to_string(),
    };
    let authority_key = KeyPair::from_pem(ca_key).map_err(unusable)?;
    let issuer = Issuer::from_ca_cert_pem(ca, authority_key).map_err(unusable)?;
    let make = || {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name.push(DnType::CommonName, "masthead");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.not_before = rcgen::date_time_ymd(BACKDATED_YEAR, 1, 1);
        params.not_after = rcgen::date_time_ymd(BACKDATED_YEAR + 20, 1, 1);
        let certificate = params.signed_by(&key, &issuer)?;
        Ok((certificate.pem(), key.serialize_pem()))
    };
    make().map_err(CredentialsError::Make)
}

fn random_token() -> String {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    URL_SAFE_NO_PAD.encode(bytes)
}

fn read(path: &Path) -> Result<String, CredentialsError> {
    fs::read_to_string(path).map_err(|source| CredentialsError::File {
        action: "read",
        path: path.to_owned(),
        source,
    })
}

/// Writes a file that only its user can read, whole or not at all. One that is so already is left as it is, so that
/// a server can also start on a full disk.
pub fn write_secret(path: &Path, content: &str) -> Result<(), CredentialsError> {
    if is_secret(path) && fs::read_to_string(path).is_ok_and(|found| found == content) {
        return Ok(());
    }
    let temporary = path.with_extension("new");
    let write = || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&temporary)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|source| CredentialsError::File {
        action: "write",
        path: path.to_owned(),
        source,
    })
}

/// Returns `true` if there is a file that only its user can read.
fn is_secret(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o777 == 0o600)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_secret_is_written_anew_only_if_it_is_another_or_others_can_read_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("secret");
        let write = |content: &str| {
            write_secret(&file, content).expect("is written");
            let metadata = fs::metadata(&file).expect("is there");
            assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
            assert_eq!(fs::read_to_string(&file).expect("can be read"), content);
            metadata.ino()
        };
        let first = write("one");
        assert_eq!(write("one"), first);
        assert_ne!(write("two"), first);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("are set");
        write("two");
    }

    #[test]
    fn credentials_are_made_once_and_only_their_user_can_read_them() {
        let directory = tempfile::tempdir().expect("a directory");
        let home = directory.path().join("pki");
        let made = Credentials::load_or_create(&home, &[]).expect("are made");
        let again = Credentials::load_or_create(&home, &[]).expect("are read");
        assert_eq!(made.admin_token, again.admin_token);
        assert_eq!(made.certificate, again.certificate);
        for file in fs::read_dir(&home).expect("is there") {
            let file = file.expect("can be read");
            let rights = file.metadata().expect("has some").permissions().mode() & 0o777;
            assert_eq!(rights, 0o600, "{:?}", file.path());
        }
        let elsewhere = ["10.1.2.3".to_owned(), "masthead.example".to_owned()];
        let moved = Credentials::load_or_create(&home, &elsewhere).expect("are made");
        assert_ne!(made.certificate, moved.certificate, "a new address needs a new certificate");
        assert_eq!(
            (made.ca.as_str(), made.admin_token),
            (moved.ca.as_str(), moved.admin_token.clone())
        );
        assert!(moved.tls(None).is_ok());
        let kubeconfig = moved.kubeconfig("https://x", &moved.trust());
        assert!(kubeconfig.contains("certificate-authority-data: "));
    }

    #[test]
    fn files_that_are_damaged_are_named() {
        let directory = tempfile::tempdir().expect("a directory");
        Credentials::load_or_create(directory.path(), &[]).expect("are made");
        fs::write(directory.path().join("server.key"), "nonsense").expect("is written");
        let damaged = Credentials::load_or_create(directory.path(), &[]).expect("are read");
        assert!(damaged.tls(None).is_err());
        fs::write(directory.path().join("admin.token"), "short").expect("is written");
        let error = Credentials::load_or_create(directory.path(), &[]).expect_err("too short");
        assert!(error.to_string().contains("admin.token"), "{error}");
    }

    #[test]
    fn a_given_file_without_a_certificate_or_a_key_is_refused_and_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let own = Credentials::load_or_create(directory.path(), &[]).expect("are made");
        let path = |name: &str| directory.path().join(name);
        fs::write(path("empty.crt"), "# nothing\n").expect("is written");
        let (certificate, key) = (path("server.crt"), path("server.key"));
        let empty = path("empty.crt");
        for refused in [
            own.tls(Some(&empty)),
            tls_from_files(&certificate, &key, Some(&empty)),
            tls_from_files(&empty, &key, None),
            tls_from_files(&certificate, &empty, None),
        ] {
            let error = refused.expect_err("an empty file").to_string();
            assert!(error.contains("empty.crt"), "{error}");
            assert!(!error.contains("remove it"), "{error}");
        }
        let other_key = tls_from_files(&certificate, &path("ca.key"), None);
        let error = other_key.expect_err("the key of another certificate").to_string();
        assert!(error.contains("server.crt") && error.contains("ca.key"), "{error}");
        assert!(tls_from_files(&certificate, &key, Some(&path("ca.crt"))).is_ok());
    }

    #[test]
    fn a_given_certificate_is_trusted_under_a_name_that_it_has() {
        let directory = tempfile::tempdir().expect("a directory");
        let key = KeyPair::generate().expect("a key");
        let names =
            ["*.example.org".to_owned(), "api.example.com".to_owned(), "10.0.0.5".to_owned()];
        let params = CertificateParams::new(names).expect("names");
        let file = directory.path().join("given.crt");
        fs::write(&file, params.self_signed(&key).expect("a certificate").pem()).expect("written");
        let name = |host| Trust::of_files(&file, None, host).expect("is read").server_name;
        for host in ["api.example.com", "API.example.com", "www.example.org", "10.0.0.5"] {
            assert_eq!(name(host), None, "{host}");
        }
        for host in ["127.0.0.1", "example.org", "a.b.example.org"] {
            assert_eq!(name(host).as_deref(), Some("api.example.com"), "{host}");
        }
    }
}
