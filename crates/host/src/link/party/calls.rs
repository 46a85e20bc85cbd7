//! The handshake between two ends: a mobile initiates; the base answers initiations with a newer timestamp than all
//! before.

use std::net::SocketAddr;

use remora_base::Time;

use super::super::caller::{Call, Wants};
use super::super::handshake::{Answer, Hello, INITIATION_LEN, Initiation, Question, RESPONSE_LEN};
use super::super::session::{self, INDEX_MAX, Kind, Session};
use super::event::{Event, Outgoing};
use super::state::{Party, Role};

/// Largest timestamp accepted (the year 2262). After a larger one, no mobile with that key could send a newer one,
/// even with its clock corrected.
pub(in super::super) const TIMESTAMP_MAX: u64 = u64::MAX / 2;

impl Party {
    /// Handles a mobile's initiation: the base answers one that is newer than all before.
    pub(super) fn on_initiation(&mut self, now: Time, from: SocketAddr, index: u32, rest: &[u8]) {
        let known = self.remotes.iter().any(|r| r.address == Some(from));
        let Role::Base { limiter } = &mut self.role else { return self.counters.refused += 1 };
        // Cheap checks first: junk must not use up the rate limit of expensive ones.
        let Some(question) = Question::check(&self.identity.public, rest) else {
            self.counters.refused += 1;
            if rest.len() == INITIATION_LEN {
                self.events.push_back(Event::OtherBase { from });
            }
            return;
        };
        if !limiter.admit(now, from, known) {
            return self.counters.limited += 1;
        }
        let again = self.remotes.iter().find_map(|r| r.answered.as_ref().filter(|(question, _)| question[..] == *rest));
        if let Some((_, answer)) = again {
            return self.out.push_back(Outgoing { to: from, bytes: answer.clone() });
        }
        let hello = Hello::read(&self.identity, index, question).filter(|hello| hello.timestamp <= TIMESTAMP_MAX);
        let Some(hello) = hello else { return self.counters.refused += 1 };
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

    /// Handles the base's response to the outstanding call.
    pub(super) fn on_response(&mut self, now: Time, index: u32, message: &[u8]) {
        let Role::Mobile { call, stamped, .. } = &mut self.role else { return self.counters.refused += 1 };
        let Some(mut under_way) = call.take_if(|c| c.awaits(index) && message.len() == RESPONSE_LEN) else {
            return self.counters.refused += 1;
        };
        match under_way.question.read(message) {
            None => {
                // Only the holder of the called key, or an eavesdropper, knows where to respond. So the keys match and
                // the preshared keys differ.
                if under_way.is_news_of_secret() {
                    self.events.push_back(Event::OtherSecret);
                }
                *call = Some(under_way);
                self.counters.refused += 1;
            }
            Some(Answer::Stale { newest }) => {
                *stamped = (*stamped).max(newest);
                if under_way.is_told_again() {
                    // Repeated rejections must not cause endless calls.
                    *call = Some(under_way);
                } else {
                    self.ask(now, Some(under_way));
                }
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
        r.was_up = true;
        r.waiting = None;
        self.index_again(0);
        self.events.push_back(Event::of(change, 0));
        // The base uses the new keys after the first message under them.
        self.probe(now, 0);
    }

    pub(super) fn call(&mut self, now: Time) {
        let Some((call_at, was_up)) = self.remotes.first().map(|r| (r.call_at(), r.was_up)) else { return };
        let Role::Mobile { call, .. } = &mut self.role else { return };
        let Some(under_way) = call else {
            if call_at <= now {
                self.ask(now, None);
            }
            return;
        };
        if under_way.is_news(now) {
            self.events.push_back(Event::NoAnswer { was_up });
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

    /// Sends a new initiation to the base.
    fn ask(&mut self, now: Time, earlier: Option<Box<Call>>) {
        let index = self.fresh_index();
        let wall = self.epoch.saturating_add(now.as_nanos());
        let (Role::Mobile { call, stamped, .. }, Some(r)) = (&mut self.role, self.remotes.first_mut()) else { return };
        *stamped = wall.max(stamped.saturating_add(1));
        let (key, secret) = (&r.known.key, r.known.secret.as_ref());
        let Some(question) = Initiation::new(&self.identity, key, secret, *stamped, r.life, index) else { return };
        *call = Some(Box::new(Call::new(now, question, index, earlier.as_deref(), &mut self.rng)));
        self.put_question();
    }

    fn put_question(&mut self) {
        let (Role::Mobile { call: Some(call), .. }, Some(r)) = (&self.role, self.remotes.first()) else { return };
        let Some(to) = r.address else { return };
        let bytes = [&session::head(Kind::Initiation, call.index)[..], &call.question.message].concat();
        self.out.push_back(Outgoing { to, bytes });
    }

    /// Drops a call made because of silence when the silence ends.
    pub(super) fn stop_calling_if_heard(&mut self, now: Time) {
        let needed = self.remotes.first().is_none_or(|r| r.keys_at() <= now);
        if let Role::Mobile { call, .. } = &mut self.role
            && !needed
        {
            *call = None;
        }
    }
}
