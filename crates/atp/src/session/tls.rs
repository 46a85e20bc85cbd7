//! TLS 1.3 as ATP uses it: both ends show raw public keys (RFC 7250) and both are checked. A
//! client pins the one key it was told; a server asks its list of guests.
//!
//! Resumption is what lets the first object after a first contact leave in the first flight
//! (0-RTT). Replay of such a flight cannot deliver an object twice: tickets here only name a
//! session that the server keeps, and the server takes it out of its store with the first
//! flight that names it (RFC 8446, section 8.1, single-use tickets). A second copy finds
//! nothing, its early data cannot even be decrypted, and a server that restarted has no store.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use remora_base::Time;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring as provider, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, ServerSessionMemoryCache};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, ServerConfig,
    SignatureScheme,
};

use super::keys::{Identity, PublicKey};

/// What the two ends call what they speak (ALPN).
const PROTOCOL: &[u8] = b"remora-atp/1";
/// Sessions a server remembers for 0-RTT; the oldest is forgotten first. About 300 bytes each.
const SERVER_SESSIONS: usize = 1024;
/// Servers a client remembers for 0-RTT, a few tickets each.
const CLIENT_SESSIONS: usize = 64;

/// Whom an endpoint lets in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Guests {
    /// Nobody: it only connects to others.
    Nobody,
    /// Whoever has one of these keys.
    Only(BTreeSet<PublicKey>),
    /// Whoever has a key at all.
    Anyone,
}

impl Guests {
    /// Whether the owner of `key` may come in.
    pub fn admits(&self, key: &PublicKey) -> bool {
        match self {
            Guests::Nobody => false,
            Guests::Only(keys) => keys.contains(key),
            Guests::Anyone => true,
        }
    }
}

/// The endpoint's time as libraries below want it: they ask for it, rather than being told.
/// Only differences matter to them (ages of tickets), so the origin may be anywhere.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock(Arc<AtomicU64>);

impl Clock {
    /// It is `now`.
    pub(super) fn set(&self, now: Time) {
        self.0.store(now.as_nanos(), Ordering::Relaxed);
    }

    fn since_origin(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.since_origin()))
    }
}

impl noq_proto::TimeSource for Clock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.since_origin()
    }
}

/// The name under which TLS knows the owner of `key`: two labels of hexadecimal digits. It never
/// goes over the wire; it tells the verifier whom to expect and the cache whose ticket it is.
pub(super) fn name_of(key: &PublicKey) -> String {
    let mut name = String::with_capacity(65);
    for (i, byte) in key.as_bytes().iter().enumerate() {
        if i == 16 {
            name.push('.');
        }
        name.push_str(&format!("{byte:02x}"));
    }
    name
}

/// The client's side: one configuration for all servers, so that they share one ticket cache.
pub(super) fn client(me: &Identity, clock: &Clock) -> Result<ClientConfig, Error> {
    let provider = Arc::new(provider());
    let resolver = Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified(me, &provider)?));
    let mut config = ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(clock.clone()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned(signatures(&provider))))
        .with_client_cert_resolver(resolver);
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.enable_sni = false; // whom we talk to is nobody else's business
    config.enable_early_data = true;
    config.resumption = Resumption::in_memory_sessions(CLIENT_SESSIONS);
    Ok(config)
}

/// The server's side.
pub(super) fn server(me: &Identity, guests: Guests, clock: &Clock) -> Result<ServerConfig, Error> {
    let provider = Arc::new(provider());
    let resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified(me, &provider)?));
    let doorkeeper = Doorkeeper { guests, signatures: signatures(&provider) };
    let mut config = ServerConfig::builder_with_details(Arc::clone(&provider), Arc::new(clock.clone()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(doorkeeper))
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.session_storage = ServerSessionMemoryCache::new(SERVER_SESSIONS);
    config.max_early_data_size = u32::MAX; // QUIC: all or nothing (RFC 9001, section 4.6.1)
    config.send_tls13_tickets = 1; // a new one comes with every connection
    Ok(config)
}

fn provider() -> CryptoProvider {
    // One group keeps the first flight within one packet; the rest is the library's choice.
    CryptoProvider { kx_groups: vec![provider::kx_group::X25519], ..provider::default_provider() }
}

fn signatures(provider: &CryptoProvider) -> WebPkiSupportedAlgorithms {
    provider.signature_verification_algorithms
}

fn certified(me: &Identity, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, Error> {
    let key = provider.key_provider.load_private_key(me.to_pkcs8().into())?;
    // RFC 7250: the key stands where the certificate would.
    Ok(Arc::new(CertifiedKey::new(vec![CertificateDer::from(me.public().to_spki().to_vec())], key)))
}

/// A client's check: the server has the key that the name spells.
#[derive(Debug)]
struct Pinned(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        expected: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match PublicKey::from_spki(shown) {
            Some(key) if expected.to_str() == name_of(&key) => Ok(ServerCertVerified::assertion()),
            _ => Err(Error::InvalidCertificate(CertificateError::NotValidForName)),
        }
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
        verify_tls13_signature_with_raw_key(message, &spki, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// A server's check: the client is a guest.
struct Doorkeeper {
    guests: Guests,
    signatures: WebPkiSupportedAlgorithms,
}

impl fmt::Debug for Doorkeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doorkeeper").field("guests", &self.guests).finish_non_exhaustive()
    }
}

impl ClientCertVerifier for Doorkeeper {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match PublicKey::from_spki(shown) {
            Some(key) if self.guests.admits(&key) => Ok(ClientCertVerified::assertion()),
            // The alert for this one is access_denied, which the client can tell from the others.
            _ => Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
        }
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
        verify_tls13_signature_with_raw_key(message, &spki, signature, &self.signatures)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
