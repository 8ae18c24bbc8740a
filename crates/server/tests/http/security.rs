//! Who is let in, and to what.

use std::sync::Arc;

use http::Method;
use masthead_server::{Config, Credentials, Limits, Security, Server, StartError};
use masthead_store::MemoryStore;
use rcgen::{CertificateParams, DnType, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::world::{MAPS, PATIENCE, TOKEN, World, config, run};

/// Every path that discovery names, for a collection and for an object.
async fn every_path(world: &World) -> (Vec<String>, Vec<String>) {
    let documents = ["/api", "/apis", "/version", "/openapi/v3", "/openapi/v3/api/v1"];
    let mut paths = ["/metrics", "/statz", "/nope"].map(str::to_owned).to_vec();
    let groups = world.get("/apis").await.ok();
    let mut roots = vec!["/api/v1".to_owned()];
    for group in groups["groups"].as_array().unwrap() {
        let version = group["preferredVersion"]["groupVersion"].as_str().unwrap();
        roots.push(format!("/apis/{version}"));
    }
    for root in &roots {
        let list = world.get(root).await.ok();
        for resource in list["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            let place = if resource["namespaced"] == true { "/namespaces/default" } else { "" };
            match name.split_once('/') {
                None => {
                    paths.push(format!("{root}/{name}"));
                    paths.push(format!("{root}{place}/{name}?watch=true"));
                    paths.push(format!("{root}{place}/{name}/x"));
                    paths.push(format!("{root}/watch/{name}"));
                }
                Some((plural, part)) => paths.push(format!("{root}{place}/{plural}/x/{part}")),
            }
        }
    }
    (documents.map(str::to_owned).into_iter().chain(roots).collect(), paths)
}

#[test]
fn strangers_are_401_and_who_has_no_rights_sees_only_what_is_served() {
    run(async {
        let (world, server) = World::limited(Limits::default(), false).await;
        let (documents, paths) = every_path(&world).await;
        assert!(documents.len() + paths.len() > 250, "{} paths", paths.len());
        let get = async |path: &str, authorization: &str| {
            let answer =
                world.ask(Method::GET, path, &[("authorization", authorization)], "").await;
            assert!(!answer.text().contains("\"items\""), "{path}");
            answer.code
        };
        for path in documents.iter().chain(&paths) {
            assert_eq!(get(path, "").await, 401, "{path}");
            assert_eq!(get(path, "Bearer wrong").await, 401, "{path}");
        }
        for path in &documents {
            assert_eq!(get(path, "Bearer stranger-token").await, 200, "{path}");
        }
        for path in &paths {
            assert_eq!(get(path, "Bearer stranger-token").await, 403, "{path}");
        }
        server.shutdown().await;
    });
}

#[test]
fn readers_read_everything_and_write_nothing() {
    run(async {
        let (world, server) = World::limited(Limits::default(), false).await;
        let made = world.set("a", "1").await;
        let reader = [("authorization", "Bearer reader-token")];
        let item = format!("{MAPS}/a");
        assert_eq!(world.ask(Method::GET, &item, &reader, "").await.ok(), made);
        let writes = [
            (Method::POST, MAPS, json!({"metadata": {"name": "b"}}).to_string()),
            (Method::PUT, &item, made.to_string()),
            (Method::PATCH, &item, "{}".to_owned()),
            (Method::DELETE, &item, String::new()),
            (Method::DELETE, MAPS, String::new()),
        ];
        for (method, path, body) in writes {
            let status = world.ask(method, path, &reader, body).await.fails(403, "Forbidden");
            assert!(status["message"].as_str().unwrap().contains("User \"reader\" cannot"));
        }
        assert_eq!(world.get(&item).await.ok(), made, "nothing was changed");
        server.shutdown().await;
    });
}

#[test]
fn a4_headers_that_claim_an_identity_change_nothing() {
    run(async {
        let (world, server) = World::limited(Limits::default(), false).await;
        for (name, value) in [
            ("x-remote-user", "admin"),
            ("x-remote-group", "system:masters"),
            ("impersonate-user", "admin"),
            ("impersonate-group", "system:masters"),
        ] {
            let headers = [("authorization", "Bearer stranger-token"), (name, value)];
            world.ask(Method::GET, MAPS, &headers, "").await.fails(403, "Forbidden");
        }
        server.shutdown().await;
    });
}

#[test]
fn plain_http_is_refused_on_anything_but_loopback() {
    run(async {
        let listen = "0.0.0.0:0".parse().unwrap();
        let config = Config { listen, ..config(Limits::default()) };
        let refused = Server::start(config, Arc::new(MemoryStore::new())).await;
        assert!(matches!(refused, Err(StartError::InsecureAddress(_))));
    });
}

/// A client certificate for a user, signed by the authority in the directory.
fn client_certificate(
    directory: &std::path::Path,
    name: &str,
    group: &str,
) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let read = |file: &str| std::fs::read_to_string(directory.join(file)).unwrap();
    let authority = KeyPair::from_pem(&read("ca.key")).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&read("ca.crt"), authority).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.distinguished_name.push(DnType::OrganizationName, group);
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    (certificate.der().clone(), key)
}

type Client = Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>;

async fn connect(server: &Server, ca: &str, client: Client) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match client {
        Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate], key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.unwrap()
}

/// The status code of a GET over TLS.
async fn get(server: &Server, ca: &str, client: Client, path: &str) -> String {
    let mut stream = connect(server, ca, client).await;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8_lossy(&answer).chars().skip(9).take(3).collect()
}

#[test]
fn a_client_certificate_names_its_user_and_groups() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let credentials = Credentials::load_or_create(directory.path(), &[]).unwrap();
        let security = Security::Tls(credentials.tls(None).unwrap());
        let limits =
            Limits { handshake_timeout: std::time::Duration::from_secs(2), ..Limits::default() };
        let config = Config { security, ..config(limits) };
        let server = Server::start(config, Arc::new(MemoryStore::new())).await.unwrap();
        server.ready().await;
        let certificate = |name, group| Some(client_certificate(directory.path(), name, group));
        let path = "/api/v1/namespaces";
        let master = certificate("root", "system:masters");
        assert_eq!(get(&server, &credentials.ca, master, path).await, "200");
        let stranger = certificate("stranger", "strangers");
        assert_eq!(get(&server, &credentials.ca, stranger, path).await, "403");
        assert_eq!(get(&server, &credentials.ca, None, path).await, "401");
        assert_eq!(get(&server, &credentials.ca, None, "/readyz").await, "200");
        // One that never says hello is let go.
        let mut silent = TcpStream::connect(server.address()).await.unwrap();
        let read = timeout(PATIENCE, silent.read(&mut [0; 8])).await.expect("it is closed");
        assert!(matches!(read, Ok(0) | Err(_)));
        server.shutdown().await;
    });
}

#[test]
fn plain_http_on_a_port_of_tls_is_refused_with_a_reason() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let credentials = Credentials::load_or_create(directory.path(), &[]).unwrap();
        let security = Security::Tls(credentials.tls(None).unwrap());
        let config = Config { security, ..config(Limits::default()) };
        let server = Server::start(config, Arc::new(MemoryStore::new())).await.unwrap();
        server.ready().await;
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, "Client sent an HTTP request to an HTTPS server.\n");
        assert_eq!(get(&server, &credentials.ca, None, "/readyz").await, "200");
        server.shutdown().await;
    });
}

/// An end without a close of TLS's own could be anybody's.
#[test]
fn a_shutdown_ends_a_watch_over_tls_with_a_close() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let credentials = Credentials::load_or_create(directory.path(), &[]).unwrap();
        let security = Security::Tls(credentials.tls(None).unwrap());
        let config = Config { security, ..config(Limits::default()) };
        let server = Server::start(config, Arc::new(MemoryStore::new())).await.unwrap();
        server.ready().await;
        let mut stream = connect(&server, &credentials.ca, None).await;
        let request = format!(
            "GET /api/v1/pods?watch=1 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        server.shutdown().await;
        let mut rest = Vec::new();
        let read = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap();
        read.expect("it is closed, not cut");
        assert!(rest.ends_with(b"0\r\n\r\n"), "the watch ended, too");
    });
}

#[test]
fn a6_metrics_and_errors_hold_no_secret() {
    run(async {
        let (world, server) = World::limited(Limits::default(), false).await;
        let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": "canary-7f3a"}});
        world.post("/api/v1/namespaces/shop/secrets", &secret).await.ok();
        let texts: Vec<String> = [
            world.get("/metrics").await.text(),
            world.get("/statz").await.text(),
            world.post("/api/v1/namespaces/shop/secrets", &secret).await.text(),
        ]
        .into();
        for text in texts {
            assert!(!text.contains("canary-7f3a") && !text.contains("conformance-token"), "{text}");
        }
        let status: Value = world.get(&format!("{MAPS}/none")).await.json();
        assert_eq!(status["code"], 404);
        server.shutdown().await;
    });
}
