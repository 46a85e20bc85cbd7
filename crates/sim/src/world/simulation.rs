//! The world: a virtual clock, the nodes, the network between them, and faults.
//!
//! Events happen one at a time. After each, the world drains the node concerned, then advances to
//! the next timer. Nothing here or below reads a clock or draws from anything but streams of the
//! seed, so a seed determines a run.

use std::collections::BTreeSet;
use std::time::Duration;

use remora_base::{Peer, Rng, Time};
use remora_link::HandOffPhase;

use super::client_node::{ClientNode, User};
use super::server_node::ServerNode;
use crate::events::EventQueue;
use crate::events::{NodeId, Trace};
use crate::net::{Arrival, Medium, Network};

/// Steps without progress of the clock after which a run counts as stuck.
const STEPS_MAX: u32 = 100_000;
/// Maximum delay before a client reconnects.
const RECONNECT_MAX: Duration = Duration::from_secs(2);
/// Maximum delay until a server detects a broken stream.
const NOTICE_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The server crashes and restarts.
    Crash { down: Duration },
    /// A client is cut off from the server; its stream breaks.
    Partition { client: usize, length: Duration },
    /// A client's stream breaks.
    Cut {
        client: usize,
        /// Whether it reconnects from the same port.
        keep_port: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum ScheduledEvent {
    Fault(Fault),
    Start,
    Join(usize),
    Connect {
        client: usize,
        keep_port: bool,
    },
    /// The server detects a broken stream.
    Notice(Peer),
    /// The mobiles leave a cell, for this long.
    Leave(Duration),
    /// The mobiles enter the next cell.
    Enter,
}

/// The clock makes no progress although events happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no progress: {STEPS_MAX} steps at {0}")]
pub struct Stuck(pub Time);

/// A server, its clients, and the network between them.
#[derive(Debug)]
pub struct World<U> {
    now: Time,
    pub server: ServerNode,
    pub clients: Vec<ClientNode<U>>,
    pub net: Network,
    pub trace: Trace,
    plan: EventQueue<ScheduledEvent>,
    /// When each client, and last the server, has a timer.
    wake: Vec<Option<Time>>,
    rng: Rng,
    steps_here: u32,
    /// Broken streams that the server has not detected.
    unnoticed: BTreeSet<Peer>,
    /// Faults no longer begin.
    healed: bool,
}

impl<U: User> World<U> {
    /// A world with a server and without clients.
    pub fn new(seed: u64, server: ServerNode, trace: Trace) -> World<U> {
        World {
            now: Time::ZERO,
            server,
            clients: Vec::new(),
            net: Network::new(seed),
            trace,
            plan: EventQueue::new(),
            wake: vec![None],
            rng: Rng::stream(seed, "world"),
            steps_here: 0,
            unnoticed: BTreeSet::new(),
            healed: false,
        }
    }

    pub fn now(&self) -> Time {
        self.now
    }

    /// Adds a client; its user begins at once.
    pub fn add_client(&mut self, node: ClientNode<U>, medium: Medium) {
        let client = self.clients.len();
        self.net.add_link(medium);
        if node.is_stream() {
            self.plan.push(self.now, ScheduledEvent::Connect { client, keep_port: true });
        }
        self.clients.push(node);
        self.wake.insert(client, Some(self.now));
    }

    /// Lets `f` change the user of client `n`, and drives it.
    pub fn tell<R>(&mut self, n: usize, f: impl FnOnce(&mut U) -> R) -> Option<R> {
        let result = f(self.clients.get_mut(n)?.user_mut());
        self.wake[n] = Some(self.now);
        Some(result)
    }

    pub fn plan(&mut self, at: Time, fault: Fault) {
        self.plan.push(at, ScheduledEvent::Fault(fault));
    }

    /// Schedules the announcement of a hand-off for all mobiles: at `at`, that the link is down
    /// until `end`; then, that it is up.
    pub fn schedule_hand_off(&mut self, at: Time, end: Time) {
        self.plan.push(at, ScheduledEvent::Leave(end.since(at)));
        self.plan.push(end, ScheduledEvent::Enter);
    }

    /// Ends all faults and cancels scheduled ones: all requests must now complete.
    pub fn heal(&mut self) {
        self.healed = true;
        self.net.heal();
        self.server.fs().clear_fault();
        self.server.disk_mut().heal();
    }

    /// Runs until `done` or `deadline`; returns whether it was `done`.
    pub fn run(&mut self, deadline: Time, mut done: impl FnMut(&World<U>) -> bool) -> Result<bool, Stuck> {
        loop {
            if done(self) {
                return Ok(true);
            }
            if !self.step(deadline)? {
                self.now = self.now.max(deadline);
                return Ok(false);
            }
        }
    }

    /// Handles the next event. `false` if there is none by `deadline`.
    pub fn step(&mut self, deadline: Time) -> Result<bool, Stuck> {
        let Some(next) = self.next_at().filter(|t| *t <= deadline) else { return Ok(false) };
        if next > self.now {
            self.now = next;
            self.steps_here = 0;
        }
        self.steps_here += 1;
        if self.steps_here > STEPS_MAX {
            return Err(Stuck(self.now));
        }
        let now = self.now;
        self.net.handle_timeout(now);
        if let Some(arrival) = self.net.poll_delivery(now) {
            self.deliver(now, arrival);
        } else if let Some((_, planned)) = self.plan.pop_due(now) {
            self.carry_out(now, planned);
        } else if let Some(node) = self.wake.iter().position(|w| w.is_some_and(|t| t <= now)) {
            self.wake_up(now, node);
        }
        Ok(true)
    }

    fn next_at(&self) -> Option<Time> {
        let wake = self.wake.iter().flatten().copied();
        wake.chain(self.net.poll_timeout()).chain(self.plan.next_at()).min()
    }

    fn deliver(&mut self, now: Time, arrival: Arrival) {
        let Arrival { to, client, from, bytes } = arrival;
        self.trace.message(now, to, client, &bytes);
        match to {
            NodeId::Server => {
                self.server.handle_input(now, from, bytes);
                self.drain_server(now);
            }
            NodeId::Client(n) => {
                self.clients[n].handle_input(now, from, bytes);
                self.drain_client(now, n);
            }
        }
    }

    fn wake_up(&mut self, now: Time, node: usize) {
        if let Some(client) = self.clients.get_mut(node) {
            client.handle_timeout(now);
            self.drain_client(now, node);
        } else {
            self.server.handle_timeout(now);
            self.drain_server(now);
        }
    }

    fn drain_client(&mut self, now: Time, n: usize) {
        while let Some(transmit) = self.clients[n].poll_transmit(now) {
            self.net.send(now, NodeId::Client(n), transmit);
        }
        self.wake[n] = self.clients[n].poll_timeout();
    }

    fn drain_server(&mut self, now: Time) {
        while let Some(transmit) = self.server.poll_transmit(now) {
            self.net.send(now, NodeId::Server, transmit);
        }
        let last = self.clients.len();
        self.wake[last] = self.server.poll_timeout();
    }

    fn carry_out(&mut self, now: Time, planned: ScheduledEvent) {
        match planned {
            ScheduledEvent::Fault(_) if self.healed => {}
            ScheduledEvent::Fault(Fault::Crash { down }) => self.crash(now, down),
            ScheduledEvent::Fault(Fault::Partition { client, length }) => {
                self.note(now, NodeId::Client(client), b"partition", "cut off from the server");
                self.net.set_partitioned(client, true);
                self.plan.push(now + length, ScheduledEvent::Join(client));
                self.cut(now, client, true);
            }
            ScheduledEvent::Fault(Fault::Cut { client, keep_port }) => self.cut(now, client, keep_port),
            ScheduledEvent::Start => {
                self.note(now, NodeId::Server, b"start", "starts");
                self.server.start(now);
                self.drain_server(now);
            }
            ScheduledEvent::Join(client) => {
                self.note(now, NodeId::Client(client), b"join", "reaches the server again");
                self.net.set_partitioned(client, false);
            }
            ScheduledEvent::Connect { client, keep_port } => self.connect(now, client, keep_port),
            ScheduledEvent::Notice(peer) => self.notice(now, peer),
            ScheduledEvent::Leave(length) => self.leave_cell(now, length),
            ScheduledEvent::Enter => self.enter_cell(now),
        }
    }

    fn leave_cell(&mut self, now: Time, length: Duration) {
        self.net.announce(now, HandOffPhase::Begin { expected: length });
        let kept = self.net.radio().is_some_and(|radio| radio.air().keeps());
        for client in 0..self.clients.len() {
            self.note(now, NodeId::Client(client), b"leave", "leaves the cell");
            self.clients[client].hold(now, now + length, kept);
            self.drain_client(now, client);
        }
    }

    fn enter_cell(&mut self, now: Time) {
        self.net.announce(now, HandOffPhase::End);
        for client in 0..self.clients.len() {
            self.note(now, NodeId::Client(client), b"enter", "enters the next cell");
            self.clients[client].resume(now);
            self.drain_client(now, client);
        }
    }

    fn crash(&mut self, now: Time, down: Duration) {
        if !self.server.is_up() {
            return;
        }
        self.note(now, NodeId::Server, b"crash", "crashes");
        self.server.crash(now);
        self.drain_server(now);
        self.plan.push(now + down, ScheduledEvent::Start);
        for client in 0..self.clients.len() {
            self.clients[client].user_mut().on_server_crash(now);
            self.cut(now, client, true);
        }
    }

    /// Breaks the stream of `client`. The server detects it later, often after the client
    /// reconnected.
    ///
    /// If the client reconnects from another port, the server detects it at once: the cache matches
    /// a retransmission from another port only once the old connection is known to be broken, and
    /// would otherwise rightly be found to execute it again.
    fn cut(&mut self, now: Time, client: usize, keep_port: bool) {
        let Some(peer) = self.net.stream(client).and_then(|s| s.cut(client)) else { return };
        self.note(now, NodeId::Client(client), b"cut", "the stream breaks");
        self.unnoticed.insert(peer);
        self.plan.push(now + NOTICE_MAX.mul_f64(self.rng.unit()), ScheduledEvent::Notice(peer));
        let back = RECONNECT_MAX.mul_f64(self.rng.unit());
        self.plan.push(now + back, ScheduledEvent::Connect { client, keep_port });
        self.clients[client].disconnected(now);
        self.drain_client(now, client);
    }

    /// The server detects a broken stream.
    fn notice(&mut self, now: Time, peer: Peer) {
        if self.unnoticed.remove(&peer) {
            self.server.disconnected(now, peer);
            self.drain_server(now);
        }
    }

    fn connect(&mut self, now: Time, client: usize, keep_port: bool) {
        if !self.server.is_up() || self.net.is_partitioned(client) {
            self.plan.push(now + RECONNECT_MAX / 2, ScheduledEvent::Connect { client, keep_port });
            return;
        }
        let Some(server) = self.net.stream(client).map(|s| s.connect(client, keep_port)) else { return };
        self.note(now, NodeId::Client(client), b"connect", "the stream stands");
        self.clients[client].connected(now, server);
        self.drain_client(now, client);
    }

    fn note(&mut self, now: Time, node: NodeId, key: &[u8], words: &str) {
        self.trace.event(now, node, key, || words.to_string());
    }
}
