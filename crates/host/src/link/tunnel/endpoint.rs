//! The state of one end of the tunnel, its inputs and its outputs.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Rng, Time};

use super::event::{DownReason, InvalidDatagrams, KnownPeer, OutgoingDatagram, TunnelEvent};
use super::handshake::{
    CheckedInitiation, HandshakeResponse, INITIATION_LEN, Initiation, RESPONSE_LEN, ReceivedInitiation,
};
use super::key::LinkIdentity;
use super::limiter::HandshakeLimiter;
use super::pending_handshake::{HandshakeStep, PendingHandshake};
use super::session::{self, DatagramKind, INDEX_MAX, OpenError, TunnelSession};
use super::sessions::{PeerSessions, SessionAge};

/// Silence after which a mobile counts as down.
pub(in crate::link) const GONE_AFTER: Duration = Duration::from_secs(660);
/// Longest datagram accepted.
pub(in crate::link) const DATAGRAM_MAX: usize = 65_535;
/// Largest timestamp accepted (the year 2262). After a larger one, no mobile with that key could send a newer one,
/// even with its clock corrected.
pub(in crate::link) const TIMESTAMP_MAX: u64 = u64::MAX / 2;
/// Age of keys at which rekeying starts.
const REKEY_AFTER: Duration = Duration::from_secs(3600);
/// Silence after which an end that sends requests a keepalive.
const PROBE_AFTER: Duration = Duration::from_secs(1);
/// Silence after a keepalive request at which a mobile calls the base again.
const CALL_AFTER: Duration = Duration::from_millis(2500);
/// The content of a goodbye. An empty message requests or is a keepalive, one byte is a control message, and longer
/// ones are frames of the link protocol.
const BYE: &[u8] = &[1];

/// One end of the tunnel. After every call that changes it, the caller drains [`poll_outgoing`](TunnelEndpoint::poll_outgoing)
/// and [`poll_event`](TunnelEndpoint::poll_event), then reads [`poll_timeout`](TunnelEndpoint::poll_timeout).
pub struct TunnelEndpoint {
    identity: LinkIdentity,
    role: RoleState,
    remotes: Vec<TunnelPeer>,
    /// Peers by the session indices of this end.
    by_index: BTreeMap<u32, usize>,
    rng: Rng,
    /// Nanoseconds since 1970 at [`Time::ZERO`].
    wall_zero: u64,
    out: VecDeque<OutgoingDatagram>,
    events: VecDeque<TunnelEvent>,
    counters: InvalidDatagrams,
    plain: Vec<u8>,
}

enum RoleState {
    Base { limiter: HandshakeLimiter },
    Mobile { call: Option<Box<PendingHandshake>>, keepalive: Duration, stamped: u64 },
}

/// A peer with a known key.
pub(super) struct TunnelPeer {
    known: KnownPeer,
    /// This end's epoch towards the peer, incremented after each removal.
    epoch: u64,
    address: Option<SocketAddr>,
    sessions: PeerSessions,
    /// Whether a mobile has had a session with the peer.
    was_up: bool,
    /// When the peer was last heard.
    heard: Time,
    /// When a message was last sent to the peer.
    spoken: Time,
    /// When the first message since the peer was last heard was sent.
    waiting: Option<Time>,
    /// When a keepalive was last requested.
    probed: Time,
    /// The newest timestamp of a handshake by the peer.
    newest: u64,
    /// The latest accepted initiation and the response to it.
    answered: Option<([u8; INITIATION_LEN], Vec<u8>)>,
}

impl TunnelPeer {
    fn new(known: KnownPeer, address: Option<SocketAddr>, epoch: u64, now: Time) -> TunnelPeer {
        let sessions = PeerSessions::default();
        let (waiting, newest, answered) = (None, 0, None);
        let (heard, spoken, probed) = (now, now, now);
        let was_up = false;
        TunnelPeer { known, epoch, address, sessions, was_up, heard, spoken, waiting, probed, newest, answered }
    }

    fn is_up(&self) -> bool {
        self.sessions.current().is_some()
    }

    /// When rekeying is due.
    fn keys_at(&self) -> Time {
        self.sessions.current().filter(|s| !s.is_worn()).map_or(Time::ZERO, |s| s.born + REKEY_AFTER)
    }

    /// When a mobile's next call is due.
    fn call_at(&self) -> Time {
        self.waiting.map_or(self.keys_at(), |since| self.keys_at().min(since + CALL_AFTER))
    }

    /// When a mobile's next keepalive request is due.
    fn probe_at(&self, keepalive: Duration) -> Time {
        let idle = self.spoken + keepalive;
        self.waiting.map_or(idle, |since| idle.min((since + PROBE_AFTER).max(self.probed + PROBE_AFTER)))
    }
}

impl TunnelEndpoint {
    /// A base that serves these mobiles. `wall` is the time since 1970 at [`Time::ZERO`], in nanoseconds.
    pub fn base(identity: LinkIdentity, mobiles: Vec<KnownPeer>, seed: u64, wall: u64, now: Time) -> TunnelEndpoint {
        let ends = mobiles.into_iter().map(|known| (known, None)).collect();
        TunnelEndpoint::new(identity, RoleState::Base { limiter: HandshakeLimiter::new(now) }, ends, seed, wall, now)
    }

    /// A mobile of the base at `endpoint`. It calls at the first timeout.
    pub fn mobile(
        identity: LinkIdentity,
        base: KnownPeer,
        endpoint: SocketAddr,
        keepalive: Duration,
        seed: u64,
        wall: u64,
        now: Time,
    ) -> TunnelEndpoint {
        let ends = vec![(base, Some(endpoint))];
        TunnelEndpoint::new(identity, RoleState::Mobile { call: None, keepalive, stamped: 0 }, ends, seed, wall, now)
    }

    fn new(
        identity: LinkIdentity,
        role: RoleState,
        ends: Vec<(KnownPeer, Option<SocketAddr>)>,
        seed: u64,
        wall_zero: u64,
        now: Time,
    ) -> TunnelEndpoint {
        let mut rng = Rng::stream(seed, "tunnel");
        let remote = |(known, address)| TunnelPeer::new(known, address, rng.next_u64(), now);
        let remotes = ends.into_iter().map(remote).collect();
        TunnelEndpoint {
            identity,
            role,
            remotes,
            by_index: BTreeMap::new(),
            rng,
            wall_zero,
            out: VecDeque::new(),
            events: VecDeque::new(),
            counters: InvalidDatagrams::default(),
            plain: vec![0; DATAGRAM_MAX],
        }
    }

    /// The latest known address of a peer.
    pub fn address(&self, peer: usize) -> Option<SocketAddr> {
        self.remotes.get(peer)?.address
    }

    /// When a peer was last heard, if there is a session.
    pub fn heard(&self, peer: usize) -> Option<Time> {
        self.remotes.get(peer).filter(|r| r.is_up()).map(|r| r.heard)
    }

    /// Counts of invalid datagrams.
    pub fn counters(&self) -> InvalidDatagrams {
        self.counters
    }

    /// The next datagram to send.
    pub fn poll_outgoing(&mut self) -> Option<OutgoingDatagram> {
        self.out.pop_front()
    }

    pub fn poll_event(&mut self) -> Option<TunnelEvent> {
        self.events.pop_front()
    }

    /// Encrypts a frame for a peer; false without a session.
    pub fn send(&mut self, now: Time, peer: usize, frame: &[u8]) -> bool {
        let Some(r) = self.remotes.get_mut(peer) else { return false };
        let (Some(to), Some(bytes)) = (r.address, r.sessions.seal(frame)) else { return false };
        r.spoken = now;
        r.waiting.get_or_insert(now);
        self.out.push_back(OutgoingDatagram { to, bytes });
        true
    }

    /// Sends a goodbye to every peer and ends all sessions.
    pub fn leave(&mut self, now: Time) {
        for peer in 0..self.remotes.len() {
            self.send(now, peer, BYE);
            self.forget(peer);
        }
    }

    /// Handles a datagram.
    pub fn receive(&mut self, now: Time, from: SocketAddr, datagram: &[u8]) {
        match session::parse(datagram) {
            Some((DatagramKind::Data, index, rest)) => self.on_data(now, from, index, rest),
            Some((DatagramKind::Initiation, index, rest)) => self.on_initiation(now, from, index, rest),
            Some((DatagramKind::Response, index, rest)) => self.on_response(now, index, rest),
            None => self.counters.forged += 1,
        }
    }

    fn on_data(&mut self, now: Time, from: SocketAddr, index: u32, rest: &[u8]) {
        let Some((&peer, r)) = self.by_index.get(&index).and_then(|p| Some((p, self.remotes.get_mut(*p)?))) else {
            self.counters.forged += 1;
            return;
        };
        let (place, opened) = match r.sessions.open(now, index, rest, &mut self.plain) {
            Ok(found) => found,
            Err(OpenError::Replayed) => return self.counters.replayed += 1,
            Err(OpenError::Forged) => return self.counters.forged += 1,
        };
        r.heard = now;
        r.waiting = None;
        let is_base = matches!(self.role, RoleState::Base { .. });
        if is_base && opened.newest && place != SessionAge::Previous && r.address != Some(from) {
            let known = r.address.replace(from).is_some();
            if known {
                self.events.push_back(TunnelEvent::Moved { peer, to: from });
            }
        }
        if let SessionAge::New(change) = place {
            self.events.push_back(TunnelEvent::of(change, peer));
            self.index_again(peer);
        }
        match self.plain.get(..opened.len).unwrap_or_default() {
            // Only the base echoes; otherwise the two would echo forever.
            [] if is_base => {
                self.send(now, peer, &[]);
            }
            [] => {}
            BYE if place != SessionAge::Previous => {
                self.forget(peer);
                self.events.push_back(TunnelEvent::Down { peer, why: DownReason::Left });
            }
            [_] => {}
            frame => {
                let frame = Bytes::copy_from_slice(frame);
                self.events.push_back(TunnelEvent::Frame { peer, frame });
            }
        }
        self.stop_calling_if_heard(now);
    }

    /// Handles every due timer.
    pub fn handle_timeout(&mut self, now: Time) {
        for peer in 0..self.remotes.len() {
            self.expire(now, peer);
        }
        if let RoleState::Mobile { keepalive, .. } = self.role {
            self.keep_alive(now, keepalive);
            self.call(now);
        }
    }

    /// When [`TunnelEndpoint::handle_timeout`] is next due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let expiries = self.remotes.iter().filter_map(|r| {
            let gone = r.is_up().then(|| r.heard + GONE_AFTER);
            [gone, r.sessions.expiry()].into_iter().flatten().min()
        });
        let RoleState::Mobile { call, keepalive, .. } = &self.role else { return expiries.min() };
        let own = self.remotes.first().map(|r| match call {
            Some(call) => call.due(),
            None => r.call_at(),
        });
        let probe = self.remotes.first().filter(|r| r.is_up()).map(|r| r.probe_at(*keepalive));
        expiries.chain(own).chain(probe).min()
    }

    fn expire(&mut self, now: Time, peer: usize) {
        let Some(r) = self.remotes.get_mut(peer) else { return };
        let too_old = r.sessions.expire(now);
        let silent = r.is_up() && now.since(r.heard) >= GONE_AFTER;
        if too_old || silent {
            self.forget(peer);
            self.events.push_back(TunnelEvent::Down { peer, why: DownReason::Silent });
        }
    }

    /// Sends a mobile's keepalives: during silence, and when the base has not been heard.
    fn keep_alive(&mut self, now: Time, keepalive: Duration) {
        if self.remotes.first().is_some_and(|r| r.is_up() && r.probe_at(keepalive) <= now) {
            self.probe(now, 0);
        }
    }

    fn probe(&mut self, now: Time, peer: usize) {
        if self.send(now, peer, &[])
            && let Some(r) = self.remotes.get_mut(peer)
        {
            r.probed = now;
        }
    }

    fn forget(&mut self, peer: usize) {
        if let Some(r) = self.remotes.get_mut(peer) {
            r.sessions.clear();
            r.waiting = None;
            // The stored response refers to a session that has ended.
            r.answered = None;
            r.epoch = self.rng.next_u64();
            if matches!(self.role, RoleState::Base { .. }) {
                r.address = None;
            }
            // The initiation carries the earlier epoch.
            if let RoleState::Mobile { call, .. } = &mut self.role {
                *call = None;
            }
            self.index_again(peer);
        }
    }

    /// Updates the index table for the sessions of one peer.
    fn index_again(&mut self, peer: usize) {
        self.by_index.retain(|_, p| *p != peer);
        if let Some(r) = self.remotes.get(peer) {
            self.by_index.extend(r.sessions.indices().map(|i| (i, peer)));
        }
    }

    /// An index that no session of this end uses.
    fn fresh_index(&mut self) -> u32 {
        loop {
            let index = self.rng.next_u32() & INDEX_MAX;
            if !self.by_index.contains_key(&index) {
                return index;
            }
        }
    }
}

/// Handshakes: a mobile initiates; the base answers initiations with a newer timestamp than all before.
impl TunnelEndpoint {
    /// Handles a mobile's initiation: the base answers one that is newer than all before.
    fn on_initiation(&mut self, now: Time, from: SocketAddr, index: u32, rest: &[u8]) {
        let known = self.remotes.iter().any(|r| r.address == Some(from));
        let RoleState::Base { limiter } = &mut self.role else { return self.counters.refused += 1 };
        // Cheap checks first: junk must not use up the rate limit of expensive ones.
        let Some(initiation) = CheckedInitiation::check(&self.identity.public, rest) else {
            self.counters.refused += 1;
            if rest.len() == INITIATION_LEN {
                self.events.push_back(TunnelEvent::OtherBase { from });
            }
            return;
        };
        if !limiter.admit(now, from, known) {
            return self.counters.limited += 1;
        }
        let again =
            self.remotes.iter().find_map(|r| r.answered.as_ref().filter(|(initiation, _)| initiation[..] == *rest));
        if let Some((_, answer)) = again {
            return self.out.push_back(OutgoingDatagram { to: from, bytes: answer.clone() });
        }
        let hello = ReceivedInitiation::read(&self.identity, index, initiation)
            .filter(|hello| hello.timestamp <= TIMESTAMP_MAX);
        let Some(hello) = hello else { return self.counters.refused += 1 };
        let Some(peer) = self.remotes.iter().position(|r| r.known.key == hello.key) else {
            self.counters.strangers += 1;
            return self.events.push_back(TunnelEvent::Stranger { key: hello.key, from });
        };
        self.answer(now, peer, hello, index, rest, from);
    }

    fn answer(
        &mut self,
        now: Time,
        peer: usize,
        hello: ReceivedInitiation,
        theirs: u32,
        initiation: &[u8],
        to: SocketAddr,
    ) {
        let ours = self.fresh_index();
        let Some(r) = self.remotes.get_mut(peer) else { return };
        let stale = hello.timestamp <= r.newest;
        let timestamp = hello.timestamp;
        let welcome = HandshakeResponse::Welcome { index: ours, epoch: r.epoch };
        let answer = if stale { HandshakeResponse::Stale { newest: r.newest } } else { welcome };
        let epoch = hello.epoch;
        let Some((message, keys)) = hello.answer(r.known.secret.as_ref(), answer) else { return };
        let bytes = [&session::head(DatagramKind::Response, theirs)[..], &message].concat();
        if !stale {
            r.newest = timestamp;
            r.answered = initiation.try_into().ok().map(|q| (q, bytes.clone()));
            r.sessions.prepare(TunnelSession::new(keys, ours, theirs, epoch, now));
            self.index_again(peer);
        }
        self.out.push_back(OutgoingDatagram { to, bytes });
    }

    /// Handles the base's response to the outstanding call.
    fn on_response(&mut self, now: Time, index: u32, message: &[u8]) {
        let RoleState::Mobile { call, stamped, .. } = &mut self.role else { return self.counters.refused += 1 };
        let Some(mut under_way) = call.take_if(|c| c.awaits(index) && message.len() == RESPONSE_LEN) else {
            return self.counters.refused += 1;
        };
        match under_way.initiation.read(message) {
            None => {
                // Only the holder of the called key, or an eavesdropper, knows where to respond. So the keys match and
                // the preshared keys differ.
                if under_way.is_news_of_secret() {
                    self.events.push_back(TunnelEvent::OtherSecret);
                }
                *call = Some(under_way);
                self.counters.refused += 1;
            }
            Some(HandshakeResponse::Stale { newest }) => {
                *stamped = (*stamped).max(newest);
                if under_way.is_told_again() {
                    // Repeated rejections must not cause endless calls.
                    *call = Some(under_way);
                } else {
                    self.ask(now, Some(under_way));
                }
            }
            Some(HandshakeResponse::Welcome { index: theirs, epoch }) => {
                if theirs > INDEX_MAX {
                    return;
                }
                if let Some(keys) = under_way.initiation.finish() {
                    self.welcomed(now, TunnelSession::new(keys, index, theirs, epoch, now));
                }
            }
        }
    }

    fn welcomed(&mut self, now: Time, session: TunnelSession) {
        let Some(r) = self.remotes.first_mut() else { return };
        let change = r.sessions.switch(now, session);
        r.heard = now;
        r.was_up = true;
        r.waiting = None;
        self.index_again(0);
        self.events.push_back(TunnelEvent::of(change, 0));
        // The base uses the new keys after the first message under them.
        self.probe(now, 0);
    }

    fn call(&mut self, now: Time) {
        let Some((call_at, was_up)) = self.remotes.first().map(|r| (r.call_at(), r.was_up)) else { return };
        let RoleState::Mobile { call, .. } = &mut self.role else { return };
        let Some(under_way) = call else {
            if call_at <= now {
                self.ask(now, None);
            }
            return;
        };
        if under_way.is_news(now) {
            self.events.push_back(TunnelEvent::NoAnswer { was_up });
        }
        match under_way.wants(now, &mut self.rng) {
            HandshakeStep::Wait => {}
            HandshakeStep::Retransmit => self.put_question(),
            HandshakeStep::Restart => {
                let earlier = call.take();
                self.ask(now, earlier);
            }
        }
    }

    /// Sends a new initiation to the base.
    fn ask(&mut self, now: Time, earlier: Option<Box<PendingHandshake>>) {
        let index = self.fresh_index();
        let wall = self.wall_zero.saturating_add(now.as_nanos());
        let (RoleState::Mobile { call, stamped, .. }, Some(r)) = (&mut self.role, self.remotes.first_mut()) else {
            return;
        };
        *stamped = wall.max(stamped.saturating_add(1));
        let (key, secret) = (&r.known.key, r.known.secret.as_ref());
        let Some(initiation) = Initiation::new(&self.identity, key, secret, *stamped, r.epoch, index) else { return };
        *call = Some(Box::new(PendingHandshake::new(now, initiation, index, earlier.as_deref(), &mut self.rng)));
        self.put_question();
    }

    fn put_question(&mut self) {
        let (RoleState::Mobile { call: Some(call), .. }, Some(r)) = (&self.role, self.remotes.first()) else { return };
        let Some(to) = r.address else { return };
        let bytes = [&session::head(DatagramKind::Initiation, call.index)[..], &call.initiation.message].concat();
        self.out.push_back(OutgoingDatagram { to, bytes });
    }

    /// Drops a call made because of silence when the silence ends.
    fn stop_calling_if_heard(&mut self, now: Time) {
        let needed = self.remotes.first().is_none_or(|r| r.keys_at() <= now);
        if let RoleState::Mobile { call, .. } = &mut self.role
            && !needed
        {
            *call = None;
        }
    }
}
