//! An end of the secure tunnel as a state machine: handshakes, sessions, roaming, signs of
//! life. No clock, socket or thread: the [`Daemon`](super::Daemon) gives it datagrams and the time.
//!
//! A mobile calls its base; the base knows its mobiles by their keys and learns where they
//! are from the newest message that is genuine. What is forged, replayed or from strangers is
//! counted and answered with silence.

mod calls;
mod event;
mod remote;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Rng, Time};

use super::caller::Call;
use super::key::Identity;
use super::limiter::Limiter;
use super::session::{self, INDEX_MAX, Kind, NotOpened};
use super::sessions::In;
pub(super) use calls::TIMESTAMP_MAX;
pub use event::{Counters, Down, Event, Known, Outgoing};
use remote::Remote;

/// A mobile of which nothing was heard for so long is gone.
pub(super) const GONE_AFTER: Duration = Duration::from_secs(660);
/// The longest datagram that is looked at.
pub(super) const DATAGRAM_MAX: usize = 65_535;
/// A sealed message of nothing asks for, or is, a sign of life; one byte is a word; more is a
/// frame of the link protocol, which has no shorter ones.
const BYE: &[u8] = &[1];

/// One end. After every call that changes it take what [`poll_outgoing`](Party::poll_outgoing) and
/// [`poll_event`](Party::poll_event) have, then ask [`poll_timeout`](Party::poll_timeout).
pub struct Party {
    identity: Identity,
    role: Role,
    remotes: Vec<Remote>,
    /// Whose the indices of messages to this end are.
    by_index: BTreeMap<u32, usize>,
    rng: Rng,
    /// Nanoseconds since 1970 at [`Time::ZERO`].
    epoch: u64,
    out: VecDeque<Outgoing>,
    events: VecDeque<Event>,
    counters: Counters,
    plain: Vec<u8>,
}

enum Role {
    Base { limiter: Limiter },
    Mobile { call: Option<Box<Call>>, keepalive: Duration, stamped: u64 },
}

impl Party {
    /// A base that serves these mobiles. `wall`: nanoseconds since 1970 at [`Time::ZERO`].
    pub fn base(identity: Identity, mobiles: Vec<Known>, seed: u64, wall: u64, now: Time) -> Party {
        let ends = mobiles.into_iter().map(|known| (known, None)).collect();
        Party::new(identity, Role::Base { limiter: Limiter::new(now) }, ends, seed, wall, now)
    }

    /// A mobile of the base at `endpoint`; it calls as soon as its timers are asked.
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

    /// Where an end is, as far as is known.
    pub fn address(&self, peer: usize) -> Option<SocketAddr> {
        self.remotes.get(peer)?.address
    }

    /// When an end was last heard, if there is a session with it.
    pub fn heard(&self, peer: usize) -> Option<Time> {
        self.remotes.get(peer).filter(|r| r.is_up()).map(|r| r.heard)
    }

    /// What came that was not as it should be.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The next datagram to send.
    pub fn poll_outgoing(&mut self) -> Option<Outgoing> {
        self.out.pop_front()
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Seals a frame for an end; false if there is no session with it.
    pub fn send(&mut self, now: Time, peer: usize, frame: &[u8]) -> bool {
        let Some(r) = self.remotes.get_mut(peer) else { return false };
        let (Some(to), Some(bytes)) = (r.address, r.sessions.seal(frame)) else { return false };
        r.spoken = now;
        r.waiting.get_or_insert(now);
        self.out.push_back(Outgoing { to, bytes });
        true
    }

    /// Says good-bye to every end, and forgets it.
    pub fn leave(&mut self, now: Time) {
        for peer in 0..self.remotes.len() {
            self.send(now, peer, BYE);
            self.forget(peer);
        }
    }

    /// Takes a datagram.
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
            // Only the base echoes, or the two would never end.
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

    /// Acts on every timer that is due.
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

    /// A mobile's signs of life: in silence, and when the base has not been heard.
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
            // Its answer leads to a session that is no more.
            r.answered = None;
            r.life = self.rng.next_u64();
            if matches!(self.role, Role::Base { .. }) {
                r.address = None;
            }
            // A question that tells of the life before.
            if let Role::Mobile { call, .. } = &mut self.role {
                *call = None;
            }
            self.index_again(peer);
        }
    }

    /// Brings the index table in step with the sessions of one end.
    fn index_again(&mut self, peer: usize) {
        self.by_index.retain(|_, p| *p != peer);
        if let Some(r) = self.remotes.get(peer) {
            self.by_index.extend(r.sessions.indices().map(|i| (i, peer)));
        }
    }

    /// An index that no session of this end has.
    fn fresh_index(&mut self) -> u32 {
        loop {
            let index = self.rng.next_u32() & INDEX_MAX;
            if !self.by_index.contains_key(&index) {
                return index;
            }
        }
    }
}
