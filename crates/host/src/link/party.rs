//! An end of the secure tunnel as a state machine: handshakes, sessions, roaming, signs of
//! life. No clock, socket or thread: the [`Daemon`](super::Daemon) gives it datagrams and the time.
//!
//! A mobile calls its base; the base knows its mobiles by their keys and learns where they
//! are from the newest message that is genuine. What is forged, replayed or from strangers is
//! counted and answered with silence.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Rng, Time};

use super::caller::{Call, Wants};
use super::handshake::{Answer, Hello, INITIATION_LEN, Initiation, Question, RESPONSE_LEN};
use super::key::{Identity, PublicKey, SharedSecret};
use super::limiter::Limiter;
use super::session::{self, INDEX_MAX, Kind, NotOpened, Session};
use super::sessions::{Change, In, Sessions};

/// New keys are asked for when the present ones are so old.
const REKEY_AFTER: Duration = Duration::from_secs(3600);
/// An end that speaks and hears nothing asks for a sign of life after this.
const PROBE_AFTER: Duration = Duration::from_secs(1);
/// A mobile that hears nothing for so long, though it asked, calls the base anew.
const CALL_AFTER: Duration = Duration::from_millis(2500);
/// A mobile of which nothing was heard for so long is gone.
pub(super) const GONE_AFTER: Duration = Duration::from_secs(180);
/// The longest datagram that is looked at.
pub(super) const DATAGRAM_MAX: usize = 65_535;
/// A sealed message of nothing asks for, or is, a sign of life; one byte is a word; more is a
/// frame of the link protocol, which has no shorter ones.
const BYE: &[u8] = &[1];

/// What an end knows of another before they meet.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its key.
    pub key: PublicKey,
    /// A secret shared with it.
    pub secret: Option<SharedSecret>,
}

/// A datagram to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// Where to.
    pub to: SocketAddr,
    /// The whole datagram.
    pub bytes: Vec<u8>,
}

/// What happened. Other ends are numbered in the order they were given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Frames can be sent from now on.
    Up {
        /// To whom.
        peer: usize,
    },
    /// Keys were renewed.
    Renewed {
        /// With whom.
        peer: usize,
    },
    /// The same, with an end that has lost all it knew and begun anew.
    Restarted {
        /// With whom.
        peer: usize,
    },
    /// Frames can no longer be sent.
    Down {
        /// To whom.
        peer: usize,
        /// For what reason.
        why: Down,
    },
    /// It has another address now.
    Moved {
        /// Who.
        peer: usize,
        /// Where it is.
        to: SocketAddr,
    },
    /// It sent a frame.
    Frame {
        /// Who.
        peer: usize,
        /// What: genuine, and not seen before.
        frame: Bytes,
    },
    /// The base does not answer.
    NoAnswer,
    /// Somebody whose key is not known called.
    Stranger {
        /// Proven to be theirs.
        key: PublicKey,
        /// Where the call came from, which is not.
        from: SocketAddr,
    },
}

impl Event {
    fn of(change: Change, peer: usize) -> Event {
        match change {
            Change::Up => Event::Up { peer },
            Change::Renewed => Event::Renewed { peer },
            Change::Restarted => Event::Restarted { peer },
        }
    }
}

/// Why an end is down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Down {
    /// It said good-bye.
    Left,
    /// Nothing was heard of it.
    Silent,
}

/// Datagrams that were not what they should be.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Not a message, of no session, or with a broken seal.
    pub forged: u64,
    /// Seen before.
    pub replayed: u64,
    /// Handshakes for another base, or damaged.
    pub refused: u64,
    /// Handshakes of keys that are not known.
    pub strangers: u64,
    /// Handshakes beyond what the base looks at.
    pub limited: u64,
}

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

struct Remote {
    known: Known,
    /// The number of our life, as it is told: another one after each time it was forgotten.
    life: u64,
    address: Option<SocketAddr>,
    sessions: Sessions,
    /// When it was last heard.
    heard: Time,
    /// When it was last spoken to.
    spoken: Time,
    /// Since when it was spoken to without being heard.
    waiting: Option<Time>,
    /// When it was last asked for a sign of life.
    probed: Time,
    /// The newest timestamp in a handshake of its.
    newest: u64,
    /// Its last question that was welcome, and the datagram that answers it.
    answered: Option<([u8; INITIATION_LEN], Vec<u8>)>,
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

    /// A mobile's question: the base answers one that is newer than all before.
    fn on_initiation(&mut self, now: Time, from: SocketAddr, index: u32, rest: &[u8]) {
        let known = self.remotes.iter().any(|r| r.address == Some(from));
        let Role::Base { limiter } = &mut self.role else { return self.counters.refused += 1 };
        // First what costs little: junk must not use up the bound on what costs much.
        let Some(question) = Question::check(&self.identity.public, rest) else { return self.counters.refused += 1 };
        if !limiter.admit(now, from, known) {
            return self.counters.limited += 1;
        }
        let again = self.remotes.iter().find_map(|r| r.answered.as_ref().filter(|(question, _)| question[..] == *rest));
        if let Some((_, answer)) = again {
            return self.out.push_back(Outgoing { to: from, bytes: answer.clone() });
        }
        let Some(hello) = Hello::read(&self.identity, question) else { return self.counters.refused += 1 };
        let Some(peer) = self.remotes.iter().position(|r| r.known.key == hello.key) else {
            self.counters.strangers += 1;
            return self.events.push_back(Event::Stranger { key: hello.key, from });
        };
        self.answer(now, peer, hello, index, rest, from);
    }

    fn answer(&mut self, now: Time, peer: usize, hello: Hello, theirs: u32, question: &[u8], to: SocketAddr) {
        let ours = self.fresh_index();
        let Some(r) = self.remotes.get_mut(peer) else { return };
        let stale = hello.timestamp <= r.newest;
        let timestamp = hello.timestamp;
        let welcome = Answer::Welcome { index: ours, life: r.life };
        let answer = if stale { Answer::Stale { newest: r.newest } } else { welcome };
        let life = hello.life;
        let Some((message, keys)) = hello.answer(r.known.secret.as_ref(), answer) else { return };
        let bytes = [&session::head(Kind::Response, theirs)[..], &message].concat();
        if !stale {
            r.newest = timestamp;
            r.answered = question.try_into().ok().map(|q| (q, bytes.clone()));
            r.sessions.prepare(Session::new(keys, ours, theirs, life, now));
            self.index_again(peer);
        }
        self.out.push_back(Outgoing { to, bytes });
    }

    /// The base's answer to the call under way.
    fn on_response(&mut self, now: Time, index: u32, message: &[u8]) {
        let Role::Mobile { call, stamped, .. } = &mut self.role else { return self.counters.refused += 1 };
        let Some(mut under_way) = call.take_if(|c| c.index == index && message.len() == RESPONSE_LEN) else {
            return self.counters.refused += 1;
        };
        match under_way.question.read(message) {
            None => {
                *call = Some(under_way);
                self.counters.refused += 1;
            }
            Some(Answer::Stale { newest }) => {
                *stamped = (*stamped).max(newest);
                self.ask(now, Some(under_way));
            }
            Some(Answer::Welcome { index: theirs, life }) => {
                if theirs > INDEX_MAX {
                    return;
                }
                if let Some(keys) = under_way.question.finish() {
                    self.welcomed(now, Session::new(keys, index, theirs, life, now));
                }
            }
        }
    }

    fn welcomed(&mut self, now: Time, session: Session) {
        let Some(r) = self.remotes.first_mut() else { return };
        let change = r.sessions.switch(now, session);
        r.heard = now;
        r.waiting = None;
        self.index_again(0);
        self.events.push_back(Event::of(change, 0));
        // The base uses the new keys when it hears them used.
        self.probe(now, 0);
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

    fn call(&mut self, now: Time) {
        let Some(call_at) = self.remotes.first().map(Remote::call_at) else { return };
        let Role::Mobile { call, .. } = &mut self.role else { return };
        let Some(under_way) = call else {
            if call_at <= now {
                self.ask(now, None);
            }
            return;
        };
        if under_way.is_news(now) {
            self.events.push_back(Event::NoAnswer);
        }
        match under_way.wants(now, &mut self.rng) {
            Wants::Patience => {}
            Wants::Again => self.put_question(),
            Wants::Anew => {
                let earlier = call.take();
                self.ask(now, earlier);
            }
        }
    }

    /// Puts a new question to the base.
    fn ask(&mut self, now: Time, earlier: Option<Box<Call>>) {
        let index = self.fresh_index();
        let wall = self.epoch.saturating_add(now.as_nanos());
        let (Role::Mobile { call, stamped, .. }, Some(r)) = (&mut self.role, self.remotes.first_mut()) else { return };
        *stamped = wall.max(stamped.saturating_add(1));
        let (key, secret) = (&r.known.key, r.known.secret.as_ref());
        let Some(question) = Initiation::new(&self.identity, key, secret, *stamped, r.life) else { return };
        *call = Some(Box::new(Call::new(now, question, index, earlier.as_deref(), &mut self.rng)));
        self.put_question();
    }

    fn put_question(&mut self) {
        let (Role::Mobile { call: Some(call), .. }, Some(r)) = (&self.role, self.remotes.first()) else { return };
        let Some(to) = r.address else { return };
        let bytes = [&session::head(Kind::Initiation, call.index)[..], &call.question.message].concat();
        self.out.push_back(Outgoing { to, bytes });
    }

    /// A call that was only made because of silence is dropped when the silence ends.
    fn stop_calling_if_heard(&mut self, now: Time) {
        let needed = self.remotes.first().is_none_or(|r| r.keys_at() <= now);
        if let Role::Mobile { call, .. } = &mut self.role
            && !needed
        {
            *call = None;
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

impl Remote {
    fn new(known: Known, address: Option<SocketAddr>, life: u64, now: Time) -> Remote {
        let sessions = Sessions::default();
        let (waiting, newest, answered) = (None, 0, None);
        Remote { known, life, address, sessions, heard: now, spoken: now, waiting, probed: now, newest, answered }
    }

    fn is_up(&self) -> bool {
        self.sessions.current().is_some()
    }

    /// From when on new keys are needed, whatever is heard.
    fn keys_at(&self) -> Time {
        self.sessions.current().filter(|s| !s.is_worn()).map_or(Time::ZERO, |s| s.born + REKEY_AFTER)
    }

    /// When a mobile calls, as things are.
    fn call_at(&self) -> Time {
        self.waiting.map_or(self.keys_at(), |since| self.keys_at().min(since + CALL_AFTER))
    }

    /// When a mobile asks for a sign of life, as things are.
    fn probe_at(&self, keepalive: Duration) -> Time {
        let idle = self.spoken + keepalive;
        self.waiting.map_or(idle, |since| idle.min((since + PROBE_AFTER).max(self.probed + PROBE_AFTER)))
    }
}
