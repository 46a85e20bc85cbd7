//! One connection: QUIC's part of it, its estimator, and the objects on their way out and in.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use noq_proto::{Connection, ConnectionHandle, PathId, Transmit};
use remora_base::Time;
use rustls::pki_types::CertificateDer;

use super::config::Config;
use super::detour::Detour;
use super::event::{PeerId, Status};
use super::feedback::{Collector, Ledger};
use super::frame::{Message, STAMP_LEN};
use super::inbox::Inbox;
use super::keys::PublicKey;
use super::outbox::Outbox;
use super::valve::{Note, Valve};
use crate::estimate::{Arrival, Estimator, Gate, Probe};
use crate::{Priority, RequestId};

/// Room left in a packet of objects for an acknowledgement that rides along.
const ACK_ROOM: usize = 24;
/// A DATAGRAM frame's type and length (RFC 9221, section 4), for up to 63 bytes.
const FRAME_HEAD: usize = 2;
/// How long a handshake that gets no answer waits with its next attempt.
const KNOCK: Duration = Duration::from_secs(2);
/// How long somebody may take to complete a handshake with us.
const HANDSHAKE_MAX: Duration = Duration::from_secs(30);
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
    /// When an object last moved.
    active: Time,
    /// When a peer without objects was asked whether it is there, before the connection is ended.
    farewell: Farewell,
    /// When the last packet left, or the last attempt to have one leave was made.
    sent: Time,
    /// Both ends are known to have the keys (RFC 9001, section 4.1.2): nothing of the handshake is
    /// to be sent again.
    confirmed: bool,
    /// When the handshake was last helped on.
    knocked: Time,
    /// When the connection was asked for.
    since: Time,
    /// When it next needs attention, as entered in the endpoint's timers.
    pub(super) deadline: Option<Time>,
    /// Whether it stands in the endpoint's line of those that may have something to send.
    pub(super) queued: bool,
    valve: Valve,
    notes: Vec<Note>,
    /// Bytes that wait in QUIC: lost ones to be sent again, and what of the objects' did not fit
    /// into its packet.
    owed: u64,
    /// Bytes in flight by what the valve told.
    in_flight: u64,
    /// Something came in since the last packet of objects left.
    heard: bool,
}

/// How far the end of an idle connection is. A peer that does not answer is not idle but out of
/// reach, and may have objects for us: it is held as all such are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Farewell {
    Not,
    /// Asked whether it is there.
    Asked(Time),
    /// It is, and has nothing for us.
    Due,
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
        Peer {
            early: start.conn.side().is_client() && start.conn.has_0rtt(),
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
            blocked: false,
            staged: None,
            silent: false,
            demand: false,
            active: now,
            detour: Detour::default(),
            farewell: Farewell::Not,
            sent: now,
            confirmed: false,
            knocked: now,
            since: now,
            deadline: None,
            queued: false,
            valve: start.valve,
            notes: Vec::new(),
            owed: 0,
            in_flight: 0,
            heard: false,
        }
    }

    /// Bytes below UDP's payload in each packet: IP's and UDP's headers.
    fn below(&self) -> u64 {
        if self.addr.ip().to_canonical().is_ipv4() { 28 } else { 48 }
    }

    /// A datagram of `bytes` came in.
    pub(super) fn received(&mut self, bytes: usize) {
        self.collector.received(bytes as u64 + self.below());
        self.heard = true;
        // Credit may have come for what waits. QUIC tells so only of streams that asked for it, and
        // the one that did may be gone by then.
        self.blocked = false;
    }

    /// The handshake is over at both ends.
    pub(super) fn confirm(&mut self) {
        self.confirmed = true;
    }

    /// When the handshake is to be helped on, if it is under way.
    fn next_knock(&self) -> Option<Time> {
        (!self.confirmed).then_some(self.knocked + KNOCK)
    }

    /// Tells the estimator what QUIC saw happen, and QUIC how much may be in flight.
    pub(super) fn absorb(&mut self, now: Time, epoch: Epoch) {
        let below = self.below();
        self.valve.drain(&mut self.notes);
        for note in self.notes.drain(..) {
            match note {
                Note::Sent(bytes) => {
                    self.estimator.sent(now, bytes + below);
                    self.owed = self.owed.saturating_sub(bytes);
                    self.in_flight += bytes;
                }
                Note::Acknowledged(sent, bytes) => {
                    self.estimator.acknowledged(now, epoch.time(sent), bytes + below);
                    self.in_flight = self.in_flight.saturating_sub(bytes);
                    if matches!(self.farewell, Farewell::Asked(at) if epoch.time(sent) >= at) {
                        self.farewell = Farewell::Due;
                    }
                }
                Note::Lost(bytes) => {
                    self.estimator.lost(now, bytes + below);
                    self.owed += bytes;
                    self.in_flight = self.in_flight.saturating_sub(bytes);
                }
                Note::InFlight(bytes) if bytes < self.in_flight => {
                    let forgotten = std::mem::replace(&mut self.in_flight, bytes) - bytes;
                    let packets = forgotten.div_ceil(self.conn.current_mtu().into());
                    self.estimator.lost(now, forgotten + packets * below);
                }
                Note::InFlight(_) => {}
            }
        }
        // The gate keeps objects within the estimator's window. QUIC's check is stricter than
        // ours by up to a packet (it wants room for a full one, a probe being small), so it is
        // given one more.
        self.valve.set_window(self.estimator.window() + u64::from(self.conn.current_mtu()));
    }

    /// The receiver's report: samples for the estimator, and the objects' bytes in the packets
    /// now known to have arrived.
    pub(super) fn reported(&mut self, now: Time, report: Vec<super::frame::Seen>) -> Vec<(RequestId, u64)> {
        let mut arrivals = Vec::with_capacity(report.len());
        let mut shares = Vec::new();
        for seen in report {
            let Some((sent, share)) = self.ledger.take(seen.number) else { continue };
            arrivals.push(Arrival { sent, received: seen.at, total: seen.total });
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
        let stamp = self.ledger.stamp(now, Some(share));
        self.say(&Message::Stamp(stamp), 0);
        Written { stamp, bytes: share.1 }
    }

    /// Sends `probe`: stamps whose arrival is reported at once.
    pub(super) fn probe(&mut self, now: Time, probe: Probe) {
        let (count, size) = match probe {
            Probe::Small => (1, 0),
            Probe::Pair => (2, self.conn.datagrams().max_size().unwrap_or(0)),
        };
        for _ in 0..count {
            let number = self.ledger.stamp(now, None);
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
        // Before that the peer's limits are not known, and a probe would be lost.
        while self.phase == Phase::Up
            && let Some(probe) = self.estimator.poll_probe(now)
        {
            self.probe(now, probe);
        }
        if self.confirmed && self.owed > 0 && matches!(self.estimator.gate(now), Gate::At(_)) {
            // Acknowledgements do not wait: the peer's estimate, and its window, rest on them. With
            // no window for anything else QUIC sends only them; `take` opens it again.
            self.valve.set_window(0);
            return self.take(now, epoch, buf);
        }
        let transmit = self.take(now, epoch, buf);
        match (&transmit, self.staged) {
            (Some(_), Some(number)) => {
                self.ledger.left(number, now);
                self.staged = None;
            }
            // It had nothing, unless the window is full.
            (None, _) if self.estimator.gate(now) != Gate::Shut => self.owed = 0,
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
        self.owed > 0 && self.is_ready(now)
    }

    /// The packet for which objects' bytes have just been written, if QUIC lets it out.
    pub(super) fn take_written(
        &mut self,
        now: Time,
        epoch: Epoch,
        packet: Written,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.owed += packet.bytes;
        let transmit = self.take(now, epoch, buf);
        self.touch(now);
        self.heard = false;
        self.staged = transmit.is_none().then_some(packet.stamp);
        transmit
    }

    fn take(&mut self, now: Time, epoch: Epoch, buf: &mut Vec<u8>) -> Option<Transmit> {
        loop {
            buf.clear();
            let transmit = self.conn.poll_transmit(epoch.instant(now), NonZeroUsize::MIN, buf);
            self.absorb(now, epoch);
            if transmit.is_some() {
                self.sent = now;
            }
            // What QUIC has for a decoy is a challenge or two, and would reach nobody.
            match transmit {
                Some(t) if self.detour.is_decoy(t.destination) => continue,
                other => return other,
            }
        }
    }

    /// When it next needs attention.
    pub(super) fn next_deadline(&self, now: Time, epoch: Epoch, idle: Duration) -> Option<Time> {
        let quic = self.conn.poll_timeout().map(|i| epoch.time(i));
        if self.phase == Phase::Over {
            return quic;
        }
        let wants = self.owed > 0 || (self.may_write() && !self.outbox.is_empty());
        let gate = match self.estimator.gate(now) {
            Gate::At(t) if wants => Some(t),
            _ => None,
        };
        let own = match self.phase {
            Phase::Connecting if self.conn.side().is_server() => Some(self.since + HANDSHAKE_MAX),
            _ if self.is_idle() && self.farewell == Farewell::Not => Some(self.active + idle),
            _ => None,
        };
        [quic, self.estimator.poll_timeout(), self.collector.due(), gate, own, self.next_knock()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Acts on the timers that are due. Whether the connection is to be ended: it is idle, or its
    /// handshake takes too long.
    pub(super) fn handle_timeout(&mut self, now: Time, epoch: Epoch, config: &Config) -> bool {
        let quic = self.conn.poll_timeout();
        if quic.is_some_and(|at| epoch.time(at) <= now) {
            self.conn.handle_timeout(epoch.instant(now));
        } else if self.next_knock().is_some_and(|at| at <= now) {
            // In noq 1.4 the wait for a lost handshake grows by 2 s with each attempt, without
            // end; a link that comes back after an hour would wait for minutes. So its timer, the
            // probe timeout, is brought forward; but not the idle timeout, which would be the end.
            if let Some(early) = quic.filter(|at| epoch.time(*at) < self.since + config.hold) {
                self.conn.handle_timeout(early);
            }
            self.knocked = now;
        }
        if self.estimator.poll_timeout().is_some_and(|at| at <= now) {
            self.estimator.handle_timeout(now);
        }
        match self.phase {
            Phase::Connecting => self.conn.side().is_server() && self.since + HANDSHAKE_MAX <= now,
            Phase::Up if self.is_idle() && self.active + config.idle <= now && self.farewell == Farewell::Not => {
                self.farewell = Farewell::Asked(now);
                self.conn.ping();
                false
            }
            _ => false,
        }
    }

    /// An object moves.
    pub(super) fn touch(&mut self, now: Time) {
        self.active = now;
        self.farewell = Farewell::Not;
    }

    /// Whether it has been idle for long and is known to be there.
    pub(super) fn is_to_go(&self) -> bool {
        self.is_idle() && self.farewell == Farewell::Due
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
