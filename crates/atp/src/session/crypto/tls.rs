//! TLS 1.3 as ATP uses it: both ends show raw public keys (RFC 7250) and both are checked. A
//! client pins the one key it was told; a server asks its list of guests.
//!
//! Resumption is what lets the first object after a first contact leave in the first flight
//! (0-RTT). Replay of such a flight cannot deliver an object twice: tickets here only name a
//! session that the server keeps, and the server takes it out of its store with the first
//! flight that names it (RFC 8446, section 8.1, single-use tickets). A second copy finds
//! nothing, its early data cannot even be decrypted, and a server that restarted has no store.

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

/// The name under which TLS knows the owner of `key`: two labels of hexadecimal digits, and one that
/// is no number, since names whose last label is one are refused (they may be addresses). It never
/// goes over the wire; it tells the verifier whom to expect and the cache whose ticket it is.
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

/// The client's side: one configuration for all servers, so that they share one ticket cache.
pub(crate) fn client(me: &Identity, clock: &Clock) -> Result<ClientConfig, Error> {
    let provider = Arc::new(provider());
    let resolver = Arc::new(AlwaysResolvesClientRawPublicKeys::new(shown(me, &provider)?));
    // The server has the key that the name spells.
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

/// The server's side.
pub(crate) fn server(me: &Identity, guests: Guests, clock: &Clock) -> Result<ServerConfig, Error> {
    let provider = Arc::new(provider());
    let resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(shown(me, &provider)?));
    // The alert for this error is access_denied, which the client can tell from the others.
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
    // One group keeps the first flight within one packet; the rest is the library's choice.
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
