//! The network between the clients and the server: for each client a way for datagrams
//! ([`Hop`] with faults, or the [`Radio`] that all mobiles share) and a stream that can be cut.

mod addr;
mod air;
mod hop;
mod packets;
mod radio;
mod script;
mod stream;

use std::time::Duration;

use bytes::Bytes;
use remora_base::{Path, Peer, Rng, Time, Transmit};
use remora_channel::{Lane, Side};
use remora_link::HandOffPhase;

use crate::agenda::Agenda;
use crate::trace::NodeId;

pub use addr::{client_addr, client_of, server_addr};
pub use air::Air;
pub use hop::Hop;
pub use radio::Radio;
pub use script::{Rule, RuleAction, Script};
pub use stream::StreamState;

/// The delay of what takes the radio's place.
const HEALED_DELAY: Duration = Duration::from_millis(10);

/// A message that reached its end of the network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Whom it reached.
    pub to: NodeId,
    /// The client at either end.
    pub client: usize,
    /// Where it came from, as the receiver sees it.
    pub from: Peer,
    /// The message.
    pub bytes: Bytes,
}

/// What has become of messages. Counters never go down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetStats {
    /// Messages handed in.
    pub sent: u64,
    /// Messages handed over, duplicates and noise included.
    pub delivered: u64,
    /// Datagrams lost, those with a bad checksum included.
    pub lost: u64,
    /// Datagrams doubled.
    pub doubled: u64,
    /// Messages made up or mangled and handed over.
    pub noise: u64,
    /// Stream records that went down with their connection.
    pub cut: u64,
}

/// A client's way to the server.
#[derive(Debug)]
struct Link {
    medium: Medium,
    partitioned: bool,
    stream: StreamState,
    script: Script,
}

/// What carries datagrams.
#[derive(Debug)]
pub enum Medium {
    /// A network with faults of its own.
    Hop(Hop),
    /// The radio: the client is on this mobile, the server behind the base station. See
    /// [`Network::set_radio`].
    Radio {
        /// Which mobile; several clients may be on one.
        mobile: usize,
    },
}

/// All links, and what is on its way on them.
#[derive(Debug)]
pub struct Network {
    links: Vec<Link>,
    radio: Option<Radio>,
    flying: Agenda<Arrival>,
    rng: Rng,
    stats: NetStats,
}

impl Network {
    /// A network without clients.
    pub fn new(seed: u64) -> Network {
        Network {
            links: Vec::new(),
            radio: None,
            flying: Agenda::new(),
            rng: Rng::stream(seed, "network"),
            stats: NetStats::default(),
        }
    }

    /// Gives the network a radio, for the clients that are on it. Without one they reach nobody.
    pub fn set_radio(&mut self, radio: Radio) {
        self.radio = Some(radio);
    }

    /// The radio, if there is one.
    pub fn radio(&self) -> Option<&Radio> {
        self.radio.as_ref()
    }

    /// Every mobile tells the base station of a cell switch.
    pub fn announce(&mut self, now: Time, phase: HandOffPhase) {
        if let Some(radio) = &mut self.radio {
            radio.announce(now, phase);
        }
    }

    /// Gives the next client its link.
    pub fn add_link(&mut self, medium: Medium) {
        self.links.push(Link { medium, partitioned: false, stream: StreamState::new(), script: Script::default() });
    }

    /// Has some calls of `client` treated as `rules` say, for scripted tests.
    pub fn set_script(&mut self, client: usize, rules: Vec<Rule>) {
        if let Some(link) = self.links.get_mut(client) {
            link.script = Script::new(rules);
        }
    }

    /// Counters.
    pub fn stats(&self) -> NetStats {
        self.stats
    }

    /// Sends what `from` (a client, or the server to a client) hands in.
    pub fn send(&mut self, now: Time, from: NodeId, transmit: Transmit) {
        self.stats.sent += 1;
        let client = match from {
            NodeId::Client(n) => Some(n),
            NodeId::Server => client_of(transmit.to.addr),
        };
        // A stranger's message was made up here; nobody is there to take the answer.
        let Some(client) = client.filter(|c| *c < self.links.len()) else { return };
        match transmit.to.path {
            Path::Stream(id) => self.send_record(now, from, client, id, transmit.payload),
            Path::Datagram => self.send_datagram(now, from, client, transmit.payload),
        }
    }

    fn send_datagram(&mut self, now: Time, from: NodeId, client: usize, bytes: Bytes) {
        let link = &mut self.links[client];
        let scripted = if from == NodeId::Server { None } else { link.script.action(&bytes) };
        if link.partitioned || scripted == Some(RuleAction::Drop) {
            self.stats.lost += 1;
            return;
        }
        let arrival = datagram(from, client, bytes);
        match (&mut link.medium, scripted) {
            (_, Some(RuleAction::Delay(d))) => self.flying.push(now + d, arrival),
            (Medium::Hop(hop), _) => hop.send(now, arrival, &mut self.rng, &mut self.flying, &mut self.stats),
            (Medium::Radio { mobile }, _) => {
                let lane = Lane { mobile: *mobile, from: side(from) };
                match &mut self.radio {
                    Some(radio) => radio.send(now, lane, client, &arrival.bytes),
                    None => self.stats.lost += 1,
                }
            }
        }
    }

    fn send_record(&mut self, now: Time, from: NodeId, client: usize, id: u64, bytes: Bytes) {
        let link = &mut self.links[client];
        let delay = match &mut link.medium {
            Medium::Hop(hop) => hop.stream_delay(&mut self.rng),
            // Streams over the radio would need a TCP; their links are hops.
            Medium::Radio { .. } => return,
        };
        let Some(at) = link.stream.arrival(now, delay, from, id) else {
            self.stats.cut += 1;
            return;
        };
        let arrival = Arrival { to: far_end(from, client), client, from: link.stream.peer(from, client), bytes };
        self.flying.push(at, arrival);
    }

    /// The next message that has arrived by `now`.
    pub fn poll_delivery(&mut self, now: Time) -> Option<Arrival> {
        while let Some((_, arrival)) = self.flying.pop_due(now) {
            if self.admits(&arrival) {
                self.stats.delivered += 1;
                return Some(arrival);
            }
        }
        while let Some(arrival) = self.poll_radio(now) {
            if self.admits(&arrival) {
                self.stats.delivered += 1;
                return Some(arrival);
            }
        }
        None
    }

    fn poll_radio(&mut self, now: Time) -> Option<Arrival> {
        let (from, client, bytes) = self.radio.as_mut()?.poll(now)?;
        let from = if from == Side::Mobile { NodeId::Client(client) } else { NodeId::Server };
        Some(datagram(from, client, bytes))
    }

    /// Whether what was sent still gets through: no partition has come up, its stream stands.
    fn admits(&mut self, arrival: &Arrival) -> bool {
        let link = &self.links[arrival.client];
        match arrival.from.path {
            Path::Datagram => {
                self.stats.lost += u64::from(link.partitioned);
                !link.partitioned
            }
            Path::Stream(id) => {
                let stands = link.stream.id() == Some(id);
                self.stats.cut += u64::from(!stands);
                stands
            }
        }
    }

    /// When something is next due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let radio = self.radio.as_ref().and_then(Radio::poll_timeout);
        [radio, self.flying.next_at()].into_iter().flatten().min()
    }

    /// Whether nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.poll_timeout().is_none()
    }

    /// Lets the radio's time be `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        if let Some(radio) = &mut self.radio {
            radio.handle_timeout(now);
        }
    }

    /// Cuts a client off from the server, or lets it through again. What is on its way when a
    /// partition comes up is lost if it would arrive before the partition ends.
    pub fn set_partitioned(&mut self, client: usize, partitioned: bool) {
        if let Some(link) = self.links.get_mut(client) {
            link.partitioned = partitioned;
        }
    }

    /// Ends all faults of the network: from now on messages are only delayed. The radio's
    /// weather cannot be changed, so its clients get a plain hop; what was on its way is lost.
    pub fn heal(&mut self) {
        self.radio = None;
        for link in &mut self.links {
            link.partitioned = false;
            match &mut link.medium {
                Medium::Hop(hop) => hop.heal(),
                Medium::Radio { .. } => link.medium = Medium::Hop(Hop::clean(HEALED_DELAY)),
            }
        }
    }

    pub fn stream(&mut self, client: usize) -> Option<&mut StreamState> {
        self.links.get_mut(client).map(|l| &mut l.stream)
    }

    /// Whether a partition separates `client` from the server.
    pub fn is_partitioned(&self, client: usize) -> bool {
        self.links.get(client).is_some_and(|l| l.partitioned)
    }
}

fn far_end(from: NodeId, client: usize) -> NodeId {
    if from == NodeId::Server { NodeId::Client(client) } else { NodeId::Server }
}

fn side(from: NodeId) -> Side {
    if from == NodeId::Server { Side::Base } else { Side::Mobile }
}

fn datagram(from: NodeId, client: usize, bytes: Bytes) -> Arrival {
    let addr = if from == NodeId::Server { server_addr() } else { client_addr(client, addr::UDP_PORT) };
    Arrival { to: far_end(from, client), client, from: Peer::datagram(addr), bytes }
}
