//! One connection: QUIC's part of it, its estimator, and the objects on their way out and in.

mod sending;
mod timers;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use noq_proto::{Connection, ConnectionEvent, ConnectionHandle, PathId};
use remora_base::{Time, host_of};
use rustls::pki_types::CertificateDer;

use super::detour::Detour;
use super::epoch::Epoch;
use super::event::{PeerId, Status};
use super::feedback::{Collector, Ledger};
use super::frame::Seen;
use super::handshake::Handshake;
use super::idle::Idle;
use super::inbox::Inbox;
use super::keys::PublicKey;
use super::outbox::Outbox;
use super::traffic::{Sizes, Traffic};
use super::valve::Valve;
use super::whereabouts::{Whereabouts, proofs};
use crate::RequestId;
use crate::estimate::{Estimator, Probe};

pub(super) use sending::segment;

/// So many datagrams that came one after the other are answered at once (RFC 9000, section 13.2.2).
const ANSWERED_AT_ONCE: u32 = 2;

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// The handshake is under way, or not confirmed.
    Connecting,
    /// Each end has taken the other.
    Up,
    /// Over; kept until late packets have died out.
    Over,
}

/// One connection.
pub(super) struct Peer {
    pub(super) id: PeerId,
    pub(super) handle: ConnectionHandle,
    pub(super) conn: Connection,
    pub(super) addr: SocketAddr,
    /// Where the handshake takes place: QUIC drops what comes from elsewhere before it is done.
    came_from: SocketAddr,
    pub(super) key: Option<PublicKey>,
    pub(super) phase: Phase,
    /// Whether objects may leave before it is up: in 0-RTT packets, or while the handshake is not confirmed.
    pub(super) early: bool,
    pub(super) outbox: Outbox,
    pub(super) inbox: Inbox,
    pub(super) estimator: Estimator,
    pub(super) collector: Collector,
    /// A PING that is to leave is not QUIC's own.
    pinged: bool,
    pub(super) ledger: Ledger,
    /// Stamps of probes that wait in QUIC for the next packets.
    probes: VecDeque<u16>,
    /// QUIC takes no more objects' bytes until it says so.
    pub(super) blocked: bool,
    /// A packet's worth was written that QUIC has not let out yet: the stamp in it.
    pub(super) staged: Option<u16>,
    /// Whether the estimator has declared it silent.
    pub(super) silent: bool,
    /// Whether the estimator was told that objects wait.
    pub(super) demand: bool,
    /// Whether it is known to be where it seems to be.
    pub(super) detour: Detour,
    whereabouts: Whereabouts,
    pub(super) handshake: Handshake,
    idle: Idle,
    /// When the last packet left.
    sent: Time,
    /// When the last datagram came in.
    heard_at: Time,
    /// When it next needs attention, as entered in the endpoint's timers.
    pub(super) deadline: Option<Time>,
    /// Whether it stands in the endpoint's line of those that may have something to send.
    pub(super) queued: bool,
    traffic: Traffic,
    /// Datagrams that came in since the last one left.
    unanswered: u32,
    /// Something came in since the last packet of objects left.
    heard: bool,
}

/// What a peer starts with.
pub(super) struct Start {
    pub(super) id: PeerId,
    pub(super) handle: ConnectionHandle,
    pub(super) conn: Connection,
    pub(super) addr: SocketAddr,
    pub(super) valve: Valve,
    pub(super) estimator: Estimator,
    pub(super) inbox: Inbox,
}

impl Peer {
    pub(super) fn new(start: Start, now: Time) -> Peer {
        let side = start.conn.side();
        Peer {
            early: side.is_client() && start.conn.has_0rtt(),
            id: start.id,
            handle: start.handle,
            conn: start.conn,
            addr: start.addr,
            came_from: start.addr,
            key: None,
            phase: Phase::Connecting,
            outbox: Outbox::default(),
            inbox: start.inbox,
            estimator: start.estimator,
            collector: Collector::default(),
            pinged: false,
            ledger: Ledger::default(),
            probes: VecDeque::new(),
            blocked: false,
            staged: None,
            silent: false,
            demand: false,
            detour: Detour::default(),
            whereabouts: Whereabouts::new(start.addr),
            handshake: Handshake::new(now, side.is_server()),
            idle: Idle::new(now),
            sent: now,
            heard_at: now,
            deadline: None,
            queued: false,
            traffic: Traffic::new(start.valve),
            unanswered: 0,
            heard: false,
        }
    }

    /// Bytes below UDP's payload in each packet: IP's and UDP's headers.
    pub(super) fn below(&self) -> u64 {
        if self.addr.ip().to_canonical().is_ipv4() { 28 } else { 48 }
    }

    /// Bytes in the largest packet.
    fn largest(&self) -> u64 {
        u64::from(self.conn.current_mtu()) + self.below()
    }

    /// A datagram of `bytes` came in.
    pub(super) fn received(&mut self, now: Time, bytes: usize) {
        self.heard_at = now;
        self.collector.received(bytes as u64 + self.below());
        self.heard = true;
        // Credit may have come for what waits. QUIC tells so only of streams that asked for it, and
        // the one that did may be gone by then.
        self.blocked = false;
        self.handshake.heard();
        // It may have to be answered.
        self.traffic.let_out(1);
        self.unanswered = self.unanswered.saturating_add(1);
        self.hurry(now);
    }

    /// Whether what comes from `from` is looked at. A server's answers go after what comes, and before
    /// the handshake is done QUIC sees to that itself.
    pub(super) fn admits(&self, now: Time, from: SocketAddr) -> bool {
        !self.may_move() || self.whereabouts.admits(now, from)
    }

    /// Gives QUIC a datagram.
    pub(super) fn handle_datagram(&mut self, now: Time, from: SocketAddr, bytes: usize, event: ConnectionEvent) {
        let is_news = self.whereabouts.is_strange(from) || !self.whereabouts.is_latest(from);
        let before = (is_news && self.may_move()).then(|| self.conn.stats().frame_rx);
        self.detour.came(from);
        let path = self.path();
        self.conn.handle_event(event);
        self.follow(now, path);
        // What nobody but the peer could have made has frames in it; anything else says nothing about it.
        if before.is_none_or(|before| before != self.conn.stats().frame_rx) {
            self.whereabouts.came(now, from, bytes as u64);
        }
    }

    /// Sees where its packet has led from `before`. An answer that proves the address can be seen only by
    /// what leaves for it: so that something does, it is probed.
    fn follow(&mut self, now: Time, before: Option<SocketAddr>) {
        if self.detour.is_unproven() {
            let answers = self.conn.stats().frame_rx.path_response;
            if self.detour.led(now, before, self.path(), answers) && self.phase == Phase::Up {
                self.probe(now, Probe::Small);
            }
        }
    }

    /// Starts to have doubts about the address that its packets come from now.
    pub(super) fn doubt(&mut self, now: Time) {
        let stats = self.conn.stats();
        self.detour.moved(now, self.addr, proofs(&stats.frame_tx), stats.frame_rx.path_response);
    }

    /// Whether QUIC, if let, gives up the address in doubt by itself: then the packet that is there need
    /// not go round.
    pub(super) fn gives_up(&mut self, now: Instant) -> bool {
        self.conn.handle_timeout(now);
        self.detour.is_away(self.path())
    }

    /// Whether a packet of its of so many bytes that comes from `from` is to take a [`Detour`].
    pub(super) fn goes_round(&self, now: Time, from: SocketAddr, bytes: usize) -> bool {
        let is_open = self.phase != Phase::Over && self.detour.is_unproven();
        is_open && self.detour.is_due(now, from, bytes, self.path())
    }

    /// Whether its latest packet has come from `addr`.
    pub(super) fn comes_from(&self, addr: SocketAddr) -> bool {
        self.whereabouts.is_latest(addr)
    }

    /// Whether QUIC follows it to other addresses.
    fn may_move(&self) -> bool {
        self.conn.side().is_server() && self.handshake.is_confirmed()
    }

    /// Sees whether the address it came to last is proven by now.
    pub(super) fn see_proof(&mut self) {
        // The packet that ends a connection may have an acknowledgement, and goes to any address.
        if self.phase != Phase::Over
            && self.detour.is_unproven()
            && let Some(addr) = self.detour.sent(proofs(&self.conn.stats().frame_tx))
        {
            self.whereabouts.proved(addr);
        }
    }

    /// Whether a datagram of so many bytes may leave for `to`.
    fn may_reach(&mut self, now: Time, to: SocketAddr, bytes: usize) -> bool {
        if !self.may_move() || self.whereabouts.is_proven(to) {
            return true;
        }
        self.see_proof();
        // With a decoy for a path the address in doubt is where it ought to lead.
        let is_path = self.path().map(|path| self.detour.behind(path)) == Some(to);
        self.whereabouts.lets(now, to, bytes as u64, is_path)
    }

    /// What was just received had this stamp, and is to be reported, `at_once` or with the next one.
    pub(super) fn stamped(&mut self, now: Time, number: u16, at_once: bool) {
        let takes = self.collector.stamped(now, number, at_once);
        self.estimator.comes(takes);
    }

    /// What was just received is answered at once, and so is the object that it may be the end of.
    pub(super) fn answer_at_once(&mut self, now: Time) {
        self.unanswered = self.unanswered.max(ANSWERED_AT_ONCE);
        self.hurry(now);
    }

    /// Every second datagram is answered at once, as QUIC does it.
    pub(super) fn hurry(&mut self, now: Time) {
        if self.unanswered >= ANSWERED_AT_ONCE {
            self.inbox.hurry(now);
        }
    }

    /// Tells the estimator what QUIC saw happen, and QUIC how much may be in flight.
    pub(super) fn absorb(&mut self, now: Time, epoch: Epoch) {
        let sizes = Sizes { datagram: self.conn.current_mtu().into(), below: self.below() };
        if let Some(sent) = self.traffic.absorb(now, epoch, sizes, &mut self.estimator) {
            self.idle.answered(now, sent);
        }
    }

    /// The receiver's report: samples for the estimator, and the objects' bytes in the packets
    /// now known to have arrived.
    pub(super) fn reported(&mut self, now: Time, report: Vec<Seen>) -> Vec<(RequestId, u64)> {
        let mut arrivals = Vec::with_capacity(report.len());
        let mut shares = Vec::new();
        let largest = self.largest();
        for (arrival, of) in report.into_iter().filter_map(|seen| self.ledger.arrived(seen, largest)) {
            arrivals.push(arrival);
            shares.extend(of.into_iter().flatten());
        }
        self.estimator.arrivals(now, &arrivals);
        shares
    }

    /// An object moves.
    pub(super) fn touch(&mut self, now: Time) {
        self.idle.touch(now);
    }

    /// Whether it has been idle for long and is known to be there.
    pub(super) fn is_to_go(&self) -> bool {
        self.is_idle() && self.idle.is_over()
    }

    /// Whether its handshake with us has had its time and is not done.
    pub(super) fn is_overdue(&self, now: Time) -> bool {
        self.phase == Phase::Connecting && self.conn.side().is_server() && self.handshake.is_overdue(now)
    }

    /// Whether the link to it is in use, so that its estimator sees what the link carries.
    pub(super) fn is_used(&self) -> bool {
        !self.outbox.is_empty() || self.estimator.in_flight() > 0
    }

    /// Whether the peer's limits are known.
    fn is_open(&self) -> bool {
        self.phase == Phase::Up || self.phase == Phase::Connecting && self.early && !self.conn.is_handshaking()
    }

    /// Whether it has nothing to do for anybody.
    pub(super) fn is_idle(&self) -> bool {
        self.phase == Phase::Up && self.outbox.is_empty() && self.inbox.is_empty()
    }

    /// The key it has shown and proved to own.
    pub(super) fn shown_key(&self) -> Option<PublicKey> {
        let shown = self.conn.crypto_session().peer_identity()?;
        let certificates = shown.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        PublicKey::from_spki(certificates.first()?)
    }

    /// The host that it came from.
    pub(super) fn host(&self) -> IpAddr {
        host_of(self.came_from)
    }

    /// Where QUIC takes it to be.
    pub(super) fn path(&self) -> Option<SocketAddr> {
        self.conn.network_path(PathId::ZERO).ok().map(|path| path.remote())
    }

    /// How it is doing.
    pub(super) fn status(&mut self) -> Status {
        let stats = self.conn.stats();
        Status {
            addr: self.addr,
            came_from: self.handshake.is_confirmed().then_some(self.came_from),
            key: self.key,
            up: self.phase == Phase::Up,
            forecast: self.estimator.forecast(),
            round_trip: self.estimator.round_trip(),
            in_flight: self.estimator.in_flight(),
            requests: self.outbox.len(),
            sent: stats.udp_tx.bytes,
            received: stats.udp_rx.bytes,
        }
    }
}
