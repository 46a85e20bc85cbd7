//! How QUIC is set up: every option that is not the library's default, with its reason. All
//! that the library would draw at random and that shows in its behaviour comes from the seed;
//! what TLS draws (keys, and only they) does not.

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
use crate::session::crypto::Identity;
use crate::session::crypto::{self, Guests};

/// Bytes of a connection id; 64 random bits.
const CID_LEN: usize = 8;
/// Bytes of DATAGRAM frames kept in either direction. A train of four full probes, two reports and a few stamps;
/// older ones are dropped first, and a lost stamp is a lost sample.
pub(crate) const DATAGRAMS: usize = 8192;

/// How long one may take to prove its address, if a peer is held for as long: outages end nothing. noq's default is
/// 15 s.
const PROOF_MAX: Duration = Duration::from_secs(3600);

/// Why an endpoint cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The TLS library does not take the key or lacks what is needed.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// TLS without the cipher suite that QUIC starts with.
    #[error("TLS lacks AES-128-GCM, which QUIC starts with")]
    Suite(#[from] noq_proto::crypto::rustls::NoInitialCipherSuite),
    /// A datagram's size is out of range.
    #[error("datagrams must have 1200 to 65527 bytes")]
    Datagram,
}

/// What all of an endpoint's connections share.
pub(crate) struct QuicConfig {
    cids: ConnectionIds,
    /// A connection id that is known to be ours: most datagrams are addressed as the last one was.
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

    /// Whether a datagram is none that is addressed to one of our connections, now or ever: what
    /// comes for one all the same is a stateless reset.
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

    /// For one connection to another.
    pub(crate) fn client(&self, config: &Config, quic_cc: &QuicCc, rng: &mut Rng) -> ClientConfig {
        let first = random_cid(rng);
        let mut client = ClientConfig::new(Arc::clone(&self.client) as _);
        client.transport_config(Arc::new(transport(config, quic_cc)));
        client.initial_dst_cid_provider(Arc::new(move || first));
        client
    }

    /// For one connection from another.
    pub(crate) fn server(&self, config: &Config, quic_cc: &QuicCc) -> Option<Arc<ServerConfig>> {
        let mut server = ServerConfig::clone(self.server.as_ref()?);
        server.transport_config(Arc::new(transport(config, quic_cc)));
        Some(Arc::new(server))
    }
}

/// A key that follows from the identity and the place, so that it is the same after a restart and
/// another for another endpoint with the same identity: one that did not know a connection would tell
/// the token that ends it to anybody who sends the connection's id there (RFC 9000, section 10.3.2).
/// Who cannot be found again has a new one in each life.
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
    // From the identity and the address, so that after a restart a peer that still talks to the old connection
    // is told so at once by a stateless reset (RFC 9000, section 10.3).
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
    // Connections are accepted or refused as they come, so nothing waits here for long.
    server.incoming_buffer_size(64 << 10);
    server.incoming_buffer_size_total(1 << 20);
    Ok(server)
}

/// The most that may be under way of one object. The receiving end of QUIC keeps what comes behind a gap
/// packet by packet, and gives up a connection in one of whose streams there are more than 1024 of them.
const STREAM_WINDOW: u32 = 1 << 20;

fn transport(config: &Config, quic_cc: &QuicCc) -> TransportConfig {
    let mut t = TransportConfig::default();
    t.max_concurrent_bidi_streams(config.streams.into());
    t.max_concurrent_uni_streams(0u32.into());
    t.stream_receive_window(config.window.min(STREAM_WINDOW).into());
    t.receive_window(config.window.into());
    // Objects are written one packet at a time, so what is unacknowledged bounds itself.
    t.send_window(u64::MAX / 2);
    // Who is held, and for how long, is not QUIC's to say: its timer would stand in a knock's way.
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
    // How many datagrams leave in one call is said with each call.
    t.enable_segmentation_offload(true);
    t.allow_spin(false);
    t
}

/// Connection ids: half from the seed, half their authentication code, so that ours, of this life
/// or an earlier one, can be told from others.
#[derive(Clone)]
struct ConnectionIds {
    rng: Rng,
    key: hmac::Key,
}

impl ConnectionIds {
    /// The half that follows from the other.
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
    fn endpoints_of_one_identity_have_keys_of_their_own_that_outlive_a_restart_where_one_listens() {
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
