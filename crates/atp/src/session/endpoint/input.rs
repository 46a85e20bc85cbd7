//! Input of an endpoint: datagrams, timeouts, and the QUIC events that they cause.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::BytesMut;
use noq_proto::{
    ConnectionError, ConnectionEvent, DatagramEvent, Dir, EndpointEvent, Event as QuicEvent, FourTuple, Incoming,
    StreamEvent, StreamId, TransportErrorCode,
};
use remora_base::{Peer as From, Time, Transmit};
use rustls::{AlertDescription, CertificateError};

use super::admission::{SlotGrant, Slots};
use super::state::{CLOSED_FULL, Endpoint, scheduler_number};
use crate::estimate::Direction;
use crate::session::event::{Ending, Event, PeerId, Refusal};
use crate::session::peer::{Answer, DatagramMessage, ObjectBytes, PeerPhase, StopReason, StreamRead};
use crate::{Outcome, Rejection};

/// Maximum number of stateless answers that wait; more are dropped.
const REPLIES_MAX: usize = 64;
/// Handshakes in progress from which clients must validate their address first (Retry, RFC 9000, section 8.1.2), so
/// that floods from forged addresses create no state.
const HALF_OPEN_MAX: usize = 32;

impl Endpoint {
    /// Like [`handle_input`](remora_base::Core::handle_input), for datagrams that arrived together from one address
    /// (GRO). Events are processed once for all of them.
    pub fn handle_datagrams(&mut self, now: Time, from: SocketAddr, datagrams: impl IntoIterator<Item = BytesMut>) {
        self.clock.set(now);
        let mut current = None;
        for datagram in datagrams {
            let id = self.on_datagram(now, from, datagram);
            if id != current
                && let Some(before) = std::mem::replace(&mut current, id)
            {
                self.process_events(now, before);
            }
        }
        if let Some(last) = current {
            self.process_events(now, last);
        }
    }

    /// Handles a datagram; returns the peer whose events the caller must process.
    fn on_datagram(&mut self, now: Time, from: SocketAddr, datagram: BytesMut) -> Option<PeerId> {
        let at = self.epoch.instant(now);
        let len = datagram.len();
        let foreign = self.settings.is_foreign(&datagram);
        let mut reply = Vec::new();
        let spare = self.may_be_diverted(now, from, &datagram).then(|| datagram.clone());
        match self.quic.handle(at, FourTuple::from_remote(from), None, datagram, &mut reply) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let id = *self.handles.get(&handle.0)?;
                if foreign {
                    self.on_reset(now, id);
                    return None;
                }
                let p = self.peers.get_mut(&id)?;
                if !p.admits(now, from) {
                    return None;
                }
                let event = match spare.filter(|_| p.is_diverted(now, from, len) && !p.abandons_path(at)) {
                    Some(spare) => redirected(&mut self.quic, at, p.revalidation.divert(from), spare).unwrap_or(event),
                    None => event,
                };
                p.received(now, len);
                p.handle_datagram(now, from, len, event);
                p.absorb(now, self.epoch);
                // Each stamp must see the bytes received up to its own datagram only.
                self.on_datagram_frames(now, id);
                return Some(id);
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.on_incoming(now, incoming, len),
            Some(DatagramEvent::Response(transmit)) => self.reply(transmit, reply),
            None => {}
        }
        None
    }

    /// Ends a connection after a stateless reset (RFC 9000, section 10.3). QUIC has matched the token. It ignores
    /// tokens of connection ids that it switched to by itself (noq 1.4, after a migration), so the reset is not
    /// passed to it.
    fn on_reset(&mut self, now: Time, id: PeerId) {
        self.end(now, id, Ending::Restarted);
        self.drop_connection(id);
    }

    /// Whether a datagram may be the one to divert (see [`PathRevalidation`]), if it belongs to that peer.
    ///
    /// [`PathRevalidation`]: crate::session::path::PathRevalidation
    fn may_be_diverted(&self, now: Time, from: SocketAddr, datagram: &[u8]) -> bool {
        // Only established connections migrate, and they use short headers.
        let is_short = datagram.first().is_some_and(|first| first & 0x80 == 0);
        is_short && self.peers.values().any(|p| p.is_diverted(now, from, datagram.len()))
    }

    /// Accepts, refuses or retries an incoming connection.
    fn on_incoming(&mut self, now: Time, incoming: Incoming, len: usize) {
        let mut buf = Vec::new();
        let half_open = self.peers.values().filter(|p| p.phase == PeerPhase::Connecting && !p.is_overdue(now)).count();
        // No connection is evicted for an address that may be forged.
        let addr = incoming.remote_address();
        let is_short = half_open >= HALF_OPEN_MAX || self.slots().is_full_for(addr);
        if is_short && !incoming.remote_address_validated() {
            match self.quic.retry(incoming, &mut buf) {
                Ok(transmit) => self.reply(transmit, buf),
                Err(e) => self.quic.ignore(e.into_incoming()),
            }
            return;
        }
        if !self.take_slot(now, self.slots().grant_to_host(now, addr)) {
            self.counters.turned_away += 1;
            let transmit = self.quic.refuse(incoming, &mut buf);
            return self.reply(transmit, buf);
        }
        let quic_cc = self.new_quic_cc();
        let server = self.settings.server(&self.config, &quic_cc);
        match self.quic.accept(incoming, self.epoch.instant(now), &mut buf, server) {
            Ok((handle, conn)) => {
                let id = self.add_peer(now, handle, conn, addr, quic_cc);
                if let Some(p) = self.peers.get_mut(&id) {
                    p.received(now, len);
                }
                self.process_events(now, id);
            }
            Err(e) => {
                self.counters.turned_away += 1;
                if let Some(transmit) = e.response {
                    self.reply(transmit, buf);
                }
            }
        }
    }

    fn slots(&self) -> Slots<'_> {
        Slots { config: &self.config, peers: &self.peers }
    }

    /// Evicts the connection whose slot is granted; returns whether there is a slot.
    fn take_slot(&mut self, now: Time, grant: SlotGrant) -> bool {
        let (id, why) = match grant {
            SlotGrant::Free => return true,
            SlotGrant::Evict(id, why) => (id, why),
            SlotGrant::Refused => return false,
        };
        self.counters.turned_away += 1;
        self.end(now, id, why);
        let mut buf = Vec::new();
        if let Some(p) = self.peers.get_mut(&id)
            && let Some(transmit) = p.poll_packet(now, self.epoch, &mut buf)
        {
            self.reply(transmit, buf); // CONNECTION_CLOSE, sent once
        }
        self.drop_connection(id);
        true
    }

    /// Forgets a closed connection at once, without waiting for late packets.
    pub(crate) fn drop_connection(&mut self, id: PeerId) {
        if let Some(p) = self.peers.get(&id) {
            self.quic.handle_event(p.handle, EndpointEvent::drained());
            self.remove(id);
        }
    }

    pub(crate) fn reply(&mut self, transmit: noq_proto::Transmit, mut bytes: Vec<u8>) {
        if self.replies.len() < REPLIES_MAX {
            bytes.truncate(transmit.size);
            self.replies.push_back(Transmit { to: From::datagram(transmit.destination), payload: bytes.into() });
        }
    }

    pub(crate) fn on_timeout(&mut self, now: Time) {
        self.clock.set(now);
        let due: Vec<PeerId> = self.timers.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect();
        for id in due {
            let Some(p) = self.peers.get_mut(&id) else { continue };
            p.handle_timeout(now, self.epoch, &self.config);
            if p.is_silent_for(now, self.config.hold) {
                self.end(now, id, Ending::Silent);
            }
            self.process_events(now, id);
        }
        let schedulers: Vec<u32> = self.schedulers.keys().copied().collect();
        for number in schedulers {
            if let Some(scheduler) = self.schedulers.get_mut(&number)
                && scheduler.poll_timeout().is_some_and(|at| at <= now)
            {
                scheduler.handle_timeout(now);
                self.drain_scheduler(now, number);
                self.enqueue_members(number);
            }
        }
    }

    /// Queues all peers of a scheduler that have objects.
    fn enqueue_members(&mut self, number: u32) {
        let config = &self.config;
        let ids: Vec<PeerId> = self
            .peers
            .values()
            .filter(|p| scheduler_number(config, p.id) == number && !p.outbox.is_empty())
            .map(|p| p.id)
            .collect();
        for id in ids {
            self.enqueue(id);
        }
    }

    /// Processes the QUIC events of a connection after any call into it.
    pub(crate) fn process_events(&mut self, now: Time, id: PeerId) {
        let mut drained = false;
        loop {
            let Some(p) = self.peers.get_mut(&id) else { return };
            p.absorb(now, self.epoch);
            if let Some(event) = p.conn.poll_endpoint_events() {
                drained |= event.is_drained();
                if let Some(answer) = self.quic.handle_event(p.handle, event) {
                    p.conn.handle_event(answer);
                }
            } else if let Some(event) = p.conn.poll() {
                self.on_quic_event(now, id, event);
            } else {
                break;
            }
        }
        if drained {
            self.end(now, id, Ending::ClosedByPeer);
            return self.remove(id);
        }
        if self.peers.get(&id).is_some_and(|p| p.is_idle_expired()) {
            self.end(now, id, Ending::Idle);
        }
        self.update_path(now, id);
        self.settle(now, id);
    }

    /// Follows a peer whose packets come from another address (migration; QUIC has authenticated them).
    fn update_path(&mut self, now: Time, id: PeerId) {
        let Some(p) = self.peers.get_mut(&id) else { return };
        p.check_validation();
        // noq may return to an earlier address, or to a decoy. The peer is only where its packets come from.
        let is_there =
            |addr: &SocketAddr| *addr != p.addr && !p.revalidation.is_decoy(*addr) && p.is_latest_address(*addr);
        let Some(addr) = p.path().filter(is_there) else { return };
        p.addr = addr;
        p.start_revalidation(now);
        p.estimator.path_changed(now);
        if p.phase == PeerPhase::Up {
            self.events.push_back(Event::Moved { peer: id, addr });
        }
    }

    fn on_quic_event(&mut self, now: Time, id: PeerId, event: QuicEvent) {
        match event {
            QuicEvent::Connected => self.on_connected(now, id),
            QuicEvent::HandshakeConfirmed => {
                if let Some(p) = self.peers.get_mut(&id) {
                    p.handshake.confirm();
                }
                self.on_established(now, id);
            }
            QuicEvent::ConnectionLost { reason } => self.on_lost(now, id, reason),
            QuicEvent::Stream(event) => self.on_stream_event(now, id, event),
            QuicEvent::DatagramReceived => self.on_datagram_frames(now, id),
            _ => {}
        }
    }

    /// The handshake is complete at this end. A client sends objects now, but the server may still refuse it: its
    /// connection is up when the handshake is confirmed.
    fn on_connected(&mut self, now: Time, id: PeerId) {
        let Some(p) = self.peers.get_mut(&id) else { return };
        if p.conn.side().is_server() {
            return self.on_established(now, id);
        }
        if p.early && !p.conn.accepted_0rtt() {
            p.outbox.rewrite(&mut p.conn);
            p.pending_stamp = None;
            p.blocked = false;
        }
        if p.phase == PeerPhase::Connecting && !std::mem::replace(&mut p.early, true) {
            self.dest_up(now, id);
        }
    }

    /// Both ends have accepted each other. With a resumed session a server accepts its client, and its 0-RTT
    /// objects, from the first packet: the ticket identifies the client's key.
    fn on_established(&mut self, now: Time, id: PeerId) {
        let Some(p) = self.peers.get_mut(&id).filter(|p| p.phase == PeerPhase::Connecting) else { return };
        let Some(key) = p.shown_key() else { return };
        if p.conn.side().is_server() && !self.config.guests.admits(&key) {
            self.counters.turned_away += 1;
            return self.end(now, id, Ending::Closed);
        }
        if p.conn.side().is_server() && !self.take_slot(now, self.slots().grant_to_key(now, id, key)) {
            self.counters.turned_away += 1;
            return self.end(now, id, Ending::Full);
        }
        let Some(p) = self.peers.get_mut(&id) else { return };
        let addr = p.addr;
        p.key = Some(key);
        p.phase = PeerPhase::Up;
        p.touch(now);
        if !std::mem::take(&mut p.early) {
            self.dest_up(now, id);
        }
        self.events.push_back(Event::Up { peer: id, key, addr });
    }

    fn on_lost(&mut self, now: Time, id: PeerId, reason: ConnectionError) {
        let asked = self.peers.get(&id).is_some_and(|p| p.conn.side().is_client());
        match refusal_of(&reason) {
            Some(why) if asked => self.refuse(now, id, why),
            refused => {
                self.counters.turned_away += u64::from(refused.is_some());
                self.end(now, id, ending_of(reason));
            }
        }
    }

    fn on_stream_event(&mut self, now: Time, id: PeerId, event: StreamEvent) {
        match event {
            StreamEvent::Opened { dir: Dir::Bi } => {
                self.on_established(now, id);
                while let Some(stream) = self.peers.get_mut(&id).and_then(|p| p.conn.streams().accept(Dir::Bi)) {
                    self.read(now, id, stream);
                }
            }
            StreamEvent::Readable { id: stream } => match self.peers.get_mut(&id) {
                Some(p) if stream.initiator() == p.conn.side() => {
                    if let Some((request, answer)) = p.outbox.answer(&mut p.conn, stream) {
                        self.finished(now, id, request, outcome_of(answer));
                    }
                }
                _ => self.read(now, id, stream),
            },
            StreamEvent::Writable { id: stream } => {
                if let Some(p) = self.peers.get_mut(&id) {
                    p.outbox.unblock(stream);
                    p.blocked = false;
                }
            }
            StreamEvent::Available { .. } => {
                if let Some(p) = self.peers.get_mut(&id) {
                    p.blocked = false;
                }
            }
            // The bytes have arrived; the receiver's answer decides.
            StreamEvent::Finished { .. } => {}
            StreamEvent::Stopped { id: stream, error_code } => {
                let Some(p) = self.peers.get_mut(&id) else { return };
                if stream.initiator() != p.conn.side() {
                    // The peer wants no answer. QUIC allows it another stream only after this one ends.
                    let _ = p.conn.send_stream(stream).reset(StopReason::GivenUp.code());
                } else if let Some(request) = p.outbox.request_of(stream) {
                    self.finished(now, id, request, outcome_of(Answer::Refused(StopReason::from_code(error_code))));
                }
            }
            StreamEvent::Opened { dir: Dir::Uni } => {} // none are allowed
        }
    }

    fn read(&mut self, now: Time, id: PeerId, stream: StreamId) {
        let Some(p) = self.peers.get_mut(&id).filter(|p| p.phase != PeerPhase::Over) else { return };
        match p.inbox.read(now, &mut p.conn, stream, &mut self.buffers) {
            StreamRead::Partial => {}
            StreamRead::Complete(whole) => {
                let (priority, object) = (whole.priority, whole.object);
                self.events.push_back(Event::Received { peer: id, priority, object });
                p.expedite(now);
            }
            StreamRead::Ended { stopped } => self.counters.stopped += u64::from(stopped),
        }
        p.touch(now);
        p.estimator.object_progress(now, Direction::In);
    }

    fn on_datagram_frames(&mut self, now: Time, id: PeerId) {
        let mut shares: Vec<ObjectBytes> = Vec::new();
        let Some(p) = self.peers.get_mut(&id) else { return };
        while let Some(bytes) = p.conn.datagrams().recv() {
            match DatagramMessage::decode(&bytes) {
                Some(DatagramMessage::Stamp(number)) => p.stamped(now, number, false),
                Some(DatagramMessage::Last(number)) => {
                    p.stamped(now, number, true);
                    p.expedite_answer(now);
                }
                Some(DatagramMessage::Probe(number)) => {
                    p.stamped(now, number, true);
                    p.estimator.peer_probed(now);
                }
                Some(DatagramMessage::Report(seen)) => shares.extend(p.reported(now, seen)),
                None => self.counters.nonsense += 1,
            }
        }
        let Some(scheduler) = self.schedulers.get_mut(&scheduler_number(&self.config, id)) else { return };
        for ObjectBytes { request, bytes } in shares {
            scheduler.acknowledged(now, request, bytes);
        }
    }
}

/// The event of a datagram for its connection, as if it came from `from`.
fn redirected(
    quic: &mut noq_proto::Endpoint,
    at: Instant,
    from: SocketAddr,
    datagram: BytesMut,
) -> Option<ConnectionEvent> {
    match quic.handle(at, FourTuple::from_remote(from), None, datagram, &mut Vec::new()) {
        Some(DatagramEvent::ConnectionEvent(_, event)) => Some(event),
        _ => None,
    }
}

/// The outcome of a request, from the receiver's answer.
fn outcome_of(answer: Answer) -> Outcome {
    match answer {
        Answer::Taken => Outcome::Delivered,
        Answer::Refused(StopReason::TooLarge) => Outcome::Rejected(Rejection::TooLarge),
        Answer::Refused(StopReason::NoRoom) => Outcome::Rejected(Rejection::TooManyBytes),
        Answer::Refused(StopReason::GivenUp | StopReason::Malformed) => Outcome::Lost,
    }
}

/// The refusal, if one end rejected the other.
fn refusal_of(reason: &ConnectionError) -> Option<Refusal> {
    let code = match reason {
        ConnectionError::TransportError(e) => {
            let tls = e.crypto.as_deref().and_then(|e| e.downcast_ref::<rustls::Error>());
            if tls == Some(&rustls::Error::InvalidCertificate(CertificateError::NotValidForName)) {
                return Some(Refusal::WrongKey);
            }
            e.code
        }
        ConnectionError::ConnectionClosed(close) => close.error_code,
        _ => return None,
    };
    match code {
        code if code == TransportErrorCode::crypto(u8::from(AlertDescription::AccessDenied)) => {
            Some(Refusal::NotAdmitted)
        }
        TransportErrorCode::CONNECTION_REFUSED => Some(Refusal::Full),
        _ => None,
    }
}

fn ending_of(reason: ConnectionError) -> Ending {
    match reason {
        ConnectionError::TimedOut => Ending::Silent,
        ConnectionError::Reset => Ending::Restarted,
        ConnectionError::LocallyClosed => Ending::Closed,
        ConnectionError::ApplicationClosed(close) if close.error_code == CLOSED_FULL => Ending::Full,
        ConnectionError::ApplicationClosed(_) => Ending::ClosedByPeer,
        other => Ending::Protocol(other.to_string()),
    }
}
