//! How TLS records are made, which is most of what a server with many watches does.
//!
//! rustls and aws-lc do TLS. Only AES-GCM of TLS 1.3 is replaced here, for two reasons that both show on
//! processors with VAES and without AVX-512: ring knows the instructions for two blocks at a time there,
//! which halves the time of encryption; and what is to be encrypted is copied in small pieces, as the
//! instruction that libraries use for large ones takes twenty times as long if source and target lie
//! alike in their pages, which here they do.

use std::sync::{Arc, LazyLock};

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, UnboundKey};
use rustls::crypto::cipher::{
    self, AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, MessageDecrypter,
    MessageEncrypter, OutboundChunks, OutboundOpaqueMessage, OutboundPlainMessage, PrefixedPayload,
    Tls13AeadAlgorithm, UnsupportedOperationError, make_tls13_aad,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{
    CipherSuite, CipherSuiteCommon, ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion,
    SupportedCipherSuite, Tls13CipherSuite,
};

/// What is copied at a time: less than what any C library uses the slow instruction for.
const PIECE_BYTES: usize = 2048;

/// What rustls needs for TLS: aws-lc, and for the records of most connections what is here.
pub fn crypto_provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        let mut provider = aws_lc_rs::default_provider();
        for suite in &mut provider.cipher_suites {
            *suite = match suite.suite() {
                CipherSuite::TLS13_AES_128_GCM_SHA256 => SupportedCipherSuite::Tls13(&AES_128),
                CipherSuite::TLS13_AES_256_GCM_SHA384 => SupportedCipherSuite::Tls13(&AES_256),
                _ => *suite,
            };
        }
        Arc::new(provider)
    });
    PROVIDER.clone()
}

static AES_128: LazyLock<Tls13CipherSuite> = LazyLock::new(|| {
    with_records(aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256, &Gcm::AES_128)
});
static AES_256: LazyLock<Tls13CipherSuite> = LazyLock::new(|| {
    with_records(aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384, &Gcm::AES_256)
});

/// A suite with other records.
fn with_records(suite: SupportedCipherSuite, records: &'static Gcm) -> Tls13CipherSuite {
    let usual = suite.tls13().expect("a suite of TLS 1.3");
    let common = CipherSuiteCommon {
        suite: usual.common.suite,
        hash_provider: usual.common.hash_provider,
        confidentiality_limit: usual.common.confidentiality_limit,
    };
    Tls13CipherSuite { common, hkdf_provider: usual.hkdf_provider, aead_alg: records, quic: None }
}

struct Gcm {
    algorithm: &'static Algorithm,
    secrets: fn(AeadKey, Iv) -> ConnectionTrafficSecrets,
}

impl Gcm {
    const AES_128: Self = Self {
        algorithm: &AES_128_GCM,
        secrets: |key, iv| ConnectionTrafficSecrets::Aes128Gcm { key, iv },
    };
    const AES_256: Self = Self {
        algorithm: &AES_256_GCM,
        secrets: |key, iv| ConnectionTrafficSecrets::Aes256Gcm { key, iv },
    };

    fn records(&self, key: &AeadKey, iv: Iv) -> Records {
        let key = UnboundKey::new(self.algorithm, key.as_ref()).expect("a key of `key_len` bytes");
        Records { key: LessSafeKey::new(key), iv }
    }
}

impl Tls13AeadAlgorithm for Gcm {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        Box::new(self.records(&key, iv))
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        Box::new(self.records(&key, iv))
    }

    fn key_len(&self) -> usize {
        self.algorithm.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        Ok((self.secrets)(key, iv))
    }
}

/// One direction of a connection.
struct Records {
    key: LessSafeKey,
    iv: Iv,
}

impl Records {
    /// rustls counts the records of a key and never gives one number twice.
    fn nonce(&self, number: u64) -> Nonce {
        Nonce::assume_unique_for_key(cipher::Nonce::new(&self.iv, number).0)
    }

    fn tag_bytes(&self) -> usize {
        self.key.algorithm().tag_len()
    }
}

impl MessageEncrypter for Records {
    fn encrypt(
        &mut self,
        message: OutboundPlainMessage<'_>,
        number: u64,
    ) -> Result<OutboundOpaqueMessage, Error> {
        let length = self.encrypted_payload_len(message.payload.len());
        let mut payload = PrefixedPayload::with_capacity(length);
        copy(&message.payload, &mut payload);
        payload.extend_from_slice(&message.typ.to_array());
        self.key
            .seal_in_place_append_tag(
                self.nonce(number),
                Aad::from(make_tls13_aad(length)),
                &mut payload,
            )
            .map_err(|_| Error::EncryptError)?;
        // As RFC 8446, section 5.2, wants all of them to look from outside.
        let (content, version) = (ContentType::ApplicationData, ProtocolVersion::TLSv1_2);
        Ok(OutboundOpaqueMessage::new(content, version, payload))
    }

    fn encrypted_payload_len(&self, length: usize) -> usize {
        length + size_of::<u8>() + self.tag_bytes()
    }
}

impl MessageDecrypter for Records {
    fn decrypt<'a>(
        &mut self,
        mut message: InboundOpaqueMessage<'a>,
        number: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        let payload = &mut message.payload;
        if payload.len() < self.tag_bytes() {
            return Err(Error::DecryptError);
        }
        let expected = Aad::from(make_tls13_aad(payload.len()));
        let opened = self.key.open_in_place(self.nonce(number), expected, payload);
        let length = opened.map_err(|_| Error::DecryptError)?.len();
        payload.truncate(length);
        message.into_tls13_unpadded_message()
    }
}

fn copy(chunks: &OutboundChunks<'_>, payload: &mut PrefixedPayload) {
    let mut whole = |slice: &[u8]| {
        slice.chunks(PIECE_BYTES).for_each(|piece| payload.extend_from_slice(piece));
    };
    match *chunks {
        OutboundChunks::Single(slice) => whole(slice),
        OutboundChunks::Multiple { chunks, start, end } => {
            let mut at = 0;
            for chunk in chunks {
                let inside = |it: usize| it.saturating_sub(at).min(chunk.len());
                whole(&chunk[inside(start)..inside(end)]);
                at += chunk.len();
                if at >= end {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read as _, Write as _};

    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{
        ClientConfig, ClientConnection, ConnectionCommon, RootCertStore, ServerConfig,
        ServerConnection, SideData,
    };

    use super::*;

    fn encrypted(suite: SupportedCipherSuite, payload: OutboundChunks<'_>) -> Vec<u8> {
        let records = suite.tls13().unwrap().aead_alg;
        let mut records = records.encrypter(AeadKey::from([7; 32]), Iv::new([9; 12]));
        let (typ, version) = (ContentType::ApplicationData, ProtocolVersion::TLSv1_3);
        let message = OutboundPlainMessage { typ, version, payload };
        records.encrypt(message, 0x0102_0304_0506).unwrap().encode()
    }

    #[test]
    fn records_are_to_the_byte_what_rustls_makes_of_any_chunks() {
        let text: Vec<u8> = (0..40_000_u32).map(|it| (it % 251) as u8).collect();
        let chunks: Vec<&[u8]> = vec![&text[..3], &[], &text[3..5000], &text[5000..5001], &text];
        let all = OutboundChunks::new(&chunks);
        let length = all.len();
        let mut cases = vec![OutboundChunks::Single(&text[..16_384]), OutboundChunks::new_empty()];
        for (from, count) in [(0, 1), (0, 16_384), (2, 2), (4999, 3), (5001, 4096), (length - 1, 1)]
        {
            cases.push(all.split_at(from).1.split_at(count).0);
        }
        for case in cases {
            let usual = encrypted(aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384, case.clone());
            let ours = encrypted(SupportedCipherSuite::Tls13(&AES_256), case.clone());
            assert!(ours == usual, "{} bytes", case.len());
        }
    }

    /// Both ends of a connection, each with its own provider and one suite.
    fn connected(
        suite: CipherSuite,
        [client, server]: [&CryptoProvider; 2],
    ) -> (ClientConnection, ServerConnection) {
        let only = |provider: &CryptoProvider| {
            let mut provider = provider.clone();
            provider.cipher_suites.retain(|it| it.suite() == suite);
            Arc::new(provider)
        };
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["here".to_owned()]).unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        let certificate = CertificateDer::from(certificate.der().to_vec());
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let client = ClientConfig::builder_with_provider(only(client))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let server = ServerConfig::builder_with_provider(only(server))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        let name = ServerName::try_from("here").unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            carry(&mut client, &mut server).unwrap();
            carry(&mut server, &mut client).unwrap();
        }
        (client, server)
    }

    /// Brings what one end has to say to the other.
    fn carry<A: SideData, B: SideData>(
        from: &mut ConnectionCommon<A>,
        to: &mut ConnectionCommon<B>,
    ) -> Result<(), Error> {
        let mut wire = Vec::new();
        while from.wants_write() {
            from.write_tls(&mut wire).unwrap();
        }
        hear(to, &wire)
    }

    fn hear<B: SideData>(to: &mut ConnectionCommon<B>, mut wire: &[u8]) -> Result<(), Error> {
        while !wire.is_empty() {
            to.read_tls(&mut wire).unwrap();
            to.process_new_packets()?;
        }
        Ok(())
    }

    const SUITES: [CipherSuite; 3] = [
        CipherSuite::TLS13_AES_128_GCM_SHA256,
        CipherSuite::TLS13_AES_256_GCM_SHA384,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    ];

    #[test]
    fn both_ends_understand_each_other_whoever_has_which_provider() {
        let (ours, usual) = (crypto_provider(), aws_lc_rs::default_provider());
        for suite in SUITES {
            for providers in [[&*ours, &usual], [&usual, &*ours], [&*ours, &*ours]] {
                let (mut client, mut server) = connected(suite, providers);
                for length in [1, 5, 2047, 2048, 2049, 16_383, 16_384] {
                    let sent: Vec<u8> = (0..=252).cycle().take(length).collect();
                    client.writer().write_all(&sent).unwrap();
                    carry(&mut client, &mut server).unwrap();
                    let mut heard = vec![0; length];
                    server.reader().read_exact(&mut heard).unwrap();
                    assert!(heard == sent, "{suite:?}, {length} bytes to the server");
                    let halves = [&heard[..length / 2], &heard[length / 2..]];
                    let written = server.writer().write_vectored(&halves.map(io::IoSlice::new));
                    assert_eq!(written.unwrap(), length);
                    carry(&mut server, &mut client).unwrap();
                    let mut back = vec![0; length];
                    client.reader().read_exact(&mut back).unwrap();
                    assert!(back == sent, "{suite:?}, {length} bytes to the client");
                }
            }
        }
    }

    #[test]
    fn a_record_that_was_changed_or_cut_on_its_way_ends_the_connection() {
        let provider = crypto_provider();
        for suite in SUITES {
            for (at, cut) in [(5, false), (30, false), (0, true)] {
                let (mut client, mut server) = connected(suite, [&provider, &provider]);
                client.writer().write_all(b"some words to be changed").unwrap();
                let mut wire = Vec::new();
                client.write_tls(&mut wire).unwrap();
                if cut {
                    // A record of eight bytes: shorter than a tag.
                    wire.truncate(5 + 8);
                    wire[3..5].copy_from_slice(&8_u16.to_be_bytes());
                } else {
                    wire[at] ^= 1;
                }
                assert_eq!(hear(&mut server, &wire), Err(Error::DecryptError), "{suite:?}");
            }
        }
    }
}
