//! All links of a world, and the messages in flight.

use std::time::Duration;

use bytes::Bytes;
use remora_base::{Path, Peer, Rng, Time, Transmit};
use remora_channel::{Lane, Side};
use remora_link::HandOffPhase;

use super::addr;
use super::addr::{StreamState, client_addr, client_of, server_addr};
use super::hop::{Arrival, CallRules, Hop, NetStats, Rule, RuleAction};
use super::radio::Radio;
use crate::events::EventQueue;
use crate::events::NodeId;

/// Delay of the hop that replaces the radio at the end of the faults.
const HEALED_DELAY: Duration = Duration::from_millis(10);

/// A client's path to the server.
#[derive(Debug)]
struct Link {
    medium: Medium,
    partitioned: bool,
    stream: StreamState,
    script: CallRules,
}

/// The datagram path of a client.
#[derive(Debug)]
pub enum Medium {
    /// A network with its own faults.
    Hop(Hop),
    /// The radio: the client is on this mobile, the server behind the base station. See
    /// [`Network::set_radio`].
    Radio {
        /// The mobile, which may have several clients.
        mobile: usize,
    },
}

/// All links, and the messages in flight.
#[derive(Debug)]
pub struct Network {
    links: Vec<Link>,
    radio: Option<Radio>,
    flying: EventQueue<Arrival>,
    rng: Rng,
    stats: NetStats,
}

impl Network {
    pub fn new(seed: u64) -> Network {
        Network {
            links: Vec::new(),
            radio: None,
            flying: EventQueue::new(),
            rng: Rng::stream(seed, "network"),
            stats: NetStats::default(),
        }
    }

    /// Sets the radio. Without one, clients on the radio reach nobody.
    pub fn set_radio(&mut self, radio: Radio) {
        self.radio = Some(radio);
    }

    pub fn radio(&self) -> Option<&Radio> {
        self.radio.as_ref()
    }

    /// Every mobile announces a hand-off to the base station.
    pub fn announce(&mut self, now: Time, phase: HandOffPhase) {
        if let Some(radio) = &mut self.radio {
            radio.announce(now, phase);
        }
    }

    /// Adds the link of the next client.
    pub fn add_link(&mut self, medium: Medium) {
        self.links.push(Link { medium, partitioned: false, stream: StreamState::new(), script: CallRules::default() });
    }

    /// Applies `rules` to calls of `client`, for scripted tests.
    pub fn set_script(&mut self, client: usize, rules: Vec<Rule>) {
        if let Some(link) = self.links.get_mut(client) {
            link.script = CallRules::new(rules);
        }
    }

    pub fn stats(&self) -> NetStats {
        self.stats
    }

    /// Sends a message of `from` (a client, or the server to a client).
    pub fn send(&mut self, now: Time, from: NodeId, transmit: Transmit) {
        self.stats.sent += 1;
        let client = match from {
            NodeId::Client(n) => Some(n),
            NodeId::Server => client_of(transmit.to.addr),
        };
        // A reply to a stranger's invented message has no receiver.
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

    /// The next message that arrived by `now`.
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

    /// Whether a message in flight still arrives: no partition, and its stream is connected.
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

    /// When an event is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let radio = self.radio.as_ref().and_then(Radio::poll_timeout);
        [radio, self.flying.next_at()].into_iter().flatten().min()
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.poll_timeout().is_none()
    }

    pub fn handle_timeout(&mut self, now: Time) {
        if let Some(radio) = &mut self.radio {
            radio.handle_timeout(now);
        }
    }

    /// Partitions a client from the server, or ends the partition. Messages in flight at the start
    /// are lost if they would arrive before its end.
    pub fn set_partitioned(&mut self, client: usize, partitioned: bool) {
        if let Some(link) = self.links.get_mut(client) {
            link.partitioned = partitioned;
        }
    }

    /// Ends all faults of the network: messages are only delayed. The radio's errors cannot end, so
    /// its clients get a plain hop; their messages in flight are lost.
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

    /// Whether `client` is partitioned from the server.
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
