//! What a link tells about itself: notices when something changes, and all its figures.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use remora_base::Rate;
use remora_link::{self as link, PeerView, State};
use serde::{Deserialize, Serialize};

use super::key::PublicKey;
use super::party::Counters;

/// Something changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// An end can be reached.
    Up {
        /// What it is called.
        name: String,
        /// Where it is.
        address: Option<SocketAddr>,
    },
    /// An end said good-bye.
    Left {
        /// What it is called.
        name: String,
    },
    /// Nothing was heard of an end for so long that it is given up.
    Gone {
        /// What it is called.
        name: String,
    },
    /// An end has another address.
    Moved {
        /// What it is called.
        name: String,
        /// Where it is now.
        to: SocketAddr,
    },
    /// The channel to an end changed.
    Channel {
        /// What it is called.
        name: String,
        /// What the channel is now.
        state: ChannelState,
    },
    /// An end announced a cell switch, or its end.
    HandOff {
        /// What it is called.
        name: String,
        /// How long the switch is to take; `None`: it is over.
        expected: Option<Duration>,
    },
    /// The base does not answer.
    NoAnswer {
        /// Where it should be.
        base: SocketAddr,
        /// It did, earlier.
        was_up: bool,
    },
    /// The base answers, and not with this end's secret.
    OtherSecret {
        /// Where it is.
        base: SocketAddr,
    },
    /// Somebody with another key called.
    Stranger {
        /// The key.
        key: PublicKey,
        /// Where from.
        from: SocketAddr,
    },
    /// Somebody called another base here.
    OtherBase {
        /// Where from.
        from: SocketAddr,
    },
    /// Datagrams cannot be sent at present.
    NoNetwork {
        /// What the system says.
        why: String,
    },
    /// They can be again.
    Network,
    /// Datagrams to another end come back into the tunnel.
    Circle {
        /// Where they should go.
        to: SocketAddr,
    },
    /// The network device was taken down.
    DeviceDown,
    /// It is up again, and has its addresses and routes.
    DeviceUp {
        /// What it could not be given.
        failed: Option<String>,
    },
    /// A mobile sends packets from an address that is not its.
    NotTheirs {
        /// What it is called.
        name: String,
        /// The address it has here.
        address: Option<IpAddr>,
        /// The packet's.
        source: IpAddr,
    },
    /// The way to an end is so long that the window does not let through what the hop is said to carry.
    LongWay {
        /// What it is called.
        name: String,
        /// The most it does.
        carried: Rate,
    },
    /// Only short frames arrive at an end.
    Large {
        /// What it is called.
        name: String,
    },
    /// One key is heard from two places in turn.
    Twins {
        /// What its end is called.
        name: String,
        /// Where it is heard.
        places: [SocketAddr; 2],
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Up { name, address: Some(at) } => write!(f, "{name} is up, at {}", canonical(*at)),
            Notice::Up { name, address: None } => write!(f, "{name} is up"),
            Notice::Left { name } => write!(f, "{name} has left"),
            Notice::Gone { name } => write!(f, "{name} is gone: nothing was heard of it for minutes"),
            Notice::Moved { name, to } => write!(f, "{name} has moved to {}", canonical(*to)),
            Notice::Channel { name, state: ChannelState::Good } => write!(f, "the channel to {name} is good"),
            Notice::Channel { name, state: ChannelState::Suspect } => write!(f, "the channel to {name} is bad"),
            Notice::Channel { name, state: ChannelState::HandOff } => write!(f, "the channel to {name} rests"),
            Notice::HandOff { name, expected: Some(time) } => {
                write!(f, "{name} switches cells, for about {:.1} s", time.as_secs_f64())
            }
            Notice::HandOff { name, expected: None } => write!(f, "{name} has switched cells"),
            Notice::NoAnswer { base, was_up: true } => {
                write!(f, "nothing is heard from {} any more: is the hop or the base away?", canonical(*base))
            }
            Notice::NoAnswer { base, was_up: false } => write!(
                f,
                "no answer from {base}: is the base running there, does it know this end's key, and is --base-key \
                 its own?"
            ),
            Notice::OtherSecret { base } => {
                write!(f, "{base} answers, but not with this end's secret: is psk the same at both ends?")
            }
            Notice::Stranger { key, from } => {
                write!(f, "refused: {} called with key {key}, which is not known", canonical(*from))
            }
            Notice::OtherBase { from } => write!(
                f,
                "refused: {} called with another base's key, or its call was damaged on the way: is its --base-key \
                 this base's?",
                canonical(*from)
            ),
            Notice::NoNetwork { why } => write!(f, "cannot send at present: {why}"),
            Notice::Network => f.write_str("can send again"),
            Notice::Circle { to } => write!(
                f,
                "what is sent to {to} comes back into the tunnel, because the route to {ip} leads there: name \
                 networks without {ip} in place of those that cover it, or set a route to {ip} past the tunnel (ip \
                 route add {ip} via GATEWAY)",
                ip = to.ip()
            ),
            Notice::DeviceDown => f.write_str(
                "the network device is down: what was routed into the tunnel goes another way, without its seal, or \
                 nowhere",
            ),
            Notice::DeviceUp { failed: None } => {
                f.write_str("the network device is up again, and has its addresses and routes anew")
            }
            Notice::DeviceUp { failed: Some(why) } => write!(
                f,
                "the network device is up again, but lacks addresses or routes, and what they were for goes another \
                 way: {why}"
            ),
            Notice::NotTheirs { name, address, source } => {
                let own = address.map_or_else(String::new, |a| format!(" (it has {a} here)"));
                write!(
                    f,
                    "{name} sends packets from {source}, which are dropped, for that is not its address{own}: start it \
                     with the --address it has here, or name {source} or its network with its --mobile, too"
                )
            }
            Notice::LongWay { name, carried } => write!(
                f,
                "answers from {name} take so long that at most {:.1} Mbit/s go there (less where frames are lost), \
                 which is not the rate that was told",
                carried.bits() as f64 / 1e6
            ),
            Notice::Large { name } => {
                write!(f, "large frames do not arrive at {name}, and short ones do: try --mtu 1280 at both ends")
            }
            Notice::Twins { name, places: [a, b] } => {
                let (a, b) = (canonical(*a), canonical(*b));
                write!(f, "{name} is heard from {a} and {b} in turn: do two ends run with its key?")
            }
        }
    }
}

/// An IPv4 address at which a socket of IPv6 hears somebody, as IPv4 has it.
pub(super) fn canonical(at: SocketAddr) -> SocketAddr {
    match at.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), at.port()),
        // With its scope.
        IpAddr::V6(_) => at,
    }
}

/// In whole microseconds: what is finer is nobody's concern, and long to read.
pub(super) fn seconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e6
}

/// What is known of the way to an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChannelState {
    /// It answers.
    Good,
    /// An answer is missing; only probes are sent.
    Suspect,
    /// A cell switch is going on.
    HandOff,
}

impl From<State> for ChannelState {
    fn from(state: State) -> ChannelState {
        match state {
            State::Good => ChannelState::Good,
            State::Suspect => ChannelState::Suspect,
            State::HandOff => ChannelState::HandOff,
        }
    }
}

/// A link's figures. Counts are since the link or, for an end, since that came up.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Which end this is: `base` or `mobile`.
    pub role: String,
    /// The network device.
    pub device: String,
    /// The largest packet it takes.
    pub mtu: u16,
    /// Seconds since the start.
    pub seconds: f64,
    /// Bits a second: as told, or as learned.
    pub rate_bits: Option<u64>,
    /// What went wrong on the way.
    pub drops: Drops,
    /// The other ends.
    pub peers: Vec<PeerReport>,
}

/// Datagrams and packets that went nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Drops {
    /// Datagrams without a good seal.
    pub forged: u64,
    /// Datagrams seen before.
    pub replayed: u64,
    /// Handshakes that were damaged or meant for another.
    pub refused: u64,
    /// Handshakes of unknown keys.
    pub strangers: u64,
    /// Handshakes beyond the limit.
    pub limited: u64,
    /// Packets whose destination is nobody's here.
    pub no_route: u64,
    /// The tunnel's own datagrams, which the routes led back into it.
    #[serde(default)]
    pub own: u64,
    /// Packets for an end that is not up.
    pub no_session: u64,
    /// Packets from an end with a source address that is not its own.
    pub not_theirs: u64,
    /// Packets that are no unicast IP.
    pub no_unicast: u64,
    /// Datagrams the system did not take.
    pub unsent: u64,
    /// Packets the network device did not take.
    pub undelivered: u64,
}

impl Drops {
    pub(super) fn count(&mut self, c: Counters) {
        self.forged = c.forged;
        self.replayed = c.replayed;
        self.refused = c.refused;
        self.strangers = c.strangers;
        self.limited = c.limited;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        let handshakes = self.refused + self.strangers + self.limited;
        let packets = self.no_route + self.own + self.no_session + self.not_theirs + self.no_unicast;
        self.forged + self.replayed + handshakes + packets + self.unsent + self.undelivered
    }
}

/// Another end.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PeerReport {
    /// What it is called.
    pub name: String,
    /// Its key.
    pub key: String,
    /// Its address in the tunnel; a mobile does not know its base's.
    pub address: Option<IpAddr>,
    /// Where it is.
    pub endpoint: Option<SocketAddr>,
    /// Whether there is a session with it.
    pub up: bool,
    /// Its channel, if there is.
    pub state: Option<ChannelState>,
    /// Seconds since it was heard.
    pub heard_seconds: Option<f64>,
    /// The figures of the link protocol.
    #[serde(flatten)]
    pub figures: Figures,
}

/// The figures of the link protocol for one end.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Packets that wait to be sent for the first time.
    pub queue_packets: usize,
    /// Their bytes.
    pub queue_bytes: usize,
    /// Packets sent, or begun, and not acknowledged.
    pub unacknowledged: usize,
    /// Packets from it that wait for earlier ones.
    pub held: usize,
    /// From a frame's end to its acknowledgement.
    pub round_trip_ms: Option<f64>,
    /// Seconds of the medium used for it; `None` while the rate is not known.
    pub airtime_seconds: Option<f64>,
    /// Packets handed over for it.
    pub offered: u64,
    /// Packets acknowledged.
    pub acknowledged: u64,
    /// Their bytes.
    pub acknowledged_bytes: u64,
    /// DATA frames sent.
    pub frames: u64,
    /// Those sent again.
    pub retransmitted: u64,
    /// Packets dropped before they were sent: too long, no room, or by CoDel.
    pub dropped: u64,
    /// Packets given up: too old, or sent too often.
    pub abandoned: u64,
    /// Probes sent.
    pub probes: u64,
    /// How often its channel became suspect.
    pub suspicions: u64,
    /// Seconds that it was.
    pub suspect_seconds: f64,
    /// Packets from it.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
}

impl Figures {
    pub(super) fn new(view: &PeerView, rate: Option<Rate>) -> Figures {
        let s: &link::PeerStats = &view.stats;
        Figures {
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
    fn ipv4_addresses_are_shown_as_such_wherever_they_are_heard() {
        for (at, shown) in [
            ("[::ffff:10.99.1.2]:7", "10.99.1.2:7"),
            ("10.99.1.2:7", "10.99.1.2:7"),
            ("[fe80::1%3]:7", "[fe80::1%3]:7"),
        ] {
            let to = at.parse().unwrap();
            assert_eq!(canonical(to).to_string(), shown);
            assert_eq!(Notice::Moved { name: "robot".into(), to }.to_string(), format!("robot has moved to {shown}"));
        }
    }

    #[test]
    fn times_are_short_to_read() {
        assert_eq!(seconds(Duration::from_nanos(226_737_000)).to_string(), "0.226737");
        assert_eq!(seconds(Duration::from_nanos(1_000_000_999)).to_string(), "1");
    }
}
