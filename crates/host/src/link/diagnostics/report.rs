//! Notices of changes, and the counters of a link.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use remora_base::Rate;
use remora_link::{self as link, PeerState, PeerView};
use serde::{Deserialize, Serialize};

use crate::link::tunnel::{InvalidDatagrams, LinkPublicKey};

/// A notice of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkNotice {
    /// A peer is reachable.
    Up { name: String, address: Option<SocketAddr> },
    /// A peer sent a goodbye.
    Left { name: String },
    /// A peer was silent for too long and counts as down.
    Gone { name: String },
    /// A peer has a new address.
    Moved { name: String, to: SocketAddr },
    /// The channel state of a peer changed.
    Channel { name: String, state: ChannelState },
    /// A peer announced the beginning or end of a handoff.
    HandOff {
        name: String,
        /// The expected duration; `None` at the end.
        expected: Option<Duration>,
    },
    /// The base does not answer.
    NoAnswer {
        base: SocketAddr,
        /// Whether a session existed before.
        was_up: bool,
    },
    /// The base answers with another preshared key.
    OtherSecret { base: SocketAddr },
    /// A call with an unknown key was received.
    Stranger { key: LinkPublicKey, from: SocketAddr },
    /// A call for another base was received.
    OtherBase { from: SocketAddr },
    /// Datagrams currently cannot be sent.
    NoNetwork { why: String },
    /// Datagrams can be sent again.
    Network,
    /// Datagrams to a peer are routed back into the tunnel.
    RoutingLoop { to: SocketAddr },
    /// The network device was set down.
    DeviceDown,
    /// The device is up again and has its addresses and routes.
    DeviceUp {
        /// The address or route that could not be restored.
        failed: Option<String>,
    },
    /// A mobile sends packets with a foreign source address.
    ForeignSource { name: String, address: Option<IpAddr>, source: IpAddr },
    /// The BDP of the path exceeds the window, which limits the throughput below the configured rate.
    ShortWindow { name: String, carried: Rate },
    /// Only short frames arrive at a peer.
    LargeFramesLost { name: String },
    /// One key is used from two addresses alternately.
    DuplicateKey { name: String, addresses: [SocketAddr; 2] },
}

impl fmt::Display for LinkNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkNotice::Up { name, address: Some(at) } => write!(f, "{name} is up, at {}", canonical(*at)),
            LinkNotice::Up { name, address: None } => write!(f, "{name} is up"),
            LinkNotice::Left { name } => write!(f, "{name} has left"),
            LinkNotice::Gone { name } => write!(f, "{name} is gone: nothing was heard of it for minutes"),
            LinkNotice::Moved { name, to } => write!(f, "{name} has moved to {}", canonical(*to)),
            LinkNotice::Channel { name, state: ChannelState::Good } => write!(f, "the channel to {name} is good"),
            LinkNotice::Channel { name, state: ChannelState::Suspect } => write!(f, "the channel to {name} is bad"),
            LinkNotice::Channel { name, state: ChannelState::HandOff } => write!(f, "the channel to {name} rests"),
            LinkNotice::HandOff { name, expected: Some(time) } => {
                write!(f, "{name} switches cells, for about {:.1} s", time.as_secs_f64())
            }
            LinkNotice::HandOff { name, expected: None } => write!(f, "{name} has switched cells"),
            LinkNotice::NoAnswer { base, was_up: true } => {
                write!(f, "nothing is heard from {} any more: is the hop or the base away?", canonical(*base))
            }
            LinkNotice::NoAnswer { base, was_up: false } => write!(
                f,
                "no answer from {base}: is the base running there, does it know this end's key, and is --base-key \
                 its own?"
            ),
            _ => self.fmt_fault(f),
        }
    }
}

impl LinkNotice {
    /// Formats a notice of a fault, with what to do.
    fn fmt_fault(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkNotice::OtherSecret { base } => {
                write!(f, "{base} answers, but not with this end's secret: is psk the same at both ends?")
            }
            LinkNotice::Stranger { key, from } => {
                write!(f, "refused: {} called with key {key}, which is not known", canonical(*from))
            }
            LinkNotice::OtherBase { from } => write!(
                f,
                "refused: {} called with another base's key, or its call was damaged on the way: is its --base-key \
                 this base's?",
                canonical(*from)
            ),
            LinkNotice::NoNetwork { why } => write!(f, "cannot send at present: {why}"),
            LinkNotice::Network => f.write_str("can send again"),
            LinkNotice::RoutingLoop { to } => write!(
                f,
                "what is sent to {to} comes back into the tunnel, because the route to {ip} leads there: name \
                 networks without {ip} in place of those that cover it, or set a route to {ip} past the tunnel (ip \
                 route add {ip} via GATEWAY)",
                ip = to.ip()
            ),
            LinkNotice::DeviceDown => f.write_str(
                "the network device is down: what was routed into the tunnel goes another way, without its seal, or \
                 nowhere",
            ),
            LinkNotice::DeviceUp { failed: None } => {
                f.write_str("the network device is up again, and has its addresses and routes anew")
            }
            LinkNotice::DeviceUp { failed: Some(why) } => write!(
                f,
                "the network device is up again, but lacks addresses or routes, and what they were for goes another \
                 way: {why}"
            ),
            LinkNotice::ForeignSource { name, address, source } => {
                let own = address.map_or_else(String::new, |a| format!(" (it has {a} here)"));
                write!(
                    f,
                    "{name} sends packets from {source}, which are dropped, for that is not its address{own}: start it \
                     with the --address it has here, or name {source} or its network with its --mobile, too"
                )
            }
            LinkNotice::ShortWindow { name, carried } => write!(
                f,
                "answers from {name} take so long that at most {:.1} Mbit/s go there (less where frames are lost), \
                 which is not the rate that was told",
                carried.bits() as f64 / 1e6
            ),
            LinkNotice::LargeFramesLost { name } => {
                write!(f, "large frames do not arrive at {name}, and short ones do: try --mtu 1280 at both ends")
            }
            LinkNotice::DuplicateKey { name, addresses: [a, b] } => {
                let (a, b) = (canonical(*a), canonical(*b));
                write!(f, "{name} is heard from {a} and {b} in turn: do two ends run with its key?")
            }
            _ => Ok(()),
        }
    }
}

/// Maps an IPv4 address received on an IPv6 socket to its IPv4 form.
pub(in crate::link) fn canonical(at: SocketAddr) -> SocketAddr {
    match at.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), at.port()),
        // An IPv6 address keeps its scope.
        IpAddr::V6(_) => at,
    }
}

/// Seconds, rounded to microseconds for readability.
pub(in crate::link) fn seconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e6
}

/// The state of the path to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChannelState {
    /// The peer acknowledges.
    Good,
    /// An acknowledgement was missed; only probes are sent.
    Suspect,
    /// A handoff is in progress.
    HandOff,
}

impl From<PeerState> for ChannelState {
    fn from(state: PeerState) -> ChannelState {
        match state {
            PeerState::Good => ChannelState::Good,
            PeerState::Suspect => ChannelState::Suspect,
            PeerState::HandOff => ChannelState::HandOff,
        }
    }
}

/// The counters of a link, since its start or, for a peer, since that came up.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LinkReport {
    /// The role of this end: `base` or `mobile`.
    pub role: String,
    /// The name of the network device.
    pub device: String,
    pub mtu: u16,
    /// Seconds since the start.
    pub seconds: f64,
    /// The rate in bits a second, configured or learned.
    pub rate_bits: Option<u64>,
    /// Counts of drops by reason.
    pub drops: Drops,
    pub peers: Vec<PeerReport>,
}

/// Datagrams and packets dropped, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Drops {
    /// Datagrams that are not authentic.
    pub forged: u64,
    /// Datagrams received before.
    pub replayed: u64,
    /// Handshakes damaged or for another base.
    pub refused: u64,
    /// Handshakes with unknown keys.
    pub strangers: u64,
    /// Handshakes above the rate limit.
    pub limited: u64,
    /// Packets for unknown destinations.
    pub no_route: u64,
    /// The tunnel's own datagrams, routed back into it.
    #[serde(default)]
    pub own: u64,
    /// Packets for a peer without a session.
    pub no_session: u64,
    /// Packets from a peer with a foreign source address.
    pub not_theirs: u64,
    /// Packets that are not unicast IP.
    pub no_unicast: u64,
    /// Datagrams that the kernel rejected.
    pub unsent: u64,
    /// Packets that the network device rejected.
    pub undelivered: u64,
}

impl Drops {
    pub(in crate::link) fn count(&mut self, c: InvalidDatagrams) {
        self.forged = c.forged;
        self.replayed = c.replayed;
        self.refused = c.refused;
        self.strangers = c.strangers;
        self.limited = c.limited;
    }

    /// The sum of all reasons.
    pub fn total(&self) -> u64 {
        let handshakes = self.refused + self.strangers + self.limited;
        let packets = self.no_route + self.own + self.no_session + self.not_theirs + self.no_unicast;
        self.forged + self.replayed + handshakes + packets + self.unsent + self.undelivered
    }
}

/// The report of a peer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PeerReport {
    pub name: String,
    pub key: String,
    /// The peer's address in the tunnel; a mobile does not know its base's.
    pub address: Option<IpAddr>,
    /// The peer's address below the tunnel.
    pub endpoint: Option<SocketAddr>,
    /// Whether there is a session.
    pub up: bool,
    pub state: Option<ChannelState>,
    /// Seconds since the peer was last heard.
    pub heard_seconds: Option<f64>,
    /// The link protocol's counters.
    #[serde(flatten)]
    pub figures: PeerFigures,
}

/// The link protocol's counters for one peer.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PeerFigures {
    /// Packets queued for their first transmission.
    pub queue_packets: usize,
    /// Bytes queued for their first transmission.
    pub queue_bytes: usize,
    /// Packets sent, at least in part, and not acknowledged.
    pub unacknowledged: usize,
    /// Packets from the peer held for earlier ones.
    pub held: usize,
    /// Smoothed delay from a frame's departure to its acknowledgement, in milliseconds.
    pub round_trip_ms: Option<f64>,
    /// Airtime used for the peer, in seconds; `None` while the rate is unknown.
    pub airtime_seconds: Option<f64>,
    /// Packets enqueued for the peer.
    pub offered: u64,
    /// Packets that the peer acknowledged.
    pub acknowledged: u64,
    /// Bytes that the peer acknowledged.
    pub acknowledged_bytes: u64,
    /// DATA frames sent.
    pub frames: u64,
    /// DATA frames that were retransmissions.
    pub retransmitted: u64,
    /// Packets dropped before transmission: too long, queue full, or by CoDel.
    pub dropped: u64,
    /// Packets abandoned at the limit of lifetime or attempts.
    pub abandoned: u64,
    /// Probes (RTS) sent.
    pub probes: u64,
    /// Times the channel became suspect.
    pub suspicions: u64,
    /// Seconds in which the channel was suspect.
    pub suspect_seconds: f64,
    /// Packets delivered from the peer.
    pub delivered: u64,
    /// Bytes delivered from the peer.
    pub delivered_bytes: u64,
}

impl PeerFigures {
    pub(in crate::link) fn new(view: &PeerView, rate: Option<Rate>) -> PeerFigures {
        let s: &link::PeerStats = &view.stats;
        PeerFigures {
            queue_packets: view.queue_packets,
            queue_bytes: view.queue_bytes,
            unacknowledged: view.unacknowledged,
            held: view.held,
            round_trip_ms: view.round_trip.map(|t| t.as_micros() as f64 / 1e3),
            airtime_seconds: (s.airtime > Duration::ZERO || rate.is_some()).then(|| seconds(s.airtime)),
            offered: s.offered,
            acknowledged: s.acknowledged,
            acknowledged_bytes: s.acknowledged_bytes,
            frames: s.data_frames,
            retransmitted: s.retransmitted,
            dropped: s.too_long + s.overflow + s.codel_drops,
            abandoned: s.gave_up.total(),
            probes: s.rts,
            suspicions: s.suspicions,
            suspect_seconds: seconds(s.suspect_time),
            delivered: s.delivered,
            delivered_bytes: s.delivered_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_ipv4_address_is_shown_as_ipv4() {
        for (at, shown) in [
            ("[::ffff:10.99.1.2]:7", "10.99.1.2:7"),
            ("10.99.1.2:7", "10.99.1.2:7"),
            ("[fe80::1%3]:7", "[fe80::1%3]:7"),
        ] {
            let to = at.parse().unwrap();
            assert_eq!(canonical(to).to_string(), shown);
            assert_eq!(
                LinkNotice::Moved { name: "robot".into(), to }.to_string(),
                format!("robot has moved to {shown}")
            );
        }
    }

    #[test]
    fn seconds_are_rounded_to_microseconds() {
        assert_eq!(seconds(Duration::from_nanos(226_737_000)).to_string(), "0.226737");
        assert_eq!(seconds(Duration::from_nanos(1_000_000_999)).to_string(), "1");
    }
}
