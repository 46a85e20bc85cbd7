//! Minimal TLS for QUIC: a raw public key (RFC 7250) trusted by both ends, which share a simulator.

use std::sync::Arc;

use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use remora_atp::session::raw_keys::{self, RawKeys};
use remora_atp::session::{Identity, PublicKey};
use rustls::crypto::ring as provider;
use rustls::pki_types::ServerName;
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::{ClientConfig, Error, ServerConfig, version};

/// A public test key.
const SECRET: [u8; 32] = [7; 32];

pub(super) fn client() -> Result<QuicClientConfig, Error> {
    let provider = Arc::new(provider::default_provider());
    let trusting = RawKeys::new(&provider, |_: &PublicKey, _: Option<&ServerName<'_>>| Ok(()));
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(trusting))
        .with_no_client_auth();
    QuicClientConfig::try_from(config).map_err(|e| Error::General(e.to_string()))
}

pub(super) fn server() -> Result<QuicServerConfig, Error> {
    let provider = Arc::new(provider::default_provider());
    let me = Identity::from_secret(SECRET).map_err(|e| Error::General(e.to_string()))?;
    let shown = raw_keys::shown(&me, &provider)?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(shown)));
    QuicServerConfig::try_from(config).map_err(|e| Error::General(e.to_string()))
}
