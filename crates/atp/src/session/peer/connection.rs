//! One connection: QUIC's part of it, its estimator, and the objects on their way out and in.
//!
//! When a peer needs attention, and what is done then.

use super::feedback::{ArrivalCollector, SentPackets};
use super::frame::PacketArrival;
use super::inbox::Inbox;
use super::liveness::HandshakeTimer;
use super::liveness::IdleTimer;
use super::outbox::Outbox;
use crate::RequestId;
use crate::estimate::{ACK_DELAY_MAX, Gate};
use crate::estimate::{Estimator, Probe};
use crate::session::config::Config;
use crate::session::crypto::PublicKey;
use crate::session::event::{PeerId, Status};
use crate::session::path::PathRevalidation;
use crate::session::path::{AmplificationLimit, validated_frames};
use crate::session::quic::Epoch;
use crate::session::quic::QuicCc;
use crate::session::quic::{DatagramSizes, SendWindow};
use noq_proto::{Connection, ConnectionEvent, ConnectionHandle, PathId};
use remora_base::Time;
use remora_base::host_of;
use rustls::pki_types::CertificateDer;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use std::time::Instant;

/// So many datagrams that came one after the other are answered at once (RFC 9000, section 13.2.2).
const ANSWERED_AT_ONCE: u32 = 2;

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PeerPhase {
    /// The handshake is under way, or not confirmed.
    Connecting,
    /// Each end has taken the other.
    Up,
    /// Over; kept until late packets have died out.
    Over,
}

/// One connection.
pub(crate) struct Peer {
    pub(crate) id: PeerId,
    pub(crate) handle: ConnectionHandle,
    pub(crate) conn: Connection,
    pub(crate) addr: SocketAddr,
    /// Where the handshake takes place: QUIC drops what comes from elsewhere before it is done.
    pub(super) came_from: SocketAddr,
    pub(crate) key: Option<PublicKey>,
    pub(crate) phase: PeerPhase,
    /// Whether objects may leave before it is up: in 0-RTT packets, or while the handshake is not confirmed.
    pub(crate) early: bool,
    pub(crate) outbox: Outbox,
    pub(crate) inbox: Inbox,
    pub(crate) estimator: Estimator,
    pub(crate) collector: ArrivalCollector,
    /// A PING that is to leave is not QUIC's own.
    pub(super) ping_pending: bool,
    pub(crate) sent_packets: SentPackets,
    /// Stamps of probes that wait in QUIC for the next packets.
    pub(super) probes: VecDeque<u16>,
    /// QUIC takes no more objects' bytes until it says so.
    pub(crate) blocked: bool,
    /// A packet's worth was written that QUIC has not let out yet: the stamp in it.
    pub(crate) pending_stamp: Option<u16>,
    /// Whether the estimator has declared it silent.
    pub(crate) silent: bool,
    /// Whether the estimator was told that objects wait.
    pub(crate) demand: bool,
    /// Whether it is known to be where it seems to be.
    pub(crate) revalidation: PathRevalidation,
    pub(super) amplification: AmplificationLimit,
    pub(crate) handshake: HandshakeTimer,
    pub(super) idle: IdleTimer,
    /// When the last packet left.
    pub(super) last_sent: Time,
    /// When the last datagram came in.
    pub(super) received_at: Time,
    /// When it next needs attention, as entered in the endpoint's timers.
    pub(crate) deadline: Option<Time>,
    /// Whether it stands in the endpoint's send_queue of those that may have something to send.
    pub(crate) queued: bool,
    pub(super) send_window: SendWindow,
    /// Datagrams that came in since the last one left.
    pub(super) unanswered: u32,
    /// Something came in since the last packet of objects left.
    pub(super) received_since_send: bool,
}

/// What a peer starts with.
pub(crate) struct NewPeer {
    pub(crate) id: PeerId,
    pub(crate) handle: ConnectionHandle,
    pub(crate) conn: Connection,
    pub(crate) addr: SocketAddr,
    pub(crate) quic_cc: QuicCc,
    pub(crate) estimator: Estimator,
    pub(crate) inbox: Inbox,
}

impl Peer {
    pub(crate) fn new(start: NewPeer, now: Time) -> Peer {
        let side = start.conn.side();
        Peer {
            early: side.is_client() && start.conn.has_0rtt(),
            id: start.id,
            handle: start.handle,
            conn: start.conn,
            addr: start.addr,
            came_from: start.addr,
            key: None,
            phase: PeerPhase::Connecting,
            outbox: Outbox::default(),
            inbox: start.inbox,
            estimator: start.estimator,
            collector: ArrivalCollector::default(),
            ping_pending: false,
            sent_packets: SentPackets::default(),
            probes: VecDeque::new(),
            blocked: false,
            pending_stamp: None,
            silent: false,
            demand: false,
            revalidation: PathRevalidation::default(),
            amplification: AmplificationLimit::new(start.addr),
            handshake: HandshakeTimer::new(now, side.is_server()),
            idle: IdleTimer::new(now),
            last_sent: now,
            received_at: now,
            deadline: None,
            queued: false,
            send_window: SendWindow::new(start.quic_cc),
            unanswered: 0,
            received_since_send: false,
        }
    }

    /// Bytes below UDP's payload in each packet: IP's and UDP's headers.
    pub(crate) fn header_bytes(&self) -> u64 {
        if self.addr.ip().to_canonical().is_ipv4() { 28 } else { 48 }
    }

    /// Bytes in the largest packet.
    pub(super) fn largest(&self) -> u64 {
        u64::from(self.conn.current_mtu()) + self.header_bytes()
    }

    /// A datagram of `bytes` came in.
    pub(crate) fn received(&mut self, now: Time, bytes: usize) {
        self.received_at = now;
        self.collector.received(bytes as u64 + self.header_bytes());
        self.received_since_send = true;
        // Credit may have come for what waits. QUIC tells so only of streams that asked for it, and
        // the one that did may be gone by then.
        self.blocked = false;
        self.handshake.received();
        // It may have to be answered.
        self.send_window.allow_packets(1);
        self.unanswered = self.unanswered.saturating_add(1);
        self.expedite(now);
    }

    /// Whether what comes from `from` is looked at. A server's answers go after what comes, and before
    /// the handshake is done QUIC sees to that itself.
    pub(crate) fn admits(&self, now: Time, from: SocketAddr) -> bool {
        !self.may_move() || self.amplification.admits(now, from)
    }

    /// Gives QUIC a datagram.
    pub(crate) fn handle_datagram(&mut self, now: Time, from: SocketAddr, bytes: usize, event: ConnectionEvent) {
        let is_news = self.amplification.is_unknown(from) || !self.amplification.is_latest(from);
        let before = (is_news && self.may_move()).then(|| self.conn.stats().frame_rx);
        self.revalidation.received_from(from);
        let path = self.path();
        self.conn.handle_event(event);
        self.on_path_change(now, path);
        // What nobody but the peer could have made has frames in it; anything else says nothing about it.
        if before.is_none_or(|before| before != self.conn.stats().frame_rx) {
            self.amplification.received(now, from, bytes as u64);
        }
    }

    /// Sees where its packet has led from `before`. An answer that proves the address can be seen only by
    /// what leaves for it: so that something does, it is probed.
    fn on_path_change(&mut self, now: Time, before: Option<SocketAddr>) {
        if self.revalidation.is_pending() {
            let answers = self.conn.stats().frame_rx.path_response;
            if self.revalidation.path_changed(now, before, self.path(), answers) && self.phase == PeerPhase::Up {
                self.probe(now, Probe::Small);
            }
        }
    }

    /// Starts to have doubts about the address that its packets come from now.
    pub(crate) fn start_revalidation(&mut self, now: Time) {
        let stats = self.conn.stats();
        self.revalidation.address_changed(
            now,
            self.addr,
            validated_frames(&stats.frame_tx),
            stats.frame_rx.path_response,
        );
    }

    /// Whether QUIC, if let, gives up the address in start_revalidation by itself: then the packet that is there need
    /// not go round.
    pub(crate) fn abandons_path(&mut self, now: Instant) -> bool {
        self.conn.handle_timeout(now);
        self.revalidation.is_diverted(self.path())
    }

    /// Whether a packet of its of so many bytes that comes from `from` is to take a [`PathRevalidation`].
    pub(crate) fn is_diverted(&self, now: Time, from: SocketAddr, bytes: usize) -> bool {
        let knows_limits = self.phase != PeerPhase::Over && self.revalidation.is_pending();
        knows_limits && self.revalidation.is_due(now, from, bytes, self.path())
    }

    /// Whether its latest packet has come from `addr`.
    pub(crate) fn is_latest_address(&self, addr: SocketAddr) -> bool {
        self.amplification.is_latest(addr)
    }

    /// Whether QUIC follows it to other addresses.
    fn may_move(&self) -> bool {
        self.conn.side().is_server() && self.handshake.is_confirmed()
    }

    /// Sees whether the address it came to last is proven by now.
    pub(crate) fn check_validation(&mut self) {
        // The packet that ends a connection may have an acknowledgement, and goes to any address.
        if self.phase != PeerPhase::Over
            && self.revalidation.is_pending()
            && let Some(addr) = self.revalidation.confirm(validated_frames(&self.conn.stats().frame_tx))
        {
            self.amplification.validated(addr);
        }
    }

    /// Whether a datagram of so many bytes may leave for `to`.
    pub(super) fn may_send_to(&mut self, now: Time, to: SocketAddr, bytes: usize) -> bool {
        if !self.may_move() || self.amplification.is_validated(to) {
            return true;
        }
        self.check_validation();
        // With a decoy for a path the address in start_revalidation is where it ought to lead.
        let is_path = self.path().map(|path| self.revalidation.true_address(path)) == Some(to);
        self.amplification.allows(now, to, bytes as u64, is_path)
    }

    /// What was just received had this stamp, and is to be reported, `at_once` or with the next one.
    pub(crate) fn stamped(&mut self, now: Time, number: u16, at_once: bool) {
        let takes = self.collector.stamped(now, number, at_once);
        self.estimator.reverse_packet_time(takes);
    }

    /// What was just received is answered at once, and so is the object that it may be the end of.
    pub(crate) fn expedite_answer(&mut self, now: Time) {
        self.unanswered = self.unanswered.max(ANSWERED_AT_ONCE);
        self.expedite(now);
    }

    /// Every second datagram is answered at once, as QUIC does it.
    pub(crate) fn expedite(&mut self, now: Time) {
        if self.unanswered >= ANSWERED_AT_ONCE {
            self.inbox.expedite(now);
        }
    }

    /// Tells the estimator what QUIC saw happen, and QUIC how much may be in flight.
    pub(crate) fn absorb(&mut self, now: Time, epoch: Epoch) {
        let sizes = DatagramSizes { datagram: self.conn.current_mtu().into(), headers: self.header_bytes() };
        if let Some(sent) = self.send_window.absorb(now, epoch, sizes, &mut self.estimator) {
            self.idle.acknowledged(now, sent);
        }
    }

    /// The receiver's report: samples for the estimator, and the objects' bytes in the packets
    /// now known to have arrived.
    pub(crate) fn reported(&mut self, now: Time, report: Vec<PacketArrival>) -> Vec<(RequestId, u64)> {
        let mut arrivals = Vec::with_capacity(report.len());
        let mut shares = Vec::new();
        let largest = self.largest();
        for (arrival, of) in report.into_iter().filter_map(|seen| self.sent_packets.arrived(seen, largest)) {
            arrivals.push(arrival);
            shares.extend(of.into_iter().flatten());
        }
        self.estimator.arrivals(now, &arrivals);
        shares
    }

    /// An object moves.
    pub(crate) fn touch(&mut self, now: Time) {
        self.idle.touch(now);
    }

    /// Whether it has been idle for long and is known to be there.
    pub(crate) fn is_idle_expired(&self) -> bool {
        self.is_idle() && self.idle.is_expired()
    }

    /// Whether its handshake with us has had its time and is not done.
    pub(crate) fn is_overdue(&self, now: Time) -> bool {
        self.phase == PeerPhase::Connecting && self.conn.side().is_server() && self.handshake.is_overdue(now)
    }

    /// Whether the link to it is in use, so that its estimator sees what the link carries.
    pub(crate) fn is_in_use(&self) -> bool {
        !self.outbox.is_empty() || self.estimator.in_flight() > 0
    }

    /// Whether the peer's limits are known.
    pub(super) fn knows_limits(&self) -> bool {
        self.phase == PeerPhase::Up || self.phase == PeerPhase::Connecting && self.early && !self.conn.is_handshaking()
    }

    /// Whether it has nothing to do for anybody.
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == PeerPhase::Up && self.outbox.is_empty() && self.inbox.is_empty()
    }

    /// The key it has shown and proved to own.
    pub(crate) fn shown_key(&self) -> Option<PublicKey> {
        let shown = self.conn.crypto_session().peer_identity()?;
        let certificates = shown.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        PublicKey::from_spki(certificates.first()?)
    }

    /// The host that it came from.
    pub(crate) fn host(&self) -> IpAddr {
        host_of(self.came_from)
    }

    /// Where QUIC takes it to be.
    pub(crate) fn path(&self) -> Option<SocketAddr> {
        self.conn.network_path(PathId::ZERO).ok().map(|path| path.remote())
    }

    /// How it is doing.
    pub(crate) fn status(&mut self) -> Status {
        let stats = self.conn.stats();
        Status {
            addr: self.addr,
            came_from: self.handshake.is_confirmed().then_some(self.came_from),
            key: self.key,
            up: self.phase == PeerPhase::Up,
            forecast: self.estimator.forecast(),
            round_trip: self.estimator.round_trip(),
            in_flight: self.estimator.in_flight(),
            requests: self.outbox.len(),
            sent: stats.udp_tx.bytes,
            received: stats.udp_rx.bytes,
        }
    }
}

/// A deadline of QUIC's so soon after something came may be that of its acknowledgement: the delay
/// allowed, and some more for its timers.
const ACK_DELAY: Duration = ACK_DELAY_MAX.saturating_add(Duration::from_millis(5));

impl Peer {
    /// When it next needs attention.
    pub(crate) fn next_deadline(&self, now: Time, epoch: Epoch, config: &Config) -> Option<Time> {
        let quic = self.quic_due(now, epoch);
        if self.phase == PeerPhase::Over {
            return quic;
        }
        let wants = self.send_window.has_pending() || (self.may_write() && !self.outbox.is_empty());
        let gate = match self.estimator.gate(now) {
            Gate::At(t) if wants => Some(t),
            _ => None,
        };
        let lost = Some(self.received_at + config.hold);
        let own = [self.next_keep_alive(config), self.idle_probe_at(config), self.handshake.next_retry(), lost];
        [quic, self.estimator.poll_timeout(), self.collector.due(), self.inbox.due(), gate]
            .into_iter()
            .chain(own)
            .flatten()
            .min()
    }

    /// When QUIC needs attention.
    fn quic_due(&self, now: Time, epoch: Epoch) -> Option<Time> {
        let due = self.quic_timer(epoch)?;
        let is_held = self.phase != PeerPhase::Over
            && self.revalidation.is_pending()
            && self.revalidation.delays_timer(due.max(now), self.path());
        (!is_held).then_some(due)
    }

    /// When one of QUIC's timers is to be seen to. Its probe timeout follows from the round trips it has
    /// seen, and on a slow link the next packet may take several times as long as the one before: what it
    /// then sends stands in the way of the answer that it misses. The estimator knows what a packet takes,
    /// and asks in time. QUIC has no way to say which of its timers is due; but an acknowledgement is never
    /// later than that after a packet came.
    fn quic_timer(&self, epoch: Epoch) -> Option<Time> {
        let due = epoch.time(self.conn.poll_timeout()?);
        let acknowledges = due <= self.received_at + ACK_DELAY;
        if self.phase != PeerPhase::Up || !self.handshake.is_confirmed() || acknowledges {
            return Some(due);
        }
        Some(self.estimator.answer_due().map_or(due, |until| due.max(until)))
    }

    /// When it is to show where it is. Not QUIC's own keep-alive: its timer would stand before
    /// the one that a [knock](HandshakeTimer::retry) brings forward.
    fn next_keep_alive(&self, config: &Config) -> Option<Time> {
        let shows = self.phase == PeerPhase::Up && self.conn.side().is_client();
        config.keep_alive.filter(|_| shows).map(|interval| self.last_sent + interval)
    }

    /// When it is to be asked whether it is there, for it has had no objects for long.
    fn idle_probe_at(&self, config: &Config) -> Option<Time> {
        self.idle.probe_at(config.idle).filter(|_| self.is_idle())
    }

    /// When it was last received_since_send.
    pub(crate) fn received_at(&self) -> Time {
        self.received_at
    }

    /// Whether it has been silent for longer than it is held.
    pub(crate) fn is_silent_for(&self, now: Time, hold: Duration) -> bool {
        self.received_at + hold <= now
    }

    /// Acts on the timers that are due.
    pub(crate) fn handle_timeout(&mut self, now: Time, epoch: Epoch, config: &Config) {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if due(self.quic_due(now, epoch)) {
            self.conn.handle_timeout(epoch.instant(now));
        } else if due(self.handshake.next_retry()) {
            // QUIC's timer, the probe timeout, is brought forward.
            if let Some(early) = self.conn.poll_timeout() {
                self.conn.handle_timeout(early);
            }
            self.handshake.retry(now);
        }
        if due(self.estimator.poll_timeout()) {
            self.estimator.handle_timeout(now);
        }
        if self.phase == PeerPhase::Over {
            return;
        }
        if due(self.idle_probe_at(config)) {
            self.idle.probe(now);
            self.ping();
        }
        if due(self.next_keep_alive(config)) {
            self.ping();
            self.last_sent = now; // or will have been, when QUIC has its turn
        }
    }
}
