//! An endpoint's settings and their bounds.

use std::net::SocketAddr;
use std::time::Duration;

use crate::session::crypto::Guests;
use crate::{estimate, scheduler};

/// Which peers share one bottleneck, and so one scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Bottleneck {
    /// All of them: the poor link is ours. What the estimators of the peers say is added up.
    #[default]
    Shared,
    /// Each has its own: the poor link is theirs.
    PerPeer,
}

/// An endpoint's settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who may connect. Default: nobody.
    pub guests: Guests,
    /// The scheduler's settings, its bounds on objects and bytes waiting to be sent among them.
    pub scheduler: scheduler::Config,
    /// The estimator's settings. Its `mtu` is set by the session.
    pub estimator: estimate::Config,
    /// Which peers share a scheduler.
    pub bottleneck: Bottleneck,
    /// Bytes in a datagram, without IP and UDP headers, at first (1200 to 65527).
    pub datagram: u16,
    /// Whether larger datagrams (up to `datagram_max`) are tried; if so, the socket must not let
    /// them be fragmented. If not, `datagram` is what every path must carry.
    pub discover: bool,
    /// The largest datagrams that are tried, and taken (1452 to 65527). What is larger than a path
    /// carries costs some probes and the time they take.
    pub datagram_max: u16,
    /// The largest object taken from a peer, in bytes.
    pub object_max: u32,
    /// Bytes of received objects, whole or in part, kept for one peer until taken by
    /// [`poll_event`](remora_base::Core::poll_event); each counts for 512 beside its own. At least
    /// one of `object_max`.
    pub buffer_peer: u64,
    /// The same for all peers together.
    pub buffer_total: u64,
    /// Bytes a peer may have sent that were not read yet (QUIC flow control): at least the
    /// link's rate times its round trip, or it slows the peer down. Of one object 1 MiB at most.
    pub window: u32,
    /// Objects a peer may have under way at once.
    pub streams: u32,
    /// Connections at once. Who has been silent for [`idle`](Config::idle) and a minute makes room for a
    /// newcomer, and so do half-open connections; else more are refused. Of 128 or more one host has a
    /// quarter at most, without those whose key is on the list of guests. Where guests are listed, their keys share the
    /// connections when all are taken, and a few handshakes more may be under way.
    pub peers: usize,
    /// How long a silent peer is held before it counts as lost, objects and all.
    pub hold: Duration,
    /// How long a connection without objects is kept.
    pub idle: Duration,
    /// How often a client with nothing to send shows where it is, so that its server can reach it
    /// through address translators that forget, or give it another address; `None` for never.
    pub keep_alive: Option<Duration>,
    /// Whether objects may leave with the first flight to a known peer (0-RTT).
    pub early: bool,
    /// Where it listens, if it will be there again after a restart: by what it can say there and nowhere
    /// else, a peer that still talks to its earlier self knows at once that this is gone. `None` for an
    /// endpoint that never will be.
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
