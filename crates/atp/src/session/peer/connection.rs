//! One connection: its QUIC state, estimator, objects and timers.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use noq_proto::{Connection, ConnectionEvent, ConnectionHandle, PathId};
use remora_base::{Time, host_of};
use rustls::pki_types::CertificateDer;

use super::feedback::{ArrivalCollector, ObjectBytes, SentPackets};
use super::frame::PacketArrival;
use super::inbox::Inbox;
use super::liveness::{HandshakeTimer, IdleTimer};
use super::outbox::Outbox;
use crate::estimate::{ACK_DELAY_MAX, Estimator, Gate, Probe};
use crate::session::config::Config;
use crate::session::crypto::PublicKey;
use crate::session::event::{PeerId, Status};
use crate::session::path::{AmplificationLimit, PathRevalidation, validated_frames};
use crate::session::quic::{DatagramSizes, Epoch, QuicCc, SendWindow};

/// Consecutive datagrams that are acknowledged at once (RFC 9000, section 13.2.2).
const ANSWERED_AT_ONCE: u32 = 2;

/// Phase of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PeerPhase {
    /// The handshake is not confirmed.
    Connecting,
    /// Each end has accepted the other.
    Up,
    /// Closed; kept until late packets have expired.
    Over,
}

/// State of a connection.
pub(crate) struct Peer {
    pub(crate) id: PeerId,
    pub(crate) handle: ConnectionHandle,
    pub(crate) conn: Connection,
    pub(crate) addr: SocketAddr,
    /// Address of the handshake: until its end QUIC drops packets from elsewhere.
    pub(super) came_from: SocketAddr,
    pub(crate) key: Option<PublicKey>,
    pub(crate) phase: PeerPhase,
    /// Whether objects may be sent before the connection is up: in 0-RTT packets, or before the handshake is
    /// confirmed.
    pub(crate) early: bool,
    pub(crate) outbox: Outbox,
    pub(crate) inbox: Inbox,
    pub(crate) estimator: Estimator,
    pub(crate) collector: ArrivalCollector,
    /// The next PING is ATP's, not QUIC's.
    pub(super) ping_pending: bool,
    pub(crate) sent_packets: SentPackets,
    /// Stamps of probes that wait in QUIC.
    pub(super) probes: VecDeque<u16>,
    /// Flow control blocks all objects.
    pub(crate) blocked: bool,
    /// Stamp of a packet that was written but that QUIC has not sent yet.
    pub(crate) pending_stamp: Option<u16>,
    /// In a blackout, by the estimator.
    pub(crate) silent: bool,
    /// The demand that the estimator knows.
    pub(crate) demand: bool,
    /// Validation of the address after a migration.
    pub(crate) revalidation: PathRevalidation,
    pub(super) amplification: AmplificationLimit,
    pub(crate) handshake: HandshakeTimer,
    pub(super) idle: IdleTimer,
    /// Departure of the last packet.
    pub(super) last_sent: Time,
    /// Arrival of the last datagram.
    pub(super) received_at: Time,
    /// The timer registered at the endpoint.
    pub(crate) deadline: Option<Time>,
    /// In the endpoint's send queue.
    pub(crate) queued: bool,
    pub(super) send_window: SendWindow,
    /// Datagrams received since the last one was sent.
    pub(super) unanswered: u32,
    /// A datagram was received since the last packet of objects was sent.
    pub(super) received_since_send: bool,
    /// The packet that closes the connection was sent since the last datagram was received.
    pub(super) close_sent: bool,
}

/// Initial state of a connection.
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
            close_sent: false,
        }
    }

    /// Bytes of the IP and UDP headers.
    pub(crate) fn header_bytes(&self) -> u64 {
        if self.addr.ip().to_canonical().is_ipv4() { 28 } else { 48 }
    }

    /// Bytes of the largest packet.
    pub(super) fn largest(&self) -> u64 {
        u64::from(self.conn.current_mtu()) + self.header_bytes()
    }

    /// Records a received datagram of `bytes`.
    pub(crate) fn received(&mut self, now: Time, bytes: usize) {
        self.received_at = now;
        self.collector.received(bytes as u64 + self.header_bytes());
        self.received_since_send = true;
        self.close_sent = false;
        // Flow control may have opened. QUIC reports that only for streams that were blocked, and such a stream may
        // have ended.
        self.blocked = false;
        self.handshake.received();
        // It may need an answer.
        self.send_window.allow_packets(1);
        self.unanswered = self.unanswered.saturating_add(1);
        self.expedite(now);
    }

    /// Whether to accept a datagram from `from`. A server's answers follow the source; before the end of the
    /// handshake QUIC filters by itself.
    pub(crate) fn admits(&self, now: Time, from: SocketAddr) -> bool {
        !self.may_move() || self.amplification.admits(now, from)
    }

    /// Passes a datagram to QUIC.
    pub(crate) fn handle_datagram(&mut self, now: Time, from: SocketAddr, bytes: usize, event: ConnectionEvent) {
        let is_news = self.amplification.is_unknown(from) || !self.amplification.is_latest(from);
        let before = (is_news && self.may_move()).then(|| self.conn.stats().frame_rx);
        self.revalidation.received_from(from);
        let path = self.path();
        self.conn.handle_event(event);
        self.on_path_change(now, path);
        // Only an authenticated packet has frames; any other proves nothing about its source.
        if before.is_none_or(|before| before != self.conn.stats().frame_rx) {
            self.amplification.received(now, from, bytes as u64);
        }
    }

    /// Handles a change of QUIC's path from `before`. Only a packet to the address shows that QUIC has validated
    /// it, so a probe is sent.
    fn on_path_change(&mut self, now: Time, before: Option<SocketAddr>) {
        if self.revalidation.is_pending() {
            let answers = self.conn.stats().frame_rx.path_response;
            if self.revalidation.path_changed(now, before, self.path(), answers) && self.phase == PeerPhase::Up {
                self.probe(now, Probe::Small);
            }
        }
    }

    /// Starts to validate the new address.
    pub(crate) fn start_revalidation(&mut self, now: Time) {
        let stats = self.conn.stats();
        self.revalidation.address_changed(
            now,
            self.addr,
            validated_frames(&stats.frame_tx),
            stats.frame_rx.path_response,
        );
    }

    /// Whether QUIC, given the time, abandons the unvalidated address by itself, so that no packet need be
    /// diverted.
    pub(crate) fn abandons_path(&mut self, now: Instant) -> bool {
        self.conn.handle_timeout(now);
        self.revalidation.is_diverted(self.path())
    }

    /// Whether to divert a packet of `bytes` from `from` (see [`PathRevalidation`]).
    pub(crate) fn is_diverted(&self, now: Time, from: SocketAddr, bytes: usize) -> bool {
        let knows_limits = self.phase != PeerPhase::Over && self.revalidation.is_pending();
        knows_limits && self.revalidation.is_due(now, from, bytes, self.path())
    }

    /// Whether its latest packet came from `addr`.
    pub(crate) fn is_latest_address(&self, addr: SocketAddr) -> bool {
        self.amplification.is_latest(addr)
    }

    /// Whether QUIC follows the peer to other addresses.
    fn may_move(&self) -> bool {
        self.conn.side().is_server() && self.handshake.is_confirmed()
    }

    /// Checks whether QUIC has validated the latest address.
    pub(crate) fn check_validation(&mut self) {
        // The packet that closes a connection may acknowledge, and goes to any address.
        if self.phase != PeerPhase::Over
            && self.revalidation.is_pending()
            && let Some(addr) = self.revalidation.confirm(validated_frames(&self.conn.stats().frame_tx))
        {
            self.amplification.validated(addr);
        }
    }

    /// Whether a datagram of `bytes` may be sent to `to`.
    pub(super) fn may_send_to(&mut self, now: Time, to: SocketAddr, bytes: usize) -> bool {
        if !self.may_move() || self.amplification.is_validated(to) {
            return true;
        }
        self.check_validation();
        // If the path is a decoy, the true address is the unvalidated one.
        let is_path = self.path().map(|path| self.revalidation.true_address(path)) == Some(to);
        self.amplification.allows(now, to, bytes as u64, is_path)
    }

    /// Records the stamp of the datagram just received, to be reported now or with the next.
    pub(crate) fn stamped(&mut self, now: Time, number: u16, at_once: bool) {
        let takes = self.collector.stamped(now, number, at_once);
        self.estimator.reverse_packet_time(takes);
    }

    /// Answers the datagram just received, and the object that it may complete, at once.
    pub(crate) fn expedite_answer(&mut self, now: Time) {
        self.unanswered = self.unanswered.max(ANSWERED_AT_ONCE);
        self.expedite(now);
    }

    /// Answers every second datagram at once, like QUIC.
    pub(crate) fn expedite(&mut self, now: Time) {
        if self.unanswered >= ANSWERED_AT_ONCE {
            self.inbox.expedite(now);
        }
    }

    /// Exchanges packet events and the window between QUIC and the estimator.
    pub(crate) fn absorb(&mut self, now: Time, epoch: Epoch) {
        let sizes = DatagramSizes { datagram: self.conn.current_mtu().into(), headers: self.header_bytes() };
        if let Some(sent) = self.send_window.absorb(now, epoch, sizes, &mut self.estimator) {
            self.idle.acknowledged(now, sent);
        }
    }

    /// Handles a report: gives samples to the estimator, returns the objects' bytes in the packets that arrived.
    pub(crate) fn reported(&mut self, now: Time, report: Vec<PacketArrival>) -> Vec<ObjectBytes> {
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

    /// Records that an object made progress.
    pub(crate) fn touch(&mut self, now: Time) {
        self.idle.touch(now);
    }

    /// Whether it was idle for the timeout and has answered the probe.
    pub(crate) fn is_idle_expired(&self) -> bool {
        self.is_idle() && self.idle.is_expired()
    }

    /// Whether the handshake of an incoming connection has timed out.
    pub(crate) fn is_overdue(&self, now: Time) -> bool {
        self.phase == PeerPhase::Connecting && self.conn.side().is_server() && self.handshake.is_overdue(now)
    }

    /// Whether its link is in use, so that its estimator measures it.
    pub(crate) fn is_in_use(&self) -> bool {
        !self.outbox.is_empty() || self.estimator.in_flight() > 0
    }

    /// Whether the peer's transport parameters are known.
    pub(super) fn knows_limits(&self) -> bool {
        self.phase == PeerPhase::Up || self.phase == PeerPhase::Connecting && self.early && !self.conn.is_handshaking()
    }

    /// Whether it has no objects in either direction.
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == PeerPhase::Up && self.outbox.is_empty() && self.inbox.is_empty()
    }

    /// The key that the peer has authenticated with.
    pub(crate) fn shown_key(&self) -> Option<PublicKey> {
        let shown = self.conn.crypto_session().peer_identity()?;
        let certificates = shown.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        PublicKey::from_spki(certificates.first()?)
    }

    /// The peer's host.
    pub(crate) fn host(&self) -> IpAddr {
        host_of(self.came_from)
    }

    /// The address that QUIC sends to.
    pub(crate) fn path(&self) -> Option<SocketAddr> {
        self.conn.network_path(PathId::ZERO).ok().map(|path| path.remote())
    }

    /// Status for reports.
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

/// A QUIC timer due this soon after a datagram may be its acknowledgement: the maximum delay and 5 ms for timers.
const ACK_DELAY: Duration = ACK_DELAY_MAX.saturating_add(Duration::from_millis(5));

impl Peer {
    /// The next timer of the connection.
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

    /// When a QUIC timer is due.
    fn quic_due(&self, now: Time, epoch: Epoch) -> Option<Time> {
        let due = self.quic_timer(epoch)?;
        let is_held = self.phase != PeerPhase::Over
            && self.revalidation.is_pending()
            && self.revalidation.delays_timer(due.max(now), self.path());
        (!is_held).then_some(due)
    }

    /// The QUIC timer, delayed on slow links. QUIC's probe timeout follows the measured round-trip times, but on a
    /// slow link the next packet may take several times as long, and the probe would delay the very answer. The
    /// estimator knows the transmission time and probes itself. QUIC does not say which timer is due, but
    /// acknowledgements are due soon after a datagram.
    fn quic_timer(&self, epoch: Epoch) -> Option<Time> {
        let due = epoch.time(self.conn.poll_timeout()?);
        let acknowledges = due <= self.received_at + ACK_DELAY;
        if self.phase != PeerPhase::Up || !self.handshake.is_confirmed() || acknowledges {
            return Some(due);
        }
        Some(self.estimator.answer_due().map_or(due, |until| due.max(until)))
    }

    /// When to send a keep-alive. QUIC's own keep-alive timer would hide the probe timeout that
    /// [`retry`](HandshakeTimer::retry) brings forward.
    fn next_keep_alive(&self, config: &Config) -> Option<Time> {
        let shows = self.phase == PeerPhase::Up && self.conn.side().is_client();
        config.keep_alive.filter(|_| shows).map(|interval| self.last_sent + interval)
    }

    /// When to probe an idle peer before closing.
    fn idle_probe_at(&self, config: &Config) -> Option<Time> {
        self.idle.probe_at(config.idle).filter(|_| self.is_idle())
    }

    /// Arrival of the last datagram.
    pub(crate) fn received_at(&self) -> Time {
        self.received_at
    }

    /// Whether it was silent for `hold`.
    pub(crate) fn is_silent_for(&self, now: Time, hold: Duration) -> bool {
        self.received_at + hold <= now
    }

    /// Runs the timers that are due.
    pub(crate) fn handle_timeout(&mut self, now: Time, epoch: Epoch, config: &Config) {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if due(self.quic_due(now, epoch)) {
            self.conn.handle_timeout(epoch.instant(now));
        } else if due(self.handshake.next_retry()) {
            // Brings QUIC's probe timeout forward.
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
