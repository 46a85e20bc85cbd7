//! Settings of an endpoint.

use std::net::SocketAddr;
use std::time::Duration;

use crate::session::crypto::Guests;
use crate::{estimate, scheduler};

/// Which peers share a bottleneck, and therefore a scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Bottleneck {
    /// All peers: the bottleneck is the local link. The forecasts of the peers are added.
    #[default]
    Shared,
    /// Each peer has its own: the bottleneck is the peer's link.
    PerPeer,
}

/// Settings of an endpoint.
#[derive(Clone, Debug)]
pub struct Config {
    /// The keys that may connect. Default: none.
    pub guests: Guests,
    /// Settings of the scheduler, including the bounds on objects and bytes to be sent.
    pub scheduler: scheduler::Config,
    /// Settings of the estimator. The session sets `mtu`.
    pub estimator: estimate::Config,
    /// Which peers share a scheduler.
    pub bottleneck: Bottleneck,
    /// Initial size of datagrams in bytes, without IP and UDP headers (1200 to 65527).
    pub datagram: u16,
    /// Whether to discover larger path MTUs (RFC 8899), up to `datagram_max`; the socket must then prevent
    /// fragmentation. Otherwise every path must carry `datagram`.
    pub discover: bool,
    /// Largest datagram to probe and to accept (1452 to 65527). Sizes beyond the path MTU cost some probes.
    pub datagram_max: u16,
    /// Maximum size of a received object, in bytes.
    pub object_max: u32,
    /// Maximum bytes of received objects of one peer, complete or partial, until
    /// [`poll_event`](remora_base::Core::poll_event) returns them; each counts for 512 bytes more. At least one
    /// object of `object_max`.
    pub buffer_peer: u64,
    /// The same for all peers together.
    pub buffer_total: u64,
    /// Receive window of a connection in bytes (QUIC flow control): at least the bandwidth-delay product, or it
    /// slows the peer down. At most 1 MiB for one object.
    pub window: u32,
    /// Maximum number of objects that a peer may have in flight.
    pub streams: u32,
    /// Maximum number of connections. A peer that was silent for [`idle`](Config::idle) and a minute is evicted for
    /// a new one, and so are half-open connections; otherwise new ones are refused. From 128 on, one host has at
    /// most a quarter, not counting keys in a list of guests. With such a list, the keys share the connections when
    /// all are in use, and a few more handshakes may be in progress.
    pub peers: usize,
    /// Time after which a silent peer and its objects are lost.
    pub hold: Duration,
    /// Time after which a connection without objects is closed.
    pub idle: Duration,
    /// Interval at which an idle client sends a packet, so that address translators keep its mapping or its server
    /// learns the new one; `None` for never.
    pub keep_alive: Option<Duration>,
    /// Whether objects may be sent in the first flight to a known peer (0-RTT).
    pub early: bool,
    /// The address at which a server listens again after a restart. Connection ids and reset tokens are derived
    /// from it, so that peers of the previous process learn of the restart at once. `None` for an endpoint without
    /// a fixed address.
    pub listens: Option<SocketAddr>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            guests: Guests::Nobody,
            scheduler: scheduler::Config::default(),
            estimator: estimate::Config::new(estimate::Kind::Rate),
            bottleneck: Bottleneck::Shared,
            datagram: 1200,
            discover: true,
            datagram_max: 1452,
            object_max: 64 << 20,
            buffer_peer: 96 << 20,
            buffer_total: 256 << 20,
            window: 4 << 20,
            streams: 1024,
            peers: 256,
            hold: Duration::from_secs(24 * 3600),
            idle: Duration::from_secs(600),
            keep_alive: Some(Duration::from_secs(25)),
            early: true,
            listens: None,
        }
    }
}
