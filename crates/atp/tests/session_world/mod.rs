//! Endpoints in one process on a bad network, in virtual time: what the session's tests, and
//! its swarm, run on.
#![allow(dead_code, unreachable_pub)] // each user takes what it needs

pub mod swarm;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use remora_atp::session::{Config, Endpoint, Event, Guests, Identity, PeerId};
use remora_atp::{Final, Options, Outcome, Priority, RequestId, Upcall};
use remora_base::{Core, Peer, Rng, Time, Transmit};

/// Bytes an IPv4 and a UDP header take on the wire.
pub const HEADERS: u64 = 28;

/// What the network does to packets that a node sends.
#[derive(Clone, Debug)]
pub struct Link {
    /// Bytes a second, from when; the first entry is at zero.
    pub rate: Vec<(Time, u64)>,
    pub delay: Duration,
    /// How long a packet may wait before the bottleneck; longer waits are drops.
    pub queue: Duration,
    pub loss: f64,
    pub duplicate: f64,
    /// How many are held back by up to `jitter`.
    pub reorder: f64,
    pub jitter: Duration,
    /// From, to: nothing gets through.
    pub blackouts: Vec<(Time, Time)>,
    /// From, to: every second packet gets through, as from a queue that runs over.
    pub halved: Option<(Time, Time)>,
}

impl Link {
    pub fn new(rate: u64, delay: Duration) -> Link {
        Link {
            rate: vec![(Time::ZERO, rate)],
            delay,
            queue: Duration::from_secs(2),
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            jitter: Duration::ZERO,
            blackouts: Vec::new(),
            halved: None,
        }
    }

    fn rate_at(&self, t: Time) -> u64 {
        self.rate.iter().rev().find(|(from, _)| *from <= t).map_or(1, |(_, rate)| (*rate).max(1))
    }

    fn is_out(&self, t: Time) -> bool {
        self.blackouts.iter().any(|(from, to)| *from <= t && t < *to)
    }
}

/// An endpoint, its address, its way out, and what it said.
pub struct Node {
    pub endpoint: Endpoint,
    pub addr: SocketAddr,
    /// How often it has lost its memory.
    life: u64,
    pub link: Link,
    pub events: Vec<(Time, Event)>,
    /// Whether its application takes objects.
    pub takes: bool,
    /// Bytes put on the wire, headers included, and packets.
    pub wire: (u64, u64),
    /// The datagrams of each call that sent some.
    pub batches: Vec<usize>,
    /// Copies of what it sent, if asked for.
    pub capture: Option<Vec<Transmit>>,
    /// The largest datagram it may send.
    largest: usize,
    free: Time,
    /// From, to, in order: its machine does not let it run. What comes waits for it.
    pub pauses: Vec<(Time, Time)>,
}

impl Node {
    /// When it next runs, from then on.
    fn runs(&self, at: Time) -> Time {
        let begun = self.pauses.partition_point(|(from, _)| *from <= at);
        self.pauses[..begun].last().map_or(at, |(_, to)| at.max(*to))
    }
}

struct Flight {
    from: SocketAddr,
    to: SocketAddr,
    payload: Bytes,
}

/// The nodes and their network.
pub struct World {
    pub now: Time,
    pub nodes: Vec<Node>,
    /// Datagrams arrive at multiples of this, and so together (as GRO has it), if it is not zero.
    pub coalesced: Duration,
    /// Addresses at which nothing but a Retry arrives.
    pub deaf: Vec<SocketAddr>,
    rng: Rng,
    epoch: Instant,
    air: BinaryHeap<Reverse<(Time, u64)>>,
    flights: std::collections::BTreeMap<u64, Flight>,
    sequence: u64,
    seed: u64,
}

pub fn identity(n: u8) -> Identity {
    Identity::from_secret([n; 32]).expect("any 32 bytes are a secret")
}

pub fn addr(n: usize, port: u16) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, n as u8 + 1), port).into()
}

/// Settings for tests: datagrams of one size, as the figures assume.
pub fn config() -> Config {
    Config { datagram: 1200, discover: false, ..Config::default() }
}

impl World {
    #[expect(clippy::disallowed_methods, reason = "an Instant to count from; nobody looks at the clock again")]
    pub fn new(seed: u64) -> World {
        World {
            now: Time::from_secs(1),
            nodes: Vec::new(),
            coalesced: Duration::ZERO,
            deaf: Vec::new(),
            rng: Rng::stream(seed, "network"),
            epoch: Instant::now(),
            air: BinaryHeap::new(),
            flights: std::collections::BTreeMap::new(),
            sequence: 0,
            seed,
        }
    }

    /// A server (node 0) that admits anyone, and a client (node 1), `link` either way.
    pub fn pair(seed: u64, link: Link) -> World {
        let mut world = World::new(seed);
        world.add(Config { guests: Guests::Anyone, ..config() }, link.clone());
        world.add(config(), link);
        world
    }

    pub fn add(&mut self, config: Config, link: Link) -> usize {
        let n = self.nodes.len();
        let largest = usize::from(config.datagram_max.max(1472));
        let endpoint = self.endpoint(n, 0, config);
        let addr = addr(n, 4000);
        self.nodes.push(Node {
            endpoint,
            addr,
            life: 0,
            link,
            events: Vec::new(),
            takes: true,
            wire: (0, 0),
            batches: Vec::new(),
            capture: None,
            largest,
            free: Time::ZERO,
            pauses: Vec::new(),
        });
        n
    }

    fn endpoint(&self, n: usize, life: u64, config: Config) -> Endpoint {
        let config = Config { listens: Some(addr(n, 4000)), ..config };
        let seed = self.seed.wrapping_mul(31).wrapping_add(n as u64).wrapping_add(life << 32);
        Endpoint::new(config, identity(n as u8 + 1), self.epoch, self.now, seed).expect("a sound configuration")
    }

    /// Node `n` loses its memory.
    pub fn restart(&mut self, n: usize, config: Config) {
        self.nodes[n].life += 1;
        self.nodes[n].endpoint = self.endpoint(n, self.nodes[n].life, config);
    }

    pub fn connect(&mut self, from: usize, to: usize) -> PeerId {
        let key = identity(to as u8 + 1).public();
        let addr = self.nodes[to].addr;
        let peer = self.nodes[from].endpoint.connect(self.now, addr, key).expect("room for one more");
        self.drain(from);
        peer
    }

    pub fn send(&mut self, from: usize, peer: PeerId, object: Bytes, options: Options) -> RequestId {
        let request = self.nodes[from].endpoint.send(self.now, peer, object, options).expect("a peer");
        self.drain(from);
        request
    }

    /// Does something to a node's endpoint, and what follows.
    pub fn with<R>(&mut self, n: usize, f: impl FnOnce(&mut Endpoint, Time) -> R) -> R {
        let result = f(&mut self.nodes[n].endpoint, self.now);
        self.drain(n);
        result
    }

    fn drain(&mut self, n: usize) {
        let (mut sent, mut bytes) = (0, Vec::new());
        let max = NonZeroUsize::new(64).expect("a constant");
        while let Some(batch) = self.nodes[n].endpoint.poll_batch(self.now, max, &mut bytes) {
            sent += 1;
            assert!(sent < 10_000, "node {n} sends without end at {}", self.now);
            self.nodes[n].batches.push(bytes.len().div_ceil(batch.segment));
            for datagram in bytes.chunks(batch.segment) {
                let payload = Bytes::copy_from_slice(datagram);
                self.put_on_wire(n, Transmit { to: Peer::datagram(batch.to), payload });
            }
        }
        let node = &mut self.nodes[n];
        let next = |e: &mut Endpoint| if node.takes { e.poll_event() } else { e.poll_event_but_objects() };
        while let Some(event) = next(&mut node.endpoint) {
            node.events.push((self.now, event));
        }
    }

    fn put_on_wire(&mut self, n: usize, transmit: Transmit) {
        let node = &mut self.nodes[n];
        if let Some(capture) = &mut node.capture {
            capture.push(transmit.clone());
        }
        let bytes = transmit.payload.len() as u64 + HEADERS;
        assert!(transmit.payload.len() <= node.largest, "one datagram at a time");
        node.wire = (node.wire.0 + bytes, node.wire.1 + 1);
        if self.deaf.contains(&transmit.to.addr) && transmit.payload[0] & 0xf0 != 0xf0 {
            return;
        }
        let start = self.now.max(node.free);
        if start.since(self.now) > node.link.queue {
            return;
        }
        node.free = start + Duration::from_secs_f64(bytes as f64 / node.link.rate_at(start) as f64);
        let link = node.link.clone();
        let (from, gone) = (node.addr, node.free);
        let is_halved = link.halved.is_some_and(|(from, to)| from <= gone && gone < to);
        if link.is_out(gone) || (is_halved && node.wire.1.is_multiple_of(2)) || self.rng.chance(link.loss) {
            return;
        }
        let copies = 1 + u32::from(self.rng.chance(link.duplicate));
        for _ in 0..copies {
            let mut at = gone + link.delay;
            if self.rng.chance(link.reorder) {
                at += Duration::from_nanos(self.rng.below(link.jitter.as_nanos() as u64));
            }
            if !self.coalesced.is_zero() {
                let step = self.coalesced.as_nanos() as u64;
                at = Time::ZERO + Duration::from_nanos(at.as_nanos().next_multiple_of(step));
            }
            let to = self.nodes.iter().find(|n| n.addr == transmit.to.addr);
            at = to.map_or(at, |node| node.runs(at));
            self.fly(at, from, transmit.to.addr, transmit.payload.clone());
        }
    }

    /// A datagram that arrives at `at`, from wherever it claims to be.
    pub fn fly(&mut self, at: Time, from: SocketAddr, to: SocketAddr, payload: Bytes) {
        self.sequence += 1;
        self.air.push(Reverse((at, self.sequence)));
        self.flights.insert(self.sequence, Flight { from, to, payload });
    }

    fn next_time(&self) -> Option<Time> {
        let timers = self.nodes.iter().filter_map(|n| n.endpoint.poll_timeout().map(|at| n.runs(at.max(self.now))));
        let air = self.air.peek().map(|Reverse((at, _))| *at);
        timers.chain(air).min().map(|t| t.max(self.now))
    }

    /// Runs until `end`, or until `done` says so; whether it did.
    pub fn run_until(&mut self, end: Time, mut done: impl FnMut(&World) -> bool) -> bool {
        let mut still = (self.now, 0);
        loop {
            if done(self) {
                return true;
            }
            let Some(next) = self.next_time().filter(|t| *t <= end) else {
                self.now = end;
                return done(self);
            };
            still = if still.0 == next { (next, still.1 + 1) } else { (next, 0) };
            assert!(still.1 < 20_000, "time stands still at {next}");
            self.now = next;
            self.step();
        }
    }

    pub fn run_for(&mut self, d: Duration) {
        self.run_until(self.now + d, |_| false);
    }

    fn step(&mut self) {
        while let Some(Reverse((at, sequence))) = self.air.peek().copied() {
            if at > self.now {
                break;
            }
            self.air.pop();
            let Some(flight) = self.flights.remove(&sequence) else { continue };
            let (from, to) = (flight.from, flight.to);
            let mut together = vec![BytesMut::from(flight.payload)];
            while let Some(more) = self.next_if_together(at, from, to) {
                together.push(more.into());
            }
            let Some(n) = self.nodes.iter().position(|n| n.addr == to) else { continue };
            self.nodes[n].endpoint.handle_datagrams(self.now, from, together);
            self.drain(n);
        }
        for n in 0..self.nodes.len() {
            if self.nodes[n]
                .endpoint
                .poll_timeout()
                .is_some_and(|t| t <= self.now && self.nodes[n].runs(self.now) == self.now)
            {
                self.nodes[n].endpoint.handle_timeout(self.now);
                self.drain(n);
            }
        }
    }

    /// The next datagram, if it arrives at the same time and comes and goes the same way.
    fn next_if_together(&mut self, at: Time, from: SocketAddr, to: SocketAddr) -> Option<Bytes> {
        let Reverse((next, sequence)) = self.air.peek().copied()?;
        self.flights.get(&sequence).filter(|f| (next, f.from, f.to) == (at, from, to))?;
        self.air.pop();
        self.flights.remove(&sequence).map(|f| f.payload)
    }

    /// The objects node `n` got, and when.
    pub fn received(&self, n: usize) -> Vec<(Time, Bytes)> {
        let objects = self.nodes[n].events.iter().filter_map(|(at, e)| match e {
            Event::Received { object, .. } => Some((*at, object.clone())),
            _ => None,
        });
        objects.collect()
    }

    /// The ends of node `n`'s requests.
    pub fn finals(&self, n: usize) -> Vec<Final> {
        let ends = self.nodes[n].events.iter().filter_map(|(_, e)| match e {
            Event::Upcall(Upcall::Final(end)) => Some(*end),
            _ => None,
        });
        ends.collect()
    }

    pub fn outcome(&self, n: usize, request: RequestId) -> Option<Outcome> {
        self.finals(n).into_iter().find(|f| f.request == request).map(|f| f.outcome)
    }

    /// Connects node 1 to node 0 and waits until both know it.
    pub fn meet(&mut self) -> PeerId {
        let peer = self.connect(1, 0);
        assert!(self.run_until(self.now + Duration::from_secs(30), |w| w.is_up(1) && w.is_up(0)), "no connection");
        peer
    }

    pub fn is_up(&self, n: usize) -> bool {
        self.nodes[n].events.iter().any(|(_, e)| matches!(e, Event::Up { .. }))
    }
}

/// `len` bytes that tell objects apart.
pub fn object(tag: u8, len: usize) -> Bytes {
    (0..len).map(|i| tag.wrapping_add((i % 251) as u8)).collect()
}

pub fn options(priority: Priority) -> Options {
    Options { priority, ..Options::default() }
}
