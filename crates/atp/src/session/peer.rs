//! One connection: QUIC's part of it, its estimator, and the objects on their way out and in.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use noq_proto::{Connection, ConnectionHandle, FrameStats, PathId, Transmit};
use remora_base::Time;
use rustls::pki_types::CertificateDer;

use super::config::Config;
use super::detour::Detour;
use super::event::{PeerId, Status};
use super::feedback::{Collector, Ledger};
use super::frame::{Message, STAMP_LEN};
use super::handshake::Handshake;
use super::idle::Idle;
use super::inbox::Inbox;
use super::keys::PublicKey;
use super::outbox::Outbox;
use super::traffic::{Sizes, Traffic};
use super::valve::Valve;
use crate::estimate::{Estimator, Gate, Knowledge, Probe, Way};
use crate::{Priority, RequestId};

/// Room left in a packet of objects for an acknowledgement that rides along.
const ACK_ROOM: usize = 24;
/// A DATAGRAM frame's type and length (RFC 9221, section 4), for up to 63 bytes.
const FRAME_HEAD: usize = 2;
/// What noq takes off a datagram's largest size for its frame header.
const NOQ_DATAGRAM_HEAD: usize = 9;

/// QUIC wants `Instant`s; this is where ours and theirs meet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch(pub(super) Instant);

impl Epoch {
    pub(super) fn instant(self, t: Time) -> Instant {
        let wanted = Duration::from_nanos(t.as_nanos());
        // Past what the system can express (centuries), time stands still.
        self.0.checked_add(wanted).unwrap_or(self.0)
    }

    pub(super) fn time(self, i: Instant) -> Time {
        Time::ZERO + i.saturating_duration_since(self.0)
    }
}

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// The handshake is under way.
    Connecting,
    /// Both ends know each other.
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
    pub(super) key: Option<PublicKey>,
    pub(super) phase: Phase,
    /// Whether objects may leave before the handshake is done (0-RTT).
    pub(super) early: bool,
    pub(super) outbox: Outbox,
    pub(super) inbox: Inbox,
    pub(super) estimator: Estimator,
    pub(super) collector: Collector,
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

/// A packet's worth of objects' bytes that QUIC was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Written {
    stamp: u16,
    bytes: u64,
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
            key: None,
            phase: Phase::Connecting,
            outbox: Outbox::default(),
            inbox: start.inbox,
            estimator: start.estimator,
            collector: Collector::default(),
            ledger: Ledger::default(),
            probes: VecDeque::new(),
            blocked: false,
            staged: None,
            silent: false,
            demand: false,
            detour: Detour::default(),
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
    fn below(&self) -> u64 {
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

    /// Every second datagram is answered at once, as QUIC does it (RFC 9000, section 13.2.2).
    pub(super) fn hurry(&mut self, now: Time) {
        if self.unanswered >= 2 {
            self.inbox.hurry(now);
        }
    }

    /// Tells the estimator what QUIC saw happen, and QUIC how much may be in flight.
    pub(super) fn absorb(&mut self, now: Time, epoch: Epoch) {
        let sizes = Sizes { datagram: self.conn.current_mtu().into(), below: self.below() };
        if let Some(sent) = self.traffic.absorb(now, epoch, sizes, &mut self.estimator) {
            self.idle.answered(sent);
        }
    }

    /// The receiver's report: samples for the estimator, and the objects' bytes in the packets
    /// now known to have arrived.
    pub(super) fn reported(&mut self, now: Time, report: Vec<super::frame::Seen>) -> Vec<(RequestId, u64)> {
        let mut arrivals = Vec::with_capacity(report.len());
        let mut shares = Vec::new();
        let largest = self.largest();
        for (arrival, share) in report.into_iter().filter_map(|seen| self.ledger.arrived(seen, largest)) {
            arrivals.push(arrival);
            shares.extend(share);
        }
        self.estimator.arrivals(now, &arrivals);
        shares
    }

    /// Whether objects' bytes may be written to it at all.
    pub(super) fn may_write(&self) -> bool {
        (self.phase == Phase::Up || (self.phase == Phase::Connecting && self.early))
            && !self.blocked
            && self.staged.is_none()
    }

    /// Whether the next packet of objects may leave now.
    pub(super) fn is_ready(&self, now: Time) -> bool {
        self.may_write() && self.estimator.gate(now) == Gate::Open
    }

    /// Bytes of `request` that fill the next packet; 0 if there is no telling yet.
    pub(super) fn room(&mut self, request: RequestId) -> usize {
        let frames = self.conn.datagrams().max_size().map_or(0, |max| max + NOQ_DATAGRAM_HEAD);
        let ack = if self.heard { ACK_ROOM } else { 0 };
        frames.saturating_sub(FRAME_HEAD + STAMP_LEN + self.outbox.frame_head(request) + ack)
    }

    /// Stamps the packet about to leave.
    pub(super) fn stamp(&mut self, now: Time, share: (RequestId, u64)) -> Written {
        let stamp = self.ledger.stamp(now, Some(share), self.largest());
        self.say(&Message::Stamp(stamp), 0);
        Written { stamp, bytes: share.1 }
    }

    /// Sends `probe`: stamps whose arrival is reported at once.
    pub(super) fn probe(&mut self, now: Time, probe: Probe) {
        let (count, size) = match probe {
            Probe::Small => (1, 0),
            Probe::Pair => (2, self.conn.datagrams().max_size().unwrap_or(0)),
        };
        self.traffic.let_out(count);
        self.probes.clear();
        for _ in 0..count {
            let number = self.ledger.stamp(now, None, self.largest());
            self.probes.push_back(number);
            self.say(&Message::Probe(number), size);
        }
    }

    /// Reports what arrived, if that is due and the last report is not still waiting.
    fn report(&mut self, now: Time) {
        let Some(due) = self.collector.due().filter(|due| *due <= now) else { return };
        if self.conn.datagrams().send_buffer_space() < super::quic::DATAGRAMS / 2 {
            return self.collector.postpone(due.max(now));
        }
        if let Some(seen) = self.collector.report(now) {
            self.say(&Message::Report(seen), 0);
            self.inbox.answer(&mut self.conn);
        }
    }

    fn say(&mut self, message: &Message, size: usize) {
        // Fails before the peer's limits are known, and the sample is lost: no more than that.
        let _ = self.conn.datagrams().send(message.encode(size), true);
    }

    /// The next packet that QUIC itself has: handshake, acknowledgements, what was lost, reports.
    /// Retransmissions are paced as objects are; `None` while they have to wait.
    pub(super) fn flush(&mut self, now: Time, epoch: Epoch, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.report(now);
        if self.inbox.due().is_some_and(|due| due <= now) {
            self.inbox.answer(&mut self.conn);
        }
        // Before that the peer's limits are not known, and a probe would be lost.
        while self.phase == Phase::Up
            && let Some(probe) = self.estimator.poll_probe(now)
        {
            self.probe(now, probe);
        }
        // A window that grew, or was opened for a probe.
        self.absorb(now, epoch);
        if self.handshake.is_confirmed() && self.traffic.owes() && matches!(self.estimator.gate(now), Gate::At(_)) {
            // Acknowledgements do not wait: the peer's estimate, and its window, rest on them. With
            // no window for anything else QUIC sends only them; `take` opens it again.
            self.traffic.shut();
            return self.take(now, epoch, buf);
        }
        let transmit = self.take(now, epoch, buf);
        match (&transmit, self.staged) {
            (Some(_), Some(number)) => {
                self.ledger.left(number, now);
                self.staged = None;
            }
            (Some(_), None) => self.probes.drain(..self.probes.len().min(1)).for_each(|n| self.ledger.left(n, now)),
            // It had nothing, unless the window is full.
            (None, _) if self.estimator.gate(now) != Gate::Shut => self.traffic.settled(),
            _ => {}
        }
        transmit
    }

    /// Whether QUIC waits with bytes that an object of this priority should overtake: they may be
    /// of a less urgent one. QUIC sends the most urgent first of what it has.
    pub(super) fn is_overtaken_by(&self, priority: Priority) -> bool {
        self.outbox.lowest_started().is_some_and(|lowest| lowest < priority)
    }

    /// Whether bytes wait in QUIC, while a packet may leave.
    pub(super) fn owes(&self, now: Time) -> bool {
        self.traffic.owes() && self.is_ready(now)
    }

    /// The packet for which objects' bytes have just been written, if QUIC lets it out.
    pub(super) fn take_written(
        &mut self,
        now: Time,
        epoch: Epoch,
        packet: Written,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.traffic.owe(packet.bytes);
        let transmit = self.take(now, epoch, buf);
        self.touch(now);
        self.estimator.moved(now, Way::Out);
        self.heard = false;
        if transmit.is_some() {
            self.ledger.left(packet.stamp, now);
        }
        self.staged = transmit.is_none().then_some(packet.stamp);
        transmit
    }

    /// After a packet of objects: whether it was the last there is for now. A receiver answers every
    /// second packet at once and holds back the answer to a single one for 25 ms (RFC 9000, section
    /// 13.2.1), which would be the longest part of a small object's round trip. So a PING follows,
    /// and whichever of the two is the second one is answered at once.
    pub(super) fn ends_a_train(&mut self) -> bool {
        let ends = self.phase == Phase::Up && self.outbox.is_written();
        if ends {
            self.conn.ping();
        }
        ends
    }

    pub(super) fn take(&mut self, now: Time, epoch: Epoch, buf: &mut Vec<u8>) -> Option<Transmit> {
        loop {
            buf.clear();
            let dark = self.is_dark().then(|| self.conn.stats().frame_tx);
            let transmit = self.conn.poll_transmit(epoch.instant(now), NonZeroUsize::MIN, buf);
            self.absorb(now, epoch);
            if let Some(t) = &transmit {
                self.sent = now;
                self.unanswered = 0;
                self.traffic.left();
                self.ledger.sent(t.size as u64 + self.below());
            }
            // What QUIC has for a decoy is a challenge or two, and would reach nobody. And in a
            // blackout it sends objects' bytes again: they would stand in the device's queue, in
            // front of all that is urgent when the link is back.
            let again = |before: FrameStats| {
                let after = self.conn.stats().frame_tx;
                let is_path =
                    after.path_challenge > before.path_challenge || after.path_response > before.path_response;
                after.stream > before.stream && !is_path
            };
            match transmit {
                Some(t) if self.detour.is_decoy(t.destination) || dark.is_some_and(again) => continue,
                other => return other,
            }
        }
    }

    /// When it next needs attention.
    pub(super) fn next_deadline(&self, now: Time, epoch: Epoch, config: &Config) -> Option<Time> {
        let quic = self.conn.poll_timeout().map(|i| epoch.time(i));
        if self.phase == Phase::Over {
            return quic;
        }
        let wants = self.traffic.owes() || (self.may_write() && !self.outbox.is_empty());
        let gate = match self.estimator.gate(now) {
            Gate::At(t) if wants => Some(t),
            _ => None,
        };
        let lost = Some(self.heard_at + config.hold);
        let own = [self.next_sign(config), self.farewell_at(config), self.handshake.next_knock(), lost];
        [quic, self.estimator.poll_timeout(), self.collector.due(), self.inbox.due(), gate]
            .into_iter()
            .chain(own)
            .flatten()
            .min()
    }

    /// When it is to show where it is. Not QUIC's own keep-alive: its timer would stand before
    /// the one that a [knock](Handshake::knock) brings forward.
    fn next_sign(&self, config: &Config) -> Option<Time> {
        let shows = self.phase == Phase::Up && self.conn.side().is_client();
        config.keep_alive.filter(|_| shows).map(|interval| self.sent + interval)
    }

    /// When it is to be asked whether it is there, for it has had no objects for long.
    fn farewell_at(&self, config: &Config) -> Option<Time> {
        self.idle.ask_at(config.idle).filter(|_| self.is_idle())
    }

    /// Whether it has been silent for longer than it is held.
    pub(super) fn is_lost(&self, now: Time, hold: Duration) -> bool {
        self.heard_at + hold <= now
    }

    /// Acts on the timers that are due.
    pub(super) fn handle_timeout(&mut self, now: Time, epoch: Epoch, config: &Config) {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if due(self.conn.poll_timeout().map(|at| epoch.time(at))) {
            self.conn.handle_timeout(epoch.instant(now));
        } else if due(self.handshake.next_knock()) {
            // QUIC's timer, the probe timeout, is brought forward.
            if let Some(early) = self.conn.poll_timeout() {
                self.conn.handle_timeout(early);
            }
            self.handshake.knock(now);
        }
        if due(self.estimator.poll_timeout()) {
            self.estimator.handle_timeout(now);
        }
        if self.phase == Phase::Over {
            return;
        }
        if due(self.farewell_at(config)) {
            self.idle.ask(now);
            self.conn.ping();
        }
        if due(self.next_sign(config)) {
            self.conn.ping();
            self.sent = now; // or will have been, when QUIC has its turn
        }
    }

    /// Whether it does not answer, though it did once.
    fn is_dark(&self) -> bool {
        self.handshake.is_confirmed() && matches!(self.estimator.forecast().state, Knowledge::Blackout { .. })
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

    /// Where QUIC takes it to be.
    pub(super) fn path(&self) -> Option<SocketAddr> {
        self.conn.network_path(PathId::ZERO).ok().map(|path| path.remote())
    }

    /// How it is doing.
    pub(super) fn status(&mut self) -> Status {
        let stats = self.conn.stats();
        Status {
            addr: self.addr,
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
