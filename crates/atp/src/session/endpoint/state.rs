//! The endpoint's state and the methods that the application calls. [`input`](super::input) takes received datagrams
//! and [`output`](super::output) makes those to send.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use noq_proto::{Connection, ConnectionHandle, VarInt};
use remora_base::{Rate, Rng, Time, Transmit};

use crate::estimate::{Demand, Estimator, Knowledge, Outage, combine};
use crate::scheduler::Scheduler;
use crate::session::config::{Bottleneck, Config};
use crate::session::crypto::{Identity, PublicKey, tls_name};
use crate::session::event::{Counters, Ending, Event, EventQueue, PeerId, Refusal, Status, Usage};
use crate::session::peer::{ByteBudget, Inbox, NewPeer, Peer, PeerPhase, cost};
use crate::session::quic::{Clock, Epoch, QuicCc, QuicConfig, SetupError};
use crate::{Command, Dest, Gone, Options, Outcome, Progress, RequestId, Upcall};

/// Bytes of an IPv4 and a UDP header.
const HEADERS: u64 = 28;
/// QUIC bytes in a full packet of objects: short header, tag, stamp and STREAM frame head.
const QUIC_OVERHEAD: u64 = 44;

/// Application error codes in CONNECTION_CLOSE: any other reason, and no free connection.
const CLOSED: VarInt = VarInt::from_u32(0);
pub(crate) const CLOSED_FULL: VarInt = VarInt::from_u32(1);

/// Reason why `connect` fails.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConnectError {
    /// The configured maximum of connections is reached.
    #[error("too many connections")]
    TooMany,
    /// The address cannot be a destination.
    #[error("{0} is no address one can send to")]
    Address(SocketAddr),
    /// An error of the QUIC library.
    #[error("{0}")]
    Other(String),
}

/// One end of ATP: exchanges objects with any number of peers over QUIC.
///
/// Use it as a [`Core`](remora_base::Core): mutate once, then drain.
pub struct Endpoint {
    pub(crate) config: Config,
    pub(crate) epoch: Epoch,
    pub(crate) clock: Clock,
    pub(crate) settings: QuicConfig,
    pub(crate) quic: noq_proto::Endpoint,
    pub(crate) peers: BTreeMap<PeerId, Peer>,
    pub(crate) handles: BTreeMap<usize, PeerId>,
    pub(crate) schedulers: BTreeMap<u32, Scheduler>,
    /// The scheduler of each request that has not ended.
    requests: BTreeMap<RequestId, u32>,
    /// Peers that may have packets to send, in turn.
    pub(crate) send_queue: VecDeque<PeerId>,
    pub(crate) timers: BTreeSet<(Time, PeerId)>,
    /// Answers to packets without a connection.
    pub(crate) replies: VecDeque<Transmit>,
    pub(crate) events: EventQueue,
    pub(crate) buffers: ByteBudget,
    pub(crate) counters: Counters,
    rng: Rng,
    pub(crate) next_peer: u32,
    next_request: u64,
    identity: Identity,
}

impl Endpoint {
    /// Creates an endpoint. `epoch` is the `Instant` of [`Time::ZERO`]. All randomness but TLS keys comes from
    /// `seed`, which should be random for each endpoint.
    pub fn new(
        config: Config,
        identity: Identity,
        epoch: Instant,
        now: Time,
        seed: u64,
    ) -> Result<Endpoint, SetupError> {
        if config.datagram < 1200 || config.datagram > 65_527 {
            return Err(SetupError::Datagram);
        }
        let clock = Clock::default();
        clock.set(now);
        let settings = QuicConfig::new(&config, &identity, &clock, seed)?;
        let config = completed(config);
        Ok(Endpoint {
            quic: noq_proto::Endpoint::new(settings.endpoint.clone(), settings.server.clone(), config.discover),
            epoch: Epoch(epoch),
            clock,
            settings,
            peers: BTreeMap::new(),
            handles: BTreeMap::new(),
            schedulers: BTreeMap::new(),
            requests: BTreeMap::new(),
            send_queue: VecDeque::new(),
            timers: BTreeSet::new(),
            replies: VecDeque::new(),
            events: EventQueue::default(),
            buffers: ByteBudget::new(config.buffer_total),
            counters: Counters::default(),
            rng: Rng::stream(seed, "atp-endpoint"),
            next_peer: 0,
            next_request: 0,
            identity,
            config,
        })
    }

    /// This endpoint's public key.
    pub fn public_key(&self) -> PublicKey {
        self.identity.public()
    }

    /// Connects to the owner of `key` at `addr`. Objects may be sent at once; they wait for the connection.
    pub fn connect(&mut self, now: Time, addr: SocketAddr, key: PublicKey) -> Result<PeerId, ConnectError> {
        self.clock.set(now);
        if self.peers.len() >= self.config.peers {
            return Err(ConnectError::TooMany);
        }
        let quic_cc = self.new_quic_cc();
        let client = self.settings.client(&self.config, &quic_cc, &mut self.rng);
        let made = self.quic.connect(self.epoch.instant(now), client, addr, &tls_name(&key));
        let (handle, conn) = made.map_err(|e| match e {
            noq_proto::ConnectError::InvalidRemoteAddress(addr) => ConnectError::Address(addr),
            other => ConnectError::Other(other.to_string()),
        })?;
        let id = self.add_peer(now, handle, conn, addr, quic_cc);
        self.settle(now, id);
        Ok(id)
    }

    /// Submits an object for `peer`. Exactly one [`Upcall::Final`] reports its end.
    pub fn send(&mut self, now: Time, peer: PeerId, object: Bytes, options: Options) -> Result<RequestId, Gone> {
        self.clock.set(now);
        let p = self.peers.get_mut(&peer).filter(|p| p.phase != PeerPhase::Over).ok_or(Gone)?;
        let number = scheduler_number(&self.config, peer);
        let scheduler = self.schedulers.get_mut(&number).ok_or(Gone)?;
        scheduler.number_from(self.next_request);
        let request = scheduler.submit(now, peer.dest(), object.len() as u64, options);
        // 64 bits: half a million years at a million requests per second.
        self.next_request = request.0.saturating_add(1);
        self.requests.insert(request, number);
        p.outbox.insert(request, options.priority, object);
        // The window may have room for this object.
        p.blocked = false;
        p.touch(now);
        self.settle(now, peer);
        Ok(request)
    }

    /// Runs a command on a request; returns its progress.
    pub fn control(&mut self, now: Time, request: RequestId, command: Command) -> Result<Progress, Gone> {
        self.clock.set(now);
        let number = self.requests.get(&request).ok_or(Gone)?;
        let scheduler = self.schedulers.get_mut(number).ok_or(Gone)?;
        let progress = scheduler.control(now, request, command)?;
        let peer = PeerId::from(progress.dest);
        if let Some(p) = self.peers.get_mut(&peer) {
            p.blocked = false;
            if let Command::Prioritise(priority) = command {
                p.outbox.prioritise(&mut p.conn, request, priority);
            }
        }
        self.settle(now, peer);
        Ok(progress)
    }

    /// Registers bandwidth bounds for `peer`: one event when the bandwidth leaves them (`callback` in ATP 02). With
    /// a shared bottleneck they are those of all peers.
    pub fn bounds(&mut self, now: Time, peer: PeerId, low: Option<Rate>, high: Option<Rate>) -> Result<(), Gone> {
        self.clock.set(now);
        self.peers.get(&peer).filter(|p| p.phase != PeerPhase::Over).ok_or(Gone)?;
        let scheduler = self.schedulers.get_mut(&scheduler_number(&self.config, peer)).ok_or(Gone)?;
        scheduler.bounds(now, low, high);
        self.settle(now, peer);
        Ok(())
    }

    /// Handles a change of the local address: sends each server a packet from the new one, and discards the
    /// estimates of the old path.
    pub fn rebind(&mut self, now: Time) {
        self.clock.set(now);
        let at = self.epoch.instant(now);
        let ids: Vec<PeerId> = self.peers.keys().copied().collect();
        for id in ids {
            if let Some(p) = self.peers.get_mut(&id).filter(|p| p.phase != PeerPhase::Over) {
                if p.conn.side().is_client() {
                    p.conn.handle_network_change(None, at);
                    p.estimator.path_changed(now);
                }
                self.settle(now, id);
            }
        }
    }

    /// Handles an EMSGSIZE of the system for a datagram of `bytes` to `addr`. If even the minimum size does not
    /// fit, connections in progress to that address are refused; larger ones are MTU probes.
    pub fn too_large(&mut self, now: Time, addr: SocketAddr, bytes: usize) {
        self.clock.set(now);
        if bytes > usize::from(self.config.datagram) {
            return;
        }
        let is_begun = |p: &&Peer| p.phase == PeerPhase::Connecting && p.conn.side().is_client() && p.addr == addr;
        let begun: Vec<(PeerId, u64)> =
            self.peers.values().filter(is_begun).map(|p| (p.id, p.header_bytes())).collect();
        for (id, below) in begun {
            self.refuse(now, id, Refusal::Mtu { mtu: u64::from(self.config.datagram) + below });
            self.drop_connection(id);
        }
    }

    /// Closes the connection to `peer`; its requests are lost. Complete received objects are confirmed first.
    pub fn close(&mut self, now: Time, peer: PeerId) {
        self.clock.set(now);
        self.flush_answers(now, peer);
        self.end(now, peer, Ending::Closed);
        self.settle(now, peer);
    }

    /// Status of a peer; `None` if unknown.
    pub fn status(&mut self, peer: PeerId) -> Option<Status> {
        self.peers.get_mut(&peer).map(Peer::status)
    }

    /// Like [`poll_event`](remora_base::Core::poll_event), for a caller without room for objects: objects, and the
    /// end of their connections ([`Event::Down`]), stay queued and keep their buffers.
    pub fn poll_event_but_objects(&mut self) -> Option<Event> {
        self.events.pop_except_objects()
    }

    /// The connected peers.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.peers.values().filter(|p| p.phase != PeerPhase::Over).map(|p| p.id)
    }

    /// Counters of rejected input.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Resources in use.
    pub fn usage(&self) -> Usage {
        Usage {
            peers: self.peers.len(),
            requests: self.peers.values().map(|p| p.outbox.len()).sum(),
            received_bytes: self.buffers.used(),
            events: self.events.len(),
        }
    }

    pub(crate) fn new_quic_cc(&self) -> QuicCc {
        let packet = u64::from(self.config.datagram);
        QuicCc::new(packet * (self.config.estimator.initial_packets + 1))
    }

    pub(crate) fn add_peer(
        &mut self,
        now: Time,
        handle: ConnectionHandle,
        conn: Connection,
        addr: SocketAddr,
        quic_cc: QuicCc,
    ) -> PeerId {
        let id = self.new_peer_id();
        let start = NewPeer {
            id,
            handle,
            conn,
            addr,
            quic_cc,
            estimator: Estimator::new(self.config.estimator, now),
            inbox: Inbox::new(self.config.object_max, self.config.buffer_peer),
        };
        let peer = Peer::new(start, now);
        let number = scheduler_number(&self.config, id);
        let scheduler = self.schedulers.entry(number).or_insert_with(|| Scheduler::new(self.config.scheduler));
        if !peer.early {
            scheduler.dest_down(now, id.dest(), Outage::new(now));
        }
        self.handles.insert(handle.0, id);
        self.peers.insert(id, peer);
        id
    }

    /// An id that no peer has. The numbers wrap after 2^32 connections.
    fn new_peer_id(&mut self) -> PeerId {
        loop {
            let id = PeerId(self.next_peer);
            self.next_peer = self.next_peer.wrapping_add(1);
            if !self.peers.contains_key(&id) {
                return id;
            }
        }
    }

    /// Closes a connection, reports it once, and ends its requests.
    pub(crate) fn end(&mut self, now: Time, id: PeerId, why: Ending) {
        let Some((was, asked)) = self.close_requests(now, id) else { return };
        if let Some(p) = self.peers.get_mut(&id).filter(|p| !p.conn.is_closed()) {
            let code = if why == Ending::Full { CLOSED_FULL } else { CLOSED };
            p.conn.close(self.epoch.instant(now), code, Bytes::new());
        }
        match (was, asked) {
            (PeerPhase::Connecting, true) => self.events.push_back(Event::Refused { peer: id, why: refusal(why) }),
            (PeerPhase::Connecting, false) => {} // nobody was told of it
            _ => self.events.push_back(Event::Down { peer: id, why }),
        }
    }

    /// Reports the refusal of an outgoing connection.
    pub(crate) fn refuse(&mut self, now: Time, id: PeerId, why: Refusal) {
        if self.close_requests(now, id).is_some() {
            self.events.push_back(Event::Refused { peer: id, why });
        }
    }

    /// Ends the requests and partial objects of a peer. Returns the previous phase, and whether the connection is
    /// outgoing; `None` if it was closed before.
    fn close_requests(&mut self, now: Time, id: PeerId) -> Option<(PeerPhase, bool)> {
        let p = self.peers.get_mut(&id).filter(|p| p.phase != PeerPhase::Over)?;
        let was = std::mem::replace(&mut p.phase, PeerPhase::Over);
        let asked = p.conn.side().is_client();
        p.inbox.clear(&mut self.buffers);
        let number = scheduler_number(&self.config, id);
        if let Some(scheduler) = self.schedulers.get_mut(&number) {
            scheduler.forget(now, id.dest());
        }
        // The forecast of this peer must not count any more, even if no other changes.
        self.combine_forecasts(now, number);
        self.drain_scheduler(now, number);
        Some((was, asked))
    }

    /// Frees the slot of a closed peer. Late packets are answered with stateless resets.
    pub(crate) fn remove(&mut self, id: PeerId) {
        let Some(p) = self.peers.remove(&id) else { return };
        self.handles.remove(&p.handle.0);
        if let Some(deadline) = p.deadline {
            self.timers.remove(&(deadline, id));
        }
        self.send_queue.retain(|other| *other != id);
        if self.config.bottleneck == Bottleneck::PerPeer {
            self.schedulers.remove(&scheduler_number(&self.config, id));
        }
    }

    /// Applies all consequences of a change to a peer: blackout, scheduler, send queue, timer.
    pub(crate) fn settle(&mut self, now: Time, id: PeerId) {
        self.update_blackout(now, id);
        self.drain_scheduler(now, scheduler_number(&self.config, id));
        self.enqueue(id);
        self.rearm(now, id);
    }

    pub(crate) fn enqueue(&mut self, id: PeerId) {
        if let Some(p) = self.peers.get_mut(&id)
            && !std::mem::replace(&mut p.queued, true)
        {
            self.send_queue.push_back(id);
        }
    }

    pub(crate) fn rearm(&mut self, now: Time, id: PeerId) {
        let Some(p) = self.peers.get_mut(&id) else { return };
        let deadline = p.next_deadline(now, self.epoch, &self.config);
        if p.deadline != deadline {
            if let Some(old) = std::mem::replace(&mut p.deadline, deadline) {
                self.timers.remove(&(old, id));
            }
            self.timers.extend(deadline.map(|new| (new, id)));
        }
    }

    /// Holds a peer's objects during a blackout that its estimator detected.
    fn update_blackout(&mut self, now: Time, id: PeerId) {
        let Some(p) = self.peers.get_mut(&id).filter(|p| p.phase == PeerPhase::Up) else { return };
        let Some(scheduler) = self.schedulers.get_mut(&scheduler_number(&self.config, id)) else { return };
        match p.estimator.forecast().state {
            Knowledge::Blackout { since } if !p.silent => {
                p.silent = true;
                scheduler.dest_down(now, id.dest(), Outage { since, past: p.estimator.past_outages() });
                self.events.push_back(Event::Silent { peer: id, since });
            }
            Knowledge::Blackout { .. } => {}
            _ if p.silent => {
                p.silent = false;
                scheduler.dest_up(now, id.dest());
                self.events.push_back(Event::Heard { peer: id });
            }
            _ => {}
        }
    }

    /// Passes the forecast to a scheduler and its decisions to the streams and the caller.
    pub(crate) fn drain_scheduler(&mut self, now: Time, number: u32) {
        self.update_forecast(now, number);
        let Some(scheduler) = self.schedulers.get_mut(&number) else { return };
        let mut ended: Vec<(RequestId, Dest)> = std::iter::from_fn(|| scheduler.poll_reset()).collect();
        while let Some(upcall) = scheduler.poll_upcall() {
            if let Upcall::Final(end) = &upcall {
                self.requests.remove(&end.request);
                ended.push((end.request, end.dest));
            }
            self.events.push_back(Event::Upcall(upcall));
        }
        for (request, dest) in ended {
            let id = PeerId::from(dest);
            // The receiver reserves room for the object until the reset arrives.
            if self.peers.get_mut(&id).is_some_and(|p| p.outbox.end(&mut p.conn, request)) {
                self.enqueue(id);
            }
        }
    }

    fn update_forecast(&mut self, now: Time, number: u32) {
        let Some(scheduler) = self.schedulers.get_mut(&number) else { return };
        let shared = self.config.bottleneck == Bottleneck::Shared;
        let (waiting, rejected) = (scheduler.waiting(), scheduler.take_rejected());
        let several = shared && self.peers.len() > 1;
        let mut changed = false;
        for p in members(&mut self.peers, shared, number) {
            // With several peers, the rate to an unused one does not matter.
            let waiting = waiting && (!several || !p.outbox.is_empty());
            if p.demand != waiting || rejected > 0 {
                p.demand = waiting;
                p.estimator.demand(now, Demand { waiting, rejected });
            }
            changed |= p.estimator.poll_forecast().is_some();
        }
        if changed {
            self.combine_forecasts(now, number);
        }
    }

    /// Sets a scheduler's forecast: the sum over the peers in use, or over all if none is.
    fn combine_forecasts(&mut self, now: Time, number: u32) {
        let Some(scheduler) = self.schedulers.get_mut(&number) else { return };
        let shared = self.config.bottleneck == Bottleneck::Shared;
        let all: Vec<&mut Peer> = members(&mut self.peers, shared, number).collect();
        let used = all.iter().any(|p| p.is_in_use());
        let counted = all.iter().filter(|p| !used || p.is_in_use());
        if let Some(forecast) = combine(counted.map(|p| p.estimator.forecast())) {
            scheduler.forecast(now, forecast);
        }
    }

    /// The peer confirmed the object, or refused it.
    pub(crate) fn finished(&mut self, now: Time, id: PeerId, request: RequestId, outcome: Outcome) {
        let Some(scheduler) = self.schedulers.get_mut(&scheduler_number(&self.config, id)) else { return };
        match outcome {
            Outcome::Delivered => scheduler.delivered(now, request),
            failed => scheduler.failed(now, request, failed),
        }
    }

    pub(crate) fn dest_up(&mut self, now: Time, id: PeerId) {
        if let Some(scheduler) = self.schedulers.get_mut(&scheduler_number(&self.config, id)) {
            scheduler.dest_up(now, Dest(id.0));
        }
    }
}

/// The connected peers of scheduler `number`: one, or all.
fn members(peers: &mut BTreeMap<PeerId, Peer>, shared: bool, number: u32) -> impl Iterator<Item = &mut Peer> {
    let range = if shared { PeerId(0)..=PeerId(u32::MAX) } else { PeerId(number)..=PeerId(number) };
    peers.range_mut(range).map(|(_, p)| p).filter(|p| p.phase != PeerPhase::Over)
}

/// The scheduler of a peer.
pub(crate) fn scheduler_number(config: &Config, peer: PeerId) -> u32 {
    match config.bottleneck {
        Bottleneck::Shared => 0,
        Bottleneck::PerPeer => peer.0,
    }
}

/// Fills in the settings that follow from others.
fn completed(mut config: Config) -> Config {
    let datagram = u64::from(config.datagram);
    config.estimator.mtu = datagram + HEADERS;
    config.scheduler.payload = datagram - QUIC_OVERHEAD;
    config.scheduler.overhead = HEADERS + QUIC_OVERHEAD;
    config.scheduler.size_max = config.scheduler.size_max.min(u32::MAX.into());
    config.buffer_peer = config.buffer_peer.max(cost(config.object_max.into()));
    config.buffer_total = config.buffer_total.max(config.buffer_peer);
    config.peers = config.peers.max(1);
    config
}

fn refusal(why: Ending) -> Refusal {
    match why {
        Ending::Silent => Refusal::Silent,
        Ending::Full => Refusal::Full,
        other => Refusal::Protocol(other.to_string()),
    }
}
