//! The state of one end of the tunnel, its inputs and its outputs.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Rng, Time};

use super::super::caller::Call;
use super::super::key::Identity;
use super::super::limiter::Limiter;
use super::super::session::{self, INDEX_MAX, Kind, NotOpened};
use super::super::sessions::In;
use super::event::{Counters, Down, Event, Known, Outgoing};
use super::remote::Remote;

/// Silence after which a mobile counts as down.
pub(in super::super) const GONE_AFTER: Duration = Duration::from_secs(660);
/// Longest datagram accepted.
pub(in super::super) const DATAGRAM_MAX: usize = 65_535;
/// The content of a goodbye. An empty message requests or is a keepalive, one byte is a control message, and longer
/// ones are frames of the link protocol.
const BYE: &[u8] = &[1];

/// One end of the tunnel. After every call that changes it, the caller drains [`poll_outgoing`](Party::poll_outgoing)
/// and [`poll_event`](Party::poll_event), then reads [`poll_timeout`](Party::poll_timeout).
pub struct Party {
    pub(super) identity: Identity,
    pub(super) role: Role,
    pub(super) remotes: Vec<Remote>,
    /// Peers by the session indices of this end.
    pub(super) by_index: BTreeMap<u32, usize>,
    pub(super) rng: Rng,
    /// Nanoseconds since 1970 at [`Time::ZERO`].
    pub(super) epoch: u64,
    pub(super) out: VecDeque<Outgoing>,
    pub(super) events: VecDeque<Event>,
    pub(super) counters: Counters,
    pub(super) plain: Vec<u8>,
}

pub(super) enum Role {
    Base { limiter: Limiter },
    Mobile { call: Option<Box<Call>>, keepalive: Duration, stamped: u64 },
}

impl Party {
    /// A base that serves these mobiles. `wall` is the time since 1970 at [`Time::ZERO`], in nanoseconds.
    pub fn base(identity: Identity, mobiles: Vec<Known>, seed: u64, wall: u64, now: Time) -> Party {
        let ends = mobiles.into_iter().map(|known| (known, None)).collect();
        Party::new(identity, Role::Base { limiter: Limiter::new(now) }, ends, seed, wall, now)
    }

    /// A mobile of the base at `endpoint`. It calls at the first timeout.
    pub fn mobile(
        identity: Identity,
        base: Known,
        endpoint: SocketAddr,
        keepalive: Duration,
        seed: u64,
        wall: u64,
        now: Time,
    ) -> Party {
        let ends = vec![(base, Some(endpoint))];
        Party::new(identity, Role::Mobile { call: None, keepalive, stamped: 0 }, ends, seed, wall, now)
    }

    fn new(
        identity: Identity,
        role: Role,
        ends: Vec<(Known, Option<SocketAddr>)>,
        seed: u64,
        epoch: u64,
        now: Time,
    ) -> Party {
        let mut rng = Rng::stream(seed, "tunnel");
        let remote = |(known, address)| Remote::new(known, address, rng.next_u64(), now);
        let remotes = ends.into_iter().map(remote).collect();
        Party {
            identity,
            role,
            remotes,
            by_index: BTreeMap::new(),
            rng,
            epoch,
            out: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
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
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The next datagram to send.
    pub fn poll_outgoing(&mut self) -> Option<Outgoing> {
        self.out.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Encrypts a frame for a peer; false without a session.
    pub fn send(&mut self, now: Time, peer: usize, frame: &[u8]) -> bool {
        let Some(r) = self.remotes.get_mut(peer) else { return false };
        let (Some(to), Some(bytes)) = (r.address, r.sessions.seal(frame)) else { return false };
        r.spoken = now;
        r.waiting.get_or_insert(now);
        self.out.push_back(Outgoing { to, bytes });
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
            Some((Kind::Data, index, rest)) => self.on_data(now, from, index, rest),
            Some((Kind::Initiation, index, rest)) => self.on_initiation(now, from, index, rest),
            Some((Kind::Response, index, rest)) => self.on_response(now, index, rest),
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
            Err(NotOpened::Replayed) => return self.counters.replayed += 1,
            Err(NotOpened::Forged) => return self.counters.forged += 1,
        };
        r.heard = now;
        r.waiting = None;
        let is_base = matches!(self.role, Role::Base { .. });
        if is_base && opened.newest && place != In::Previous && r.address != Some(from) {
            let known = r.address.replace(from).is_some();
            if known {
                self.events.push_back(Event::Moved { peer, to: from });
            }
        }
        if let In::New(change) = place {
            self.events.push_back(Event::of(change, peer));
            self.index_again(peer);
        }
        match self.plain.get(..opened.len).unwrap_or_default() {
            // Only the base echoes; otherwise the two would echo forever.
            [] if is_base => {
                self.send(now, peer, &[]);
            }
            [] => {}
            BYE if place != In::Previous => {
                self.forget(peer);
                self.events.push_back(Event::Down { peer, why: Down::Left });
            }
            [_] => {}
            frame => {
                let frame = Bytes::copy_from_slice(frame);
                self.events.push_back(Event::Frame { peer, frame });
            }
        }
        self.stop_calling_if_heard(now);
    }

    /// Handles every due timer.
    pub fn handle_timeout(&mut self, now: Time) {
        for peer in 0..self.remotes.len() {
            self.expire(now, peer);
        }
        if let Role::Mobile { keepalive, .. } = self.role {
            self.keep_alive(now, keepalive);
            self.call(now);
        }
    }

    /// When [`Party::handle_timeout`] is next due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let expiries = self.remotes.iter().filter_map(|r| {
            let gone = r.is_up().then(|| r.heard + GONE_AFTER);
            [gone, r.sessions.expiry()].into_iter().flatten().min()
        });
        let Role::Mobile { call, keepalive, .. } = &self.role else { return expiries.min() };
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
            self.events.push_back(Event::Down { peer, why: Down::Silent });
        }
    }

    /// Sends a mobile's keepalives: during silence, and when the base has not been heard.
    fn keep_alive(&mut self, now: Time, keepalive: Duration) {
        if self.remotes.first().is_some_and(|r| r.is_up() && r.probe_at(keepalive) <= now) {
            self.probe(now, 0);
        }
    }

    pub(super) fn probe(&mut self, now: Time, peer: usize) {
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
            r.life = self.rng.next_u64();
            if matches!(self.role, Role::Base { .. }) {
                r.address = None;
            }
            // The initiation carries the earlier epoch.
            if let Role::Mobile { call, .. } = &mut self.role {
                *call = None;
            }
            self.index_again(peer);
        }
    }

    /// Updates the index table for the sessions of one peer.
    pub(super) fn index_again(&mut self, peer: usize) {
        self.by_index.retain(|_, p| *p != peer);
        if let Some(r) = self.remotes.get(peer) {
            self.by_index.extend(r.sessions.indices().map(|i| (i, peer)));
        }
    }

    /// An index that no session of this end uses.
    pub(super) fn fresh_index(&mut self) -> u32 {
        loop {
            let index = self.rng.next_u32() & INDEX_MAX;
            if !self.by_index.contains_key(&index) {
                return index;
            }
        }
    }
}
