//! A world of endpoints: virtual time, and random actions of programs and faults.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::time::{Duration, Instant};

use bytes::Bytes;
use remora_atp::session::{
    Bottleneck, Config, Ending, Endpoint, Event, Identity, OBJECT_COST, PeerId, PublicKey, Refusal,
};
use remora_atp::{Command, OnShortage, Options, Outcome as End, Priority, QueueId, RequestId, Upcall};
use remora_base::{Core, Peer, Rate, Rng, Time};
use siphasher::sip::SipHasher13;

use super::ledger::{Entry, Ledger, NAME, Requester};
use super::net::Net;
use super::scenario::Scenario;

/// Time for all requests after the end of the faults: longer than the idle timeout in worlds where
/// it matters, and time for 600 KB at a megabit.
pub const LIVENESS: Duration = Duration::from_secs(300);

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Errors found; empty if none.
    pub violations: Vec<String>,
    /// Hash of the run: the same for the same seed.
    pub trace: u64,
    /// End of the run.
    pub ended: Time,
    pub requests: u64,
    pub delivered: u64,
    /// Those lost with their connection or by a restart.
    pub lost: u64,
    pub packets: u64,
}

/// Maximum of steps at one moment.
const STEPS_MAX: u32 = 20_000;
/// Violations after which a run ends.
const VIOLATIONS_MAX: usize = 5;
const SERVER: usize = 0;

struct Node {
    endpoint: Endpoint,
    /// Number of restarts.
    life: u32,
    /// Its connected peers.
    peers: BTreeMap<PeerId, KnownPeer>,
    /// Unreachable until then.
    down_until: Time,
}

struct KnownPeer {
    node: usize,
    up: bool,
}

struct World<'a> {
    scenario: &'a Scenario,
    say: &'a mut dyn FnMut(String),
    seed: u64,
    rng: Rng,
    now: Time,
    epoch: Instant,
    net: Net,
    nodes: Vec<Node>,
    ledger: Ledger,
    hash: SipHasher13,
}

pub(super) fn run(scenario: &Scenario, seed: u64, say: &mut dyn FnMut(String)) -> Outcome {
    let mut world = match World::new(scenario, seed, say) {
        Ok(world) => world,
        Err(why) => return Outcome { violations: vec![why], ..Outcome::default() },
    };
    for _ in 0..scenario.actions {
        let pause = world.rng.exponential(scenario.pause);
        world.run_until(world.now + pause, |_| false);
        world.act();
    }
    world.heal();
    let deadline = world.now + LIVENESS;
    if !world.run_until(deadline, |w| w.ledger.waiting().next().is_none()) {
        let waiting: Vec<String> = world.ledger.waiting().map(|e| format!("{:?} to {}", e.asked, e.to)).collect();
        world.complain(format!("{} have not ended: {}", waiting.len(), waiting.join(", ")));
        world.describe_peers();
    }
    // Late duplicates arrive.
    world.run_until(world.now + Duration::from_secs(5), |_| false);
    world.outcome()
}

impl<'a> World<'a> {
    #[expect(clippy::disallowed_methods, reason = "the epoch of virtual time; the clock is not read again")]
    fn new(scenario: &'a Scenario, seed: u64, say: &'a mut dyn FnMut(String)) -> Result<World<'a>, String> {
        let (now, epoch) = (Time::from_secs(1), Instant::now());
        let net = Net::new(scenario, seed).map_err(|e| e.to_string())?;
        let mut nodes = Vec::new();
        for (n, config) in scenario.nodes.iter().enumerate() {
            let endpoint = endpoint(config, n, 0, seed, epoch, now)?;
            nodes.push(Node { endpoint, life: 0, peers: BTreeMap::new(), down_until: now });
        }
        let rng = Rng::stream(seed, "atp programs");
        let hash = SipHasher13::new();
        Ok(World { scenario, say, seed, rng, now, epoch, net, nodes, ledger: Ledger::default(), hash })
    }

    fn outcome(mut self) -> Outcome {
        let all = self.ledger.entries();
        let ends = |end: End| all.iter().filter(|e| e.end.is_some_and(|f| f.outcome == end)).count() as u64;
        let forgotten = all.iter().filter(|e| e.forgotten).count() as u64;
        Outcome {
            trace: self.hash.finish(),
            ended: self.now,
            requests: all.len() as u64,
            delivered: ends(End::Delivered),
            lost: ends(End::Lost) + forgotten,
            packets: self.net.packets,
            violations: std::mem::take(&mut self.ledger.violations),
        }
    }

    /// Logs the state of each connection, for the analysis of a failure.
    fn describe_peers(&mut self) {
        for n in 0..self.nodes.len() {
            let peers: Vec<PeerId> = self.nodes[n].endpoint.peers().collect();
            for peer in peers {
                let status = self.nodes[n].endpoint.status(peer);
                self.tell(|| format!("node {n}, {peer:?}: {status:?}"));
            }
        }
    }

    fn complain(&mut self, what: String) {
        self.tell(|| format!("VIOLATION {what}"));
        self.ledger.violations.push(format!("{}: {what}", self.now));
    }

    fn tell(&mut self, what: impl FnOnce() -> String) {
        (self.say)(format!("{} {}", self.now, what()));
    }

    // Time.

    fn run_until(&mut self, end: Time, done: impl Fn(&World<'_>) -> bool) -> bool {
        let mut steps = 0;
        while self.ledger.violations.len() < VIOLATIONS_MAX {
            if done(self) {
                return true;
            }
            let timers = self.nodes.iter().filter(|n| n.down_until <= self.now);
            let timers = timers.filter_map(|n| n.endpoint.poll_timeout());
            let ups = self.nodes.iter().map(|n| n.down_until).filter(|t| *t > self.now);
            let next = timers.chain(self.net.next()).chain(ups).min().map(|t| t.max(self.now));
            let Some(next) = next.filter(|t| *t <= end) else {
                self.now = end;
                return done(self);
            };
            steps = if next > self.now { 0 } else { steps + 1 };
            self.now = next;
            if steps > STEPS_MAX {
                self.complain("time stands still".into());
                return false;
            }
            self.step();
        }
        false
    }

    fn step(&mut self) {
        while let Some(arrival) = self.net.receive(self.now) {
            let node = &mut self.nodes[arrival.node];
            if node.down_until <= self.now {
                node.endpoint.handle_input(self.now, Peer::datagram(arrival.from), arrival.payload);
                self.drain(arrival.node, arrival.sent);
            }
        }
        for n in 0..self.nodes.len() {
            let node = &mut self.nodes[n];
            if node.down_until <= self.now && node.endpoint.poll_timeout().is_some_and(|t| t <= self.now) {
                node.endpoint.handle_timeout(self.now);
                self.drain(n, self.now);
            }
        }
    }

    /// Drains node `n`; `sent` is when the datagram left that caused it.
    fn drain(&mut self, n: usize, sent: Time) {
        let mut left = STEPS_MAX;
        while let Some(transmit) = self.nodes[n].endpoint.poll_transmit(self.now) {
            self.hash.write_u64(self.now.as_nanos());
            self.hash.write_usize(transmit.payload.len());
            self.net.send(self.now, n, transmit.to.addr, &transmit.payload);
            left -= 1;
            if left == 0 {
                return self.complain(format!("node {n} sends endlessly"));
            }
        }
        while let Some(event) = self.nodes[n].endpoint.poll_event() {
            self.on_event(n, sent, event);
        }
        self.check_bounds(n);
    }

    fn check_bounds(&mut self, n: usize) {
        let (node, config) = (&self.nodes[n], &self.scenario.nodes[n]);
        let usage = node.endpoint.usage();
        let lanes = match config.bottleneck {
            Bottleneck::Shared => 1,
            Bottleneck::PerPeer => config.peers,
        };
        let received_max = config.buffer_total.max(config.buffer_peer).max(u64::from(config.object_max) + OBJECT_COST);
        let within = usage.peers <= config.peers.max(1)
            && usage.requests <= config.scheduler.objects_max.saturating_mul(lanes)
            && usage.received_bytes <= received_max
            && usage.events == 0;
        if !within {
            self.complain(format!("node {n} exceeds its limits: {usage:?}"));
        }
    }

    // Upcalls of endpoints.

    fn on_event(&mut self, n: usize, sent: Time, event: Event) {
        match &event {
            Event::Received { object, .. } => self.tell(|| format!("node {n}: received {} bytes", object.len())),
            other => self.tell(|| format!("node {n}: {other:?}")),
        }
        match event {
            Event::Received { object, .. } => self.ledger.arrived(self.now, sent, n, &object),
            Event::Upcall(Upcall::Final(end)) => {
                let asked = self.asked(n, end.request);
                self.ledger.ended(self.now, asked, end);
                let known = self.nodes[n].peers.contains_key(&PeerId::from(end.dest));
                if end.outcome == End::Lost && !known {
                    self.complain(format!("{asked:?} was lost with an unknown peer"));
                }
            }
            Event::Up { peer, key, .. } => match self.owner(key) {
                Some(node) => {
                    self.nodes[n].peers.insert(peer, KnownPeer { node, up: true });
                }
                None => self.complain(format!("node {n} reported an unknown peer")),
            },
            Event::Down { peer, why } => self.over(n, peer, why),
            Event::Refused { peer, why } => self.refused(n, peer, why),
            _ => {}
        }
    }

    fn over(&mut self, n: usize, peer: PeerId, why: Ending) {
        let f = self.scenario.faults;
        let possible = match why {
            Ending::Idle => f.short_idle,
            Ending::Closed => f.closes,
            Ending::ClosedByPeer => f.closes || f.short_idle,
            // The last packet of a closed connection may be lost; later ones reach an end that does
            // not know it.
            Ending::Restarted => f.restarts || f.closes || f.short_idle,
            Ending::Silent => f.short_hold,
            Ending::Full | Ending::Protocol(_) => false,
        };
        self.gone(n, peer, possible, &why.to_string());
    }

    fn refused(&mut self, n: usize, peer: PeerId, why: Refusal) {
        let f = self.scenario.faults;
        let possible = match why {
            Refusal::Full => f.tiny,
            Refusal::Silent => f.short_hold,
            // Closed locally before it was established; or it was, and the peer no longer knows it.
            Refusal::Protocol(_) => f.closes || f.restarts,
            Refusal::WrongKey | Refusal::NotAdmitted | Refusal::Mtu { .. } => false,
        };
        self.gone(n, peer, possible, &why.to_string());
    }

    fn gone(&mut self, n: usize, peer: PeerId, possible: bool, why: &str) {
        if self.nodes[n].peers.remove(&peer).is_none() {
            self.complain(format!("node {n}: {peer:?} ended, but was not connected"));
        }
        if !possible {
            self.complain(format!("node {n}: {peer:?} ended for no reason: {why}"));
        }
        if self.ledger.open(n, self.nodes[n].life).any(|e| e.peer == peer) {
            self.complain(format!("node {n}: {peer:?} ended before its requests"));
        }
    }

    fn asked(&self, node: usize, request: RequestId) -> Requester {
        Requester { node, life: self.nodes[node].life, request }
    }

    fn owner(&self, key: PublicKey) -> Option<usize> {
        (0..self.nodes.len()).find(|n| self.nodes[*n].endpoint.public_key() == key)
    }

    // Actions of programs, and faults.

    fn act(&mut self) {
        let f = self.scenario.faults;
        let n = self.rng.below(self.nodes.len() as u64) as usize;
        if self.nodes[n].down_until > self.now {
            return;
        }
        match self.rng.below(20) {
            0 | 1 if f.moves && n != SERVER => self.relocate(n),
            2 if f.restarts => self.restart(n),
            3 if f.closes => self.close(n),
            4 => self.ask_for_bounds(n),
            5..=9 if f.commands => self.command(n),
            _ => self.submit(n),
        }
    }

    /// QUIC's client may not migrate before the handshake is confirmed (RFC 9000, section 9).
    fn relocate(&mut self, n: usize) {
        let confirmed = self.nodes[SERVER].peers.values().any(|k| k.node == n && k.up);
        let connecting = self.nodes[n].peers.values().any(|k| !k.up);
        if confirmed && !connecting {
            self.net.relocate(n);
            let knows = self.rng.chance(0.5);
            self.tell(|| format!("node {n} moves; knows: {knows}"));
            if knows {
                self.nodes[n].endpoint.rebind(self.now);
                self.drain(n, self.now);
            }
        }
    }

    fn restart(&mut self, n: usize) {
        let life = self.nodes[n].life + 1;
        self.tell(|| format!("node {n} restarts"));
        match endpoint(&self.scenario.nodes[n], n, life, self.seed, self.epoch, self.now) {
            Ok(endpoint) => {
                let down_until = self.now + Duration::from_millis(self.rng.below(3_000));
                self.nodes[n] = Node { endpoint, life, peers: BTreeMap::new(), down_until };
                self.ledger.forget(n);
            }
            Err(why) => self.complain(why),
        }
    }

    fn close(&mut self, n: usize) {
        if let Some(peer) = self.some_peer(n) {
            self.tell(|| format!("node {n} closes {peer:?}"));
            self.nodes[n].endpoint.close(self.now, peer);
            self.drain(n, self.now);
        }
    }

    fn ask_for_bounds(&mut self, n: usize) {
        let bound = |rng: &mut Rng| if rng.chance(0.5) { Rate::from_bits(1 + rng.below(2_000_000)) } else { None };
        let (low, high) = (bound(&mut self.rng), bound(&mut self.rng));
        if let Some(peer) = self.some_peer(n) {
            if self.nodes[n].endpoint.bounds(self.now, peer, low, high).is_err() {
                self.complain(format!("node {n} does not know {peer:?}"));
            }
            self.drain(n, self.now);
        }
    }

    fn some_peer(&mut self, n: usize) -> Option<PeerId> {
        let all: Vec<PeerId> = self.nodes[n].peers.keys().copied().collect();
        all.get(self.rng.below(all.len().max(1) as u64) as usize).copied()
    }

    /// A peer to send to. A client without one connects.
    fn peer_to_use(&mut self, n: usize) -> Option<PeerId> {
        if n == SERVER || !self.nodes[n].peers.is_empty() {
            return self.some_peer(n);
        }
        let (addr, key) = (self.net.address(SERVER), self.nodes[SERVER].endpoint.public_key());
        match self.nodes[n].endpoint.connect(self.now, addr, key) {
            Ok(peer) => {
                self.nodes[n].peers.insert(peer, KnownPeer { node: SERVER, up: false });
                Some(peer)
            }
            // A closed connection takes space until its draining period ends.
            Err(_) => None,
        }
    }

    fn submit(&mut self, n: usize) {
        let Some(peer) = self.peer_to_use(n) else { return };
        let Some(to) = self.nodes[n].peers.get(&peer).map(|k| k.node) else { return };
        let (object, options) = (self.object(), self.options());
        let deadline = options.deadline.map(|d| self.now + d);
        match self.nodes[n].endpoint.send(self.now, peer, object.clone(), options) {
            Ok(request) => {
                let asked = self.asked(n, request);
                let size = object.len();
                self.tell(|| format!("node {n}: {request:?} of {size} bytes to {peer:?}, {options:?}"));
                self.ledger.submitted(Entry {
                    asked,
                    peer,
                    to,
                    object,
                    deadline,
                    had_deadline: deadline.is_some(),
                    cancelled: false,
                    end: None,
                    arrived: None,
                    forgotten: false,
                });
            }
            Err(_) => self.complain(format!("node {n} does not know {peer:?}")),
        }
        self.drain(n, self.now);
    }

    /// An object that begins with its name; its bytes differ from those of others.
    fn object(&mut self) -> Bytes {
        let most = match self.rng.below(4) {
            0 => 64,
            1 => 1_500,
            2 => 9_000,
            _ => self.scenario.largest,
        };
        let mut object = vec![0; NAME + self.rng.below(most + 1) as usize];
        self.rng.fill(&mut object);
        object[..NAME].copy_from_slice(&self.ledger.next_name().to_be_bytes());
        object.into()
    }

    fn options(&mut self) -> Options {
        let rng = &mut self.rng;
        Options {
            priority: Priority::new(rng.below(16) as u8).unwrap_or_default(),
            deadline: rng.chance(self.scenario.deadlines).then(|| Duration::from_millis(rng.below(10_000))),
            queue: QueueId(rng.below(3) as u32),
            on_shortage: if rng.chance(0.3) { OnShortage::Suspend } else { OnShortage::Drop },
        }
    }

    fn command(&mut self, n: usize) {
        let open: Vec<Requester> = self.ledger.open(n, self.nodes[n].life).map(|e| e.asked).collect();
        let Some(asked) = open.get(self.rng.below(open.len().max(1) as u64) as usize).copied() else { return };
        let rng = &mut self.rng;
        let command = match rng.below(8) {
            0 => Command::Cancel,
            1 | 2 => Command::Suspend,
            3 => Command::Restart,
            4 => Command::Prioritise(Priority::new(rng.below(16) as u8).unwrap_or_default()),
            5 => Command::Deadline(Some(Duration::from_millis(rng.below(20_000)))),
            6 => Command::Deadline(None),
            _ => Command::Inspect,
        };
        self.control(asked, command);
    }

    fn control(&mut self, asked: Requester, command: Command) {
        self.tell(|| format!("{asked:?}: {command:?}"));
        let (now, n) = (self.now, asked.node);
        if let Some(entry) = self.ledger.entry(asked) {
            match command {
                Command::Cancel => entry.cancelled = true,
                Command::Deadline(deadline) => {
                    entry.deadline = deadline.map(|d| now + d);
                    entry.had_deadline |= deadline.is_some();
                }
                _ => {}
            }
        }
        match self.nodes[n].endpoint.control(now, asked.request, command) {
            Ok(p) if p.acknowledged > p.size || p.written > p.size => {
                self.complain(format!("{asked:?} got too far: {p:?}"));
            }
            Ok(_) => {}
            Err(_) => self.complain(format!("{asked:?} has not ended, and is not known")),
        }
        self.drain(n, now);
    }

    /// Ends all faults; programs resume suspended requests.
    fn heal(&mut self) {
        self.tell(|| "all faults end".into());
        if let Err(why) = self.net.heal() {
            self.complain(why.to_string());
        }
        let waiting: Vec<Requester> = self.ledger.waiting().map(|e| e.asked).collect();
        for asked in waiting {
            // Resuming an earlier one may have ended another.
            if self.ledger.entry(asked).is_some_and(|e| e.end.is_none())
                && self.nodes[asked.node].down_until <= self.now
            {
                self.control(asked, Command::Restart);
            }
        }
    }
}

fn endpoint(config: &Config, n: usize, life: u32, seed: u64, epoch: Instant, now: Time) -> Result<Endpoint, String> {
    let identity = Identity::from_secret([n as u8 + 1; 32]).map_err(|e| e.to_string())?;
    let seed = Rng::stream(seed, &format!("atp endpoint {n}, life {life}")).next_u64();
    // The server listens at its old address, though it may have moved since.
    let listens = Some(([10, 0, 0, n as u8 + 1], 4000).into());
    Endpoint::new(Config { listens, ..config.clone() }, identity, epoch, now, seed).map_err(|e| e.to_string())
}
