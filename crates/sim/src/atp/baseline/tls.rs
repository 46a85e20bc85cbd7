//! As little TLS as QUIC can do with: a raw public key (RFC 7250) that everybody trusts. The two
//! ends are in one simulator; the handshake's packets and the seals' bytes are what counts.

use std::sync::Arc;

use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as provider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, Error, PeerIncompatible, ServerConfig, SignatureScheme, version};

/// An Ed25519 key in PKCS #8 (RFC 8410): a version, the algorithm, the tags of two octet strings,
/// and 32 bytes that are nobody's secret.
const KEY: [u8; 48] = {
    let mut key = [7; 48];
    let prefix = [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
    let mut n = 0;
    while n < prefix.len() {
        key[n] = prefix[n];
        n += 1;
    }
    key
};

pub(super) fn client() -> Result<QuicClientConfig, Error> {
    let provider = Arc::new(provider::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting(provider)))
        .with_no_client_auth();
    QuicClientConfig::try_from(config).map_err(|e| Error::General(e.to_string()))
}

pub(super) fn server() -> Result<QuicServerConfig, Error> {
    let provider = Arc::new(provider::default_provider());
    let key = provider.key_provider.load_private_key(PrivatePkcs8KeyDer::from(KEY.to_vec()).into())?;
    let public = key.public_key().ok_or_else(|| Error::General("a key without its public half".into()))?;
    let shown = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public.to_vec())], key));
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(shown)));
    QuicServerConfig::try_from(config).map_err(|e| Error::General(e.to_string()))
}

/// Takes any key for the right one, if its owner has it.
#[derive(Debug)]
struct Trusting(Arc<CryptoProvider>);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls13RequiredForQuic.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let spki = SubjectPublicKeyInfoDer::from(shown.as_ref());
        verify_tls13_signature_with_raw_key(message, &spki, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
