//! TLS 1.3 configuration: both ends authenticate with raw public keys (RFC 7250). A client pins one key; a server
//! has a list of guests.
//!
//! Session resumption allows 0-RTT objects in the first flight. A replayed flight cannot deliver an object twice: a
//! ticket only names a session stored at the server, which removes it with the first flight that uses it
//! (single-use tickets, RFC 8446, section 8.1). For a second copy, or after a restart of the server, the early data
//! cannot be decrypted.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, ring as provider};
use rustls::pki_types::ServerName;
use rustls::server::{AlwaysResolvesServerRawPublicKeys, ServerSessionMemoryCache};
use rustls::{CertificateError, ClientConfig, Error, ServerConfig};

use super::keys::{Identity, PublicKey};
use super::raw_keys::{RawKeys, shown};
use crate::session::quic::Clock;

const PROTOCOL: &[u8] = b"remora-atp/1";
/// Sessions that a server stores for 0-RTT, about 300 bytes each; evicts the oldest.
const SERVER_SESSIONS: usize = 1024;
/// Servers for which a client stores a few tickets.
const CLIENT_SESSIONS: usize = 64;

/// The keys that an endpoint admits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Guests {
    /// None: the endpoint only connects to others.
    Nobody,
    /// Only the listed keys.
    Only(BTreeSet<PublicKey>),
    /// Any authenticated key.
    Anyone,
}

impl Guests {
    /// Whether `key` is admitted.
    pub fn admits(&self, key: &PublicKey) -> bool {
        match self {
            Guests::Nobody => false,
            Guests::Only(keys) => keys.contains(key),
            Guests::Anyone => true,
        }
    }
}

/// TLS server name of `key`: two labels of hexadecimal digits, and one that is not a number, since names whose last
/// label is a number are invalid. It is not sent; it carries the pinned key to the verifier and selects the ticket
/// in the cache.
pub(crate) fn tls_name(key: &PublicKey) -> String {
    let mut name = String::with_capacity(67);
    for (i, byte) in key.as_bytes().iter().enumerate() {
        if i == 16 {
            name.push('.');
        }
        name.push_str(&format!("{byte:02x}"));
    }
    name.push_str(".k");
    name
}

/// Client configuration; shared by all connections, so that they share one ticket cache.
pub(crate) fn client(me: &Identity, clock: &Clock) -> Result<ClientConfig, Error> {
    let provider = Arc::new(provider());
    let resolver = Arc::new(AlwaysResolvesClientRawPublicKeys::new(shown(me, &provider)?));
    // The server's key must be the one that the name encodes.
    let pinned = RawKeys::new(&provider, |key: &PublicKey, name: Option<&ServerName<'_>>| match name {
        Some(name) if name.to_str() == tls_name(key) => Ok(()),
        _ => Err(CertificateError::NotValidForName),
    });
    let mut config = ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(clock.clone()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pinned))
        .with_client_cert_resolver(resolver);
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.enable_sni = false; // whom we talk to is nobody else's business
    config.enable_early_data = true;
    config.resumption = Resumption::in_memory_sessions(CLIENT_SESSIONS);
    Ok(config)
}

pub(crate) fn server(me: &Identity, guests: Guests, clock: &Clock) -> Result<ServerConfig, Error> {
    let provider = Arc::new(provider());
    let resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(shown(me, &provider)?));
    // This error becomes the alert access_denied, which the client can distinguish.
    let doorkeeper = RawKeys::new(&provider, move |key: &PublicKey, _: Option<&ServerName<'_>>| {
        if guests.admits(key) { Ok(()) } else { Err(CertificateError::ApplicationVerificationFailure) }
    });
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
    // One group, so that the first flight fits one packet; the rest are the library's defaults.
    CryptoProvider { kx_groups: vec![provider::kx_group::X25519], ..provider::default_provider() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_name() {
        for byte in [0x00, 0x12, 0x9f, 0xff] {
            let name = tls_name(&PublicKey::from_bytes([byte; 32]));
            assert!(ServerName::try_from(name.clone()).is_ok(), "{name}");
        }
    }
}
