//! Who is let in: TLS with certificates on both sides, users with passwords.

use std::fs;
use std::path::{Path, PathBuf};

use masthead_lab::{Etcd, EtcdOptions};
use masthead_store::{Condition, EtcdSettings, EtcdStore, Store};
use rcgen::{CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};

use crate::lab::{commit, put, run};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Certificate and key of somebody that the authority vouches for.
fn identity(authority: &Authority) -> [String; 2] {
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    [certificate.pem(), key.serialize_pem()]
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn tls_asks_both_sides_for_certificates() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (authority(), authority());
        let [certificate, key] = identity(&ours);
        let files = [("server.crt", &certificate), ("server.key", &key), ("ca.crt", &ours.pem())];
        let files = files.map(|(name, text)| write(folder.path(), name, text));
        let etcd = Etcd::start_with(&EtcdOptions { tls: Some(files), ..EtcdOptions::default() });
        let settings = |authority: &Authority| {
            EtcdSettings::new([etcd.endpoint()]).authority(authority.pem().into_bytes())
        };
        let [certificate, key] = identity(&ours).map(String::into_bytes);
        let mine = settings(&ours).identity(certificate.clone(), key.clone());
        let store = EtcdStore::open(mine).await.unwrap();
        commit(&store, put("a", "", Condition::Absent)).await;
        assert!(EtcdStore::open(settings(&ours)).await.is_err(), "without a certificate");
        let wrong = settings(&theirs).identity(certificate, key);
        assert!(EtcdStore::open(wrong).await.is_err(), "another authority");
    });
}

#[test]
fn a_user_signs_in_and_does_so_again_when_etcd_has_forgotten() {
    run(async {
        let mut etcd = Etcd::start();
        for (path, body) in [
            ("/v3/auth/user/add", r#"{"name":"root","password":"secret"}"#),
            ("/v3/auth/role/add", r#"{"name":"root"}"#),
            ("/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#),
            ("/v3/auth/enable", "{}"),
        ] {
            etcd.post(path, body);
        }
        let settings = || EtcdSettings::new([etcd.endpoint()]);
        let stranger = EtcdStore::open(settings()).await.unwrap_err();
        let text = format!("{stranger}: {:?}", std::error::Error::source(&stranger));
        assert!(text.contains("user"), "{text}");
        assert!(EtcdStore::open(settings().user("root", "wrong")).await.is_err());
        let store = EtcdStore::open(settings().user("root", "secret")).await.unwrap();
        let mut watch = store.watch(store.current().await.unwrap()).unwrap();
        commit(&store, put("a", "", Condition::Absent)).await;
        // Tokens are in its memory.
        etcd.restart();
        let made = commit(&store, put("b", "", Condition::Absent)).await;
        let revisions = crate::lab::revisions_up_to(&mut watch, made).await;
        assert_eq!(revisions, [made.0 - 1, made.0]);
    });
}
