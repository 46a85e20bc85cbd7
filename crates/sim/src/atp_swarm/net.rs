//! The network between the server and its clients: the channel core, with duplicates, reordering
//! and addresses.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use remora_base::{Rate, Rng, Time};
use remora_channel::{self as channel, Channel, ConfigError, Duplex, Lane, Side};

use super::scenario::Scenario;

/// Minimum rate of the healed link, so that the rest completes soon.
const HEALED: Rate = Rate::mbit(1);
/// Length of a tag before each datagram on the channel: sending time and ports.
const TAG: usize = 12;

/// A datagram that arrived.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) node: usize,
    pub(super) from: SocketAddr,
    /// When it was sent.
    pub(super) sent: Time,
    pub(super) payload: Bytes,
}

pub(super) struct Net {
    channel: Channel,
    healed: channel::Config,
    seed: u64,
    rng: Rng,
    duplicate: f64,
    reorder: f64,
    jitter: u64,
    /// Datagrams past the channel but delayed, by arrival.
    late: BTreeMap<(Time, u64), (usize, Bytes)>,
    sequence: u64,
    /// By node, its number of moves.
    ports: Vec<u16>,
    pub(super) packets: u64,
}

/// The address of node `node` after `moves` moves.
fn address(node: usize, moves: u16) -> SocketAddr {
    let [_, host] = (node as u16 + 1).to_be_bytes();
    let [_, net] = moves.to_be_bytes();
    (Ipv4Addr::new(10, 0, net, host), 4000 + moves % 1000).into()
}

impl Net {
    pub(super) fn new(scenario: &Scenario, seed: u64) -> Result<Net, ConfigError> {
        let healed = channel::Config {
            rate: scenario.channel.rate.max(HEALED),
            duplex: Duplex::Full,
            delay: scenario.channel.delay,
            ..channel::Config::default()
        };
        Ok(Net {
            channel: Channel::with_mobiles(scenario.channel.clone(), seed, scenario.nodes.len() - 1)?,
            healed,
            seed,
            rng: Rng::stream(seed, "atp network"),
            duplicate: scenario.duplicate,
            reorder: scenario.reorder,
            jitter: scenario.jitter.as_nanos() as u64,
            late: BTreeMap::new(),
            sequence: 0,
            ports: vec![0; scenario.nodes.len()],
            packets: 0,
        })
    }

    /// Ends all faults; datagrams in flight are lost.
    pub(super) fn heal(&mut self) -> Result<(), ConfigError> {
        self.channel = Channel::with_mobiles(self.healed.clone(), self.seed, self.channel.mobiles())?;
        (self.duplicate, self.reorder) = (0.0, 0.0);
        self.late.clear();
        Ok(())
    }

    pub(super) fn address(&self, node: usize) -> SocketAddr {
        address(node, self.ports[node])
    }

    /// Moves a node; datagrams in flight to its old address are lost.
    pub(super) fn relocate(&mut self, node: usize) {
        self.ports[node] += 1;
    }

    pub(super) fn send(&mut self, now: Time, node: usize, to: SocketAddr, payload: &[u8]) {
        self.packets += 1;
        let Some(other) = (0..self.ports.len()).find(|n| to.ip() == address(*n, to.port() - 4000).ip()) else { return };
        let lane = match (node, other) {
            (0, client) if client > 0 => Lane { mobile: client - 1, from: Side::Base },
            (client, 0) if client > 0 => Lane { mobile: client - 1, from: Side::Mobile },
            _ => return, // clients do not hear one another
        };
        let mut tagged = BytesMut::with_capacity(TAG + payload.len());
        tagged.put_u64(now.as_nanos());
        tagged.put_u16(self.ports[node]);
        tagged.put_u16(to.port() - 4000);
        tagged.put_slice(payload);
        self.channel.send(now, lane, tagged.freeze());
    }

    /// When the next datagram arrives.
    pub(super) fn next(&self) -> Option<Time> {
        let late = self.late.first_key_value().map(|((at, _), _)| *at);
        self.channel.poll_timeout().into_iter().chain(late).min()
    }

    pub(super) fn receive(&mut self, now: Time) -> Option<Arrival> {
        while let Some(delivery) = self.channel.poll_delivery(now) {
            let lane = match delivery.to {
                Side::Mobile => delivery.mobile * 2,
                Side::Base => delivery.mobile * 2 + 1,
            };
            let copies = 1 + u32::from(self.rng.chance(self.duplicate));
            for _ in 0..copies {
                let held = self.rng.chance(self.reorder);
                let by = if held { self.rng.below(self.jitter.max(1)) } else { 0 };
                self.sequence += 1;
                let at = now + std::time::Duration::from_nanos(by);
                self.late.insert((at, self.sequence), (lane, delivery.datagram.clone()));
            }
        }
        loop {
            let (lane, bytes) = self.late.first_entry().filter(|e| e.key().0 <= now)?.remove();
            if let Some(arrival) = self.open(lane, bytes) {
                return Some(arrival);
            }
        }
    }

    /// The receiver of a datagram; `None` if it has moved.
    fn open(&self, lane: usize, mut bytes: Bytes) -> Option<Arrival> {
        let client = lane / 2 + 1;
        let (from, to) = if lane.is_multiple_of(2) { (0, client) } else { (client, 0) };
        let sent = Time::from_nanos(bytes.get_u64());
        let (source, target) = (bytes.get_u16(), bytes.get_u16());
        let here = self.ports[to] == target;
        here.then(|| Arrival { node: to, from: address(from, source), sent, payload: bytes })
    }
}
