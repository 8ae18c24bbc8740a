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
    /// A file is not what it should be.
    #[error("{path} is not usable: {what}; remove it to have a new one made")]
    Content {
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
    /// for loopback names and for `address`.
    pub fn load_or_create(directory: &Path, address: IpAddr) -> Result<Self, CredentialsError> {
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
        let names = server_names(address);
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
        let own = Path::new("server.crt");
        let mut authorities = self.ca.clone();
        if let Some(path) = client_ca {
            authorities.push('\n');
            authorities.push_str(&read(path)?);
        }
        tls(own, &self.certificate, &self.key, Some(&authorities))
    }

    /// A kubeconfig for the administrator: the authority inline, the token, one context.
    pub fn kubeconfig(&self, url: &str) -> String {
        let ca = STANDARD.encode(&self.ca);
        let token = &self.admin_token;
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: masthead\n  cluster:\n    server: \
             {url}\n    certificate-authority-data: {ca}\nusers:\n- name: admin\n  user:\n    \
             token: {token}\ncontexts:\n- name: masthead\n  context:\n    cluster: masthead\n    \
             user: admin\n    namespace: default\ncurrent-context: masthead\n"
        )
    }
}

/// The TLS side of a server with a certificate from somewhere else.
pub fn tls_from_files(
    certificate: &Path,
    key: &Path,
    client_ca: Option<&Path>,
) -> Result<Arc<ServerConfig>, CredentialsError> {
    let authorities = client_ca.map(read).transpose()?;
    tls(certificate, &read(certificate)?, &read(key)?, authorities.as_deref())
}

fn tls(
    path: &Path,
    certificate: &str,
    key: &str,
    authorities: Option<&str>,
) -> Result<Arc<ServerConfig>, CredentialsError> {
    let unusable = |what: &dyn std::fmt::Display| CredentialsError::Content {
        path: path.to_owned(),
        what: what.to_string(),
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
    let chain = chain.map_err(|error| unusable(&error))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| unusable(&error))?;
    let provider = crypto_provider();
    let config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?;
    let config = match authorities {
        None => config.with_no_client_auth(),
        Some(text) => {
            let mut roots = RootCertStore::empty();
            for authority in CertificateDer::pem_slice_iter(text.as_bytes()) {
                let authority = authority.map_err(|error| unusable(&error))?;
                roots.add(authority).map_err(|error| unusable(&error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| unusable(&error))?;
            config.with_client_cert_verifier(verifier)
        }
    };
    let mut config = config.with_single_cert(chain, key).map_err(|error| unusable(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn server_names(address: IpAddr) -> Vec<String> {
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
    let address = address.to_string();
    if !names.contains(&address) && !matches!(address.as_str(), "0.0.0.0" | "::") {
        names.push(address);
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

/// Writes a file that only its user can read, whole or not at all.
pub fn write_secret(path: &Path, content: &str) -> Result<(), CredentialsError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_made_once_and_only_their_user_can_read_them() {
        let directory = tempfile::tempdir().expect("a directory");
        let home = directory.path().join("pki");
        let address = "127.0.0.1".parse().expect("an address");
        let made = Credentials::load_or_create(&home, address).expect("are made");
        let again = Credentials::load_or_create(&home, address).expect("are read");
        assert_eq!(made.admin_token, again.admin_token);
        assert_eq!(made.certificate, again.certificate);
        for file in fs::read_dir(&home).expect("is there") {
            let file = file.expect("can be read");
            let rights = file.metadata().expect("has some").permissions().mode() & 0o777;
            assert_eq!(rights, 0o600, "{:?}", file.path());
        }
        let elsewhere = "10.1.2.3".parse().expect("an address");
        let moved = Credentials::load_or_create(&home, elsewhere).expect("are made");
        assert_ne!(made.certificate, moved.certificate, "a new address needs a new certificate");
        assert_eq!(
            (made.ca.as_str(), made.admin_token),
            (moved.ca.as_str(), moved.admin_token.clone())
        );
        assert!(moved.tls(None).is_ok());
        assert!(moved.kubeconfig("https://x").contains("certificate-authority-data: "));
    }

    #[test]
    fn files_that_are_damaged_are_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let address = "127.0.0.1".parse().expect("an address");
        Credentials::load_or_create(directory.path(), address).expect("are made");
        fs::write(directory.path().join("server.key"), "nonsense").expect("is written");
        let damaged = Credentials::load_or_create(directory.path(), address).expect("are read");
        assert!(damaged.tls(None).is_err());
        fs::write(directory.path().join("admin.token"), "short").expect("is written");
        let error = Credentials::load_or_create(directory.path(), address).expect_err("too short");
        assert!(error.to_string().contains("admin.token"), "{error}");
    }
}
