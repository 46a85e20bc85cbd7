//! QUIC configuration: every option that differs from the library's default, with its reason. Randomness that
//! affects behaviour comes from the seed; TLS keys do not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq_proto::{
    ClientConfig, ConnectionId, ConnectionIdGenerator, EndpointConfig, InvalidCid, MtuDiscoveryConfig, ServerConfig,
    TransportConfig,
};
use remora_base::Rng;
use ring::hmac;

use super::clock::Clock;
use super::quic_cc::QuicCc;
use crate::session::config::Config;
use crate::session::crypto::{self, Guests, Identity};

/// Bytes of a connection id.
const CID_LEN: usize = 8;
/// Maximum bytes of DATAGRAM frames buffered in each direction: a train of four full probes, two reports and a few
/// stamps. The oldest are dropped first; a lost stamp is a lost sample.
pub(crate) const DATAGRAMS: usize = 8192;

/// Maximum lifetime of a Retry token: clients may validate their address across an outage. noq's default is 15 s.
const PROOF_MAX: Duration = Duration::from_secs(3600);

/// Reason why an endpoint cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The TLS library rejects the key or lacks a feature.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// TLS lacks the initial cipher suite of QUIC.
    #[error("TLS lacks AES-128-GCM, which QUIC starts with")]
    Suite(#[from] noq_proto::crypto::rustls::NoInitialCipherSuite),
    /// The datagram size is out of range.
    #[error("datagrams must have 1200 to 65527 bytes")]
    Datagram,
}

/// Configuration shared by all connections of an endpoint.
pub(crate) struct QuicConfig {
    cids: ConnectionIds,
    /// The last of our connection ids that was seen: most datagrams have the same.
    ours: [u8; CID_LEN],
    pub(crate) endpoint: Arc<EndpointConfig>,
    pub(crate) server: Option<Arc<ServerConfig>>,
    client: Arc<QuicClientConfig>,
}

impl QuicConfig {
    pub(crate) fn new(config: &Config, me: &Identity, clock: &Clock, seed: u64) -> Result<QuicConfig, SetupError> {
        let server = match &config.guests {
            Guests::Nobody => None,
            guests => {
                let mut crypto = crypto::server(me, guests.clone(), clock)?;
                if !config.early {
                    crypto.max_early_data_size = 0;
                }
                Some(Arc::new(server(crypto, config, clock)?))
            }
        };
        let mut crypto = crypto::client(me, clock)?;
        crypto.enable_early_data = config.early;
        let cids = ConnectionIds {
            rng: Rng::stream(seed, "atp-cid"),
            key: derived(config, me, seed, b"remora-atp connection id"),
        };
        Ok(QuicConfig {
            endpoint: Arc::new(endpoint(config, me, &cids, seed)?),
            ours: cids.clone().draw(),
            cids,
            server,
            client: Arc::new(QuicClientConfig::try_from(crypto)?),
        })
    }

    /// Whether a datagram has none of our connection ids, of this or an earlier process. If QUIC still assigns it
    /// to a connection, it is a stateless reset.
    pub(crate) fn is_foreign(&mut self, datagram: &[u8]) -> bool {
        let Some((first, rest)) = datagram.split_first() else { return false };
        if first & 0x80 != 0 {
            return false; // a long header
        }
        let Some(id) = rest.first_chunk() else { return true };
        if *id != self.ours && self.cids.is_ours(id) {
            self.ours = *id;
        }
        *id != self.ours
    }

    /// Configuration of an outgoing connection.
    pub(crate) fn client(&self, config: &Config, quic_cc: &QuicCc, rng: &mut Rng) -> ClientConfig {
        let first = random_cid(rng);
        let mut client = ClientConfig::new(Arc::clone(&self.client) as _);
        client.transport_config(Arc::new(transport(config, quic_cc)));
        client.initial_dst_cid_provider(Arc::new(move || first));
        client
    }

    /// Configuration of an incoming connection.
    pub(crate) fn server(&self, config: &Config, quic_cc: &QuicCc) -> Option<Arc<ServerConfig>> {
        let mut server = ServerConfig::clone(self.server.as_ref()?);
        server.transport_config(Arc::new(transport(config, quic_cc)));
        Some(Arc::new(server))
    }
}

/// Derives a key from the identity and the listening address. It survives a restart, and differs between endpoints
/// of one identity: otherwise one endpoint would reveal the reset tokens of another (RFC 9000, section 10.3.2).
/// Without a listening address it is different in each process.
fn derived(config: &Config, me: &Identity, seed: u64, what: &[u8]) -> hmac::Key {
    let root = hmac::Key::new(hmac::HMAC_SHA256, me.secret());
    let mut salt = [0; 32];
    let place = match config.listens {
        Some(addr) => format!("at {}", SocketAddr::new(addr.ip().to_canonical(), addr.port())),
        None => {
            Rng::stream(seed, "atp-salt").fill(&mut salt);
            "for now".to_owned()
        }
    };
    let mut key = hmac::Context::with_key(&root);
    for part in [what, place.as_bytes(), &salt] {
        key.update(&(part.len() as u64).to_be_bytes());
        key.update(part);
    }
    hmac::Key::new(hmac::HMAC_SHA256, key.sign().as_ref())
}

fn endpoint(config: &Config, me: &Identity, cids: &ConnectionIds, seed: u64) -> Result<EndpointConfig, SetupError> {
    // Derived, so that after a restart peers of the old connections get valid stateless resets (RFC 9000, section
    // 10.3).
    let mut endpoint = EndpointConfig::new(Arc::new(derived(config, me, seed, b"remora-atp stateless reset")));
    let mut drawn = [0; 32];
    Rng::stream(seed, "atp-quic").fill(&mut drawn);
    endpoint.rng_seed(Some(drawn));
    let cids = cids.clone();
    endpoint.cid_generator(Arc::new(move || Box::new(cids.clone())));
    endpoint.supported_versions(vec![1]);
    endpoint
        .max_udp_payload_size(config.datagram.max(config.datagram_max).max(1472))
        .map_err(|_| SetupError::Datagram)?;
    Ok(endpoint)
}

fn server(crypto: rustls::ServerConfig, config: &Config, clock: &Clock) -> Result<ServerConfig, SetupError> {
    let mut server = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(crypto)?));
    server.time_source(Arc::new(clock.clone()));
    server.retry_token_lifetime(config.hold.min(PROOF_MAX));
    server.max_incoming(config.peers);
    // Connections are accepted or refused at once, so little is buffered.
    server.incoming_buffer_size(64 << 10);
    server.incoming_buffer_size_total(1 << 20);
    Ok(server)
}

/// Receive window of a stream. QUIC's receiver buffers data behind a gap by packet, and closes the connection
/// beyond 1024 of them in a stream.
const STREAM_WINDOW: u32 = 1 << 20;

fn transport(config: &Config, quic_cc: &QuicCc) -> TransportConfig {
    let mut t = TransportConfig::default();
    t.max_concurrent_bidi_streams(config.streams.into());
    t.max_concurrent_uni_streams(0u32.into());
    t.stream_receive_window(config.window.min(STREAM_WINDOW).into());
    t.receive_window(config.window.into());
    // Objects are written one packet at a time, which bounds the unacknowledged data.
    t.send_window(u64::MAX / 2);
    // ATP decides when a silent peer is lost; QUIC's idle timer would hide the probe timeout.
    t.max_idle_timeout(None);
    t.initial_mtu(config.datagram);
    if config.discover {
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.upper_bound(config.datagram_max.max(config.datagram));
        t.mtu_discovery_config(Some(discovery));
    } else {
        t.min_mtu(config.datagram);
        t.mtu_discovery_config(None);
    }
    t.datagram_receive_buffer_size(Some(DATAGRAMS));
    t.datagram_send_buffer_size(DATAGRAMS);
    t.congestion_controller_factory(Arc::new(quic_cc.clone()));
    // Each call states how many datagrams it takes.
    t.enable_segmentation_offload(true);
    t.allow_spin(false);
    t
}

/// Connection ids: half random from the seed, half authentication code, so that ids of this and earlier processes
/// are recognized.
#[derive(Clone)]
struct ConnectionIds {
    rng: Rng,
    key: hmac::Key,
}

impl ConnectionIds {
    /// The authentication code of the random half.
    fn code(&self, drawn: &[u8]) -> [u8; CID_LEN / 2] {
        let mut code = [0; CID_LEN / 2];
        for (to, from) in code.iter_mut().zip(hmac::sign(&self.key, drawn).as_ref()) {
            *to = *from;
        }
        code
    }

    fn draw(&mut self) -> [u8; CID_LEN] {
        let mut drawn = [0; CID_LEN / 2];
        self.rng.fill(&mut drawn);
        let mut id = [0; CID_LEN];
        for (to, from) in id.iter_mut().zip(drawn.into_iter().chain(self.code(&drawn))) {
            *to = from;
        }
        id
    }

    fn is_ours(&self, id: &[u8]) -> bool {
        id.len() == CID_LEN && id.split_at_checked(CID_LEN / 2).is_some_and(|(drawn, code)| self.code(drawn) == code)
    }
}

impl ConnectionIdGenerator for ConnectionIds {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&self.draw())
    }

    fn validate(&self, id: ConnectionId) -> Result<(), InvalidCid> {
        if self.is_ours(&id) { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        CID_LEN
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

fn random_cid(rng: &mut Rng) -> ConnectionId {
    let mut bytes = [0; CID_LEN];
    rng.fill(&mut bytes);
    ConnectionId::new(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_keys_differ_by_address_and_survive_a_restart() {
        let me = Identity::from_secret([7; 32]).unwrap();
        let at = |listens: Option<&str>| Config { listens: listens.map(|a| a.parse().unwrap()), ..Config::default() };
        let token = |listens, seed, what| {
            hmac::sign(&derived(&at(listens), &me, seed, what), b"a connection id").as_ref().to_vec()
        };
        let server = token(Some("0.0.0.0:2050"), 1, b"reset");
        assert_eq!(server, token(Some("0.0.0.0:2050"), 2, b"reset"), "another life");
        for (listens, seed) in [(Some("0.0.0.0:2051"), 1), (Some("10.0.0.1:2050"), 1), (None, 1), (None, 2)] {
            assert_ne!(server, token(listens, seed, b"reset"), "{listens:?}");
        }
        assert_ne!(token(None, 1, b"reset"), token(None, 2, b"reset"));
        assert_ne!(server, token(Some("0.0.0.0:2050"), 1, b"id"));
    }
}
