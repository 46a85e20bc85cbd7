//! The call table: every request from its submission to its one event.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Core, Peer, Rng, Time, Transmit};
use remora_wire::rpc::{CallHeader, OpaqueAuth, ReplyHeader};
use remora_wire::{Reader, Xdr, nfs3};

use crate::adaptive::Adaptive;
use crate::config::{Config, Transport};
use crate::pending::{Pending, Sent};
use crate::request::{Answer, CallId, Class, Expect, Failure, Request};
use crate::retry::RetryPolicy;
use crate::window::Window;

/// What READ's results have beside the data: RPC header, status, attributes, counts.
const READ_HEADER: u32 = 24 + 4 + 4 + 84 + 4 + 4 + 4;

/// What the client tells its user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A request has come to its end.
    Done {
        /// Which.
        id: CallId,
        /// The server's answer, or why there is none.
        result: Result<Answer, Failure>,
    },
}

/// Too many requests are waiting; submit again after an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("too many requests are waiting")]
pub struct Busy;

/// What the client has done so far. Counters never go down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Requests submitted.
    pub requests: u64,
    /// Messages sent, retransmissions included, probes not.
    pub sent: u64,
    /// Messages sent again.
    pub retransmissions: u64,
    /// Retransmissions whose original was answered after all.
    pub spurious: u64,
    /// NULL calls sent to see whether the link is back.
    pub probes: u64,
    /// Replies to nothing that was asked (duplicates mostly; DRC 89's badxid).
    pub bad_xid: u64,
    /// Messages that were no RPC reply.
    pub garbled: u64,
}

/// The NFS client core. See [`Core`] for the law it follows.
#[derive(Debug)]
pub struct Client {
    config: Config,
    cred: OpaqueAuth,
    server: Peer,
    /// False while a stream has to be made again.
    connected: bool,
    next_id: u64,
    next_xid: u32,
    next_seq: u64,
    flying: BTreeMap<u32, Pending>,
    flying_bulk: u32,
    /// Timeouts of the policies that have them.
    timers: BTreeSet<(Time, u32)>,
    waiting: VecDeque<Pending>,
    waiting_bulk: VecDeque<Pending>,
    resend: VecDeque<u32>,
    window: Window,
    adaptive: Adaptive,
    last_heard: Time,
    /// The latest time this core was told; what `poll_timeout` reckons from.
    now: Time,
    events: VecDeque<Event>,
    stats: Stats,
}

impl Client {
    /// A client of the server at `server`; `seed` draws the first xid.
    pub fn new(config: Config, server: Peer, seed: u64, now: Time) -> Client {
        Client {
            cred: OpaqueAuth::unix(&config.cred),
            server,
            connected: config.transport == Transport::Udp,
            next_id: 0,
            next_xid: Rng::stream(seed, "xid").next_u32(),
            next_seq: 0,
            flying: BTreeMap::new(),
            flying_bulk: 0,
            timers: BTreeSet::new(),
            waiting: VecDeque::new(),
            waiting_bulk: VecDeque::new(),
            resend: VecDeque::new(),
            window: Window::new(config.window),
            adaptive: Adaptive::new(now),
            last_heard: now,
            now,
            events: VecDeque::new(),
            stats: Stats::default(),
            config,
        }
    }

    /// Takes a request; its [`Event::Done`] will come.
    pub fn submit(&mut self, now: Time, request: Request) -> Result<CallId, Busy> {
        self.tick(now);
        if self.waiting.len() + self.waiting_bulk.len() >= self.config.waiting_max {
            return Err(Busy);
        }
        if self.is_idle() {
            // Silence counts from the first unanswered request.
            self.last_heard = now;
        }
        let id = CallId(self.next_id);
        self.next_id += 1;
        self.stats.requests += 1;
        let xid = self.take_xid();
        let class = request.class();
        let pending = Pending {
            id,
            xid,
            class,
            expect: Expect::from(&request),
            message: Bytes::from(request.encode(xid, &self.cred)),
            reply_data: if let Request::Nfs(nfs3::Call::Read(r)) = &request { r.count } else { 0 },
            submitted: now,
            sent: None,
        };
        if class.is_bulk() {
            self.waiting_bulk.push_back(pending)
        } else {
            self.waiting.push_back(pending)
        }
        Ok(id)
    }

    /// How many more requests for file data the window takes at this moment.
    pub fn room(&self) -> usize {
        (self.window.size() as usize).saturating_sub(self.flying_bulk as usize + self.waiting_bulk.len())
    }

    /// How many bytes a READ should ask for at this moment, and no more than `max`.
    pub fn read_block(&self, max: u32) -> u32 {
        self.block(READ_HEADER, max)
    }

    /// How many bytes a WRITE to `fh` should carry at this moment, and no more than `max`.
    pub fn write_block(&self, fh: &nfs3::Fh, max: u32) -> u32 {
        let cred = 8 + self.cred.body.len() as u32;
        let handle = 4 + (fh.0.len() as u32).next_multiple_of(4);
        self.block(24 + cred + 8 + handle + 8 + 4 + 4 + 4, max)
    }

    fn block(&self, header: u32, max: u32) -> u32 {
        let link = self.adaptive.link(self.now);
        self.config.block.bytes(self.config.transport, header, link).min(max).max(1)
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The window: how many requests for file data may be outstanding.
    pub fn window(&self) -> u32 {
        self.window.size()
    }

    /// The smoothed round trip of requests for file data, if any was measured.
    pub fn round_trip(&self) -> Option<Duration> {
        self.adaptive.round_trip(Class::Read).max(self.adaptive.round_trip(Class::Write))
    }

    /// How long the server has been silent while requests were unanswered.
    pub fn silence(&self, now: Time) -> Duration {
        if self.is_idle() { Duration::ZERO } else { now.since(self.last_heard) }
    }

    /// Whether nothing is unanswered.
    pub fn is_idle(&self) -> bool {
        self.flying.is_empty() && self.waiting.is_empty() && self.waiting_bulk.is_empty()
    }

    /// The stream stands: everything unanswered goes out again, with the xids it had.
    pub fn connected(&mut self, now: Time, server: Peer) {
        self.tick(now);
        self.server = server;
        self.connected = true;
        let mut unanswered: Vec<(u64, u32)> =
            self.flying.values().filter_map(|p| p.sent.map(|s| (s.seq, p.xid))).collect();
        unanswered.sort_unstable();
        self.resend.clear();
        for (_, xid) in unanswered {
            self.queue_resend(xid);
        }
    }

    /// The stream broke: nothing is sent until [`connected`](Client::connected).
    pub fn disconnected(&mut self, now: Time) {
        self.tick(now);
        self.connected = false;
    }

    fn tick(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    fn take_xid(&mut self) -> u32 {
        let xid = self.next_xid;
        self.next_xid = xid.wrapping_add(1);
        xid
    }

    fn take_seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq
    }

    fn is_adaptive(&self) -> bool {
        self.config.transport == Transport::Udp && self.config.retry == RetryPolicy::Adaptive
    }

    fn send(&mut self, now: Time, mut call: Pending) -> Transmit {
        let seq = self.take_seq();
        let sent = match call.sent {
            None => Sent { at: now, seq, retries: 0, strikes: 0, resending: false, alone: self.flying_bulk == 0 },
            Some(s) => Sent {
                at: now,
                seq,
                retries: s.retries + 1,
                strikes: self.adaptive.strikes(s),
                resending: false,
                alone: false,
            },
        };
        self.stats.sent += 1;
        if call.sent.is_some() {
            self.stats.retransmissions += 1;
        } else if call.class.is_bulk() {
            self.flying_bulk += 1;
        }
        self.set_timer(now, call.xid, sent.retries);
        call.sent = Some(sent);
        let transmit = Transmit { to: self.server, payload: call.message.clone() };
        self.flying.insert(call.xid, call);
        transmit
    }

    fn set_timer(&mut self, now: Time, xid: u32, retries: u32) {
        if self.config.transport == Transport::Tcp {
            return;
        }
        if let Some(timeout) = self.config.retry.timeout(retries) {
            self.timers.insert((now + timeout, xid));
        }
    }

    fn queue_resend(&mut self, xid: u32) {
        if let Some(sent) = self.flying.get_mut(&xid).and_then(|c| c.sent.as_mut()) {
            sent.resending = true;
            self.resend.push_back(xid);
        }
    }

    /// Sends again what the evidence says is lost.
    fn find_losses(&mut self, now: Time) {
        if !self.is_adaptive() {
            return;
        }
        let mut lost: Vec<(u64, u32)> = self
            .flying_sent()
            .filter(|(call, sent)| self.adaptive.lost_at(call.class, *sent).is_some_and(|t| t <= now))
            .map(|(call, sent)| (sent.seq, call.xid))
            .collect();
        if lost.is_empty() {
            return;
        }
        lost.sort_unstable();
        self.adaptive.on_losses(now);
        self.window.on_losses(lost.len() as u32);
        for (_, xid) in lost {
            self.queue_resend(xid);
        }
    }

    fn flying_sent(&self) -> impl Iterator<Item = (&Pending, Sent)> {
        self.flying.values().filter_map(|c| c.sent.map(|s| (c, s)))
    }

    fn probe_due_at(&self) -> Option<Time> {
        if !self.is_adaptive() || !self.resend.is_empty() {
            return None;
        }
        self.adaptive.probe_at(self.flying_sent())
    }

    fn probe(&mut self, now: Time) -> Transmit {
        let (xid, seq) = (self.take_xid(), self.take_seq());
        self.adaptive.on_probe_sent(now, xid, seq);
        self.stats.probes += 1;
        let mut message = Vec::with_capacity(40);
        let none = OpaqueAuth::none();
        let (prog, vers, proc) = self.probe_numbers();
        CallHeader { xid, prog, vers, proc, cred: none.clone(), verf: none }.encode(&mut message);
        Transmit { to: self.server, payload: Bytes::from(message) }
    }

    /// NULL of the program that is being waited for.
    fn probe_numbers(&self) -> (u32, u32, u32) {
        let (prog, vers) = match self.flying.values().next().map(|c| c.expect) {
            Some(Expect::Mount(_)) => (remora_wire::mount::PROGRAM, remora_wire::mount::VERSION),
            Some(Expect::Port) => (remora_wire::portmap::PROGRAM, remora_wire::portmap::VERSION),
            Some(Expect::Nfs(_)) | None => (nfs3::PROGRAM, nfs3::VERSION),
        };
        (prog, vers, 0)
    }

    fn give_up_at(&self) -> Option<Time> {
        let patience = self.config.give_up?;
        let queues = [&self.waiting, &self.waiting_bulk];
        let waiting = queues.into_iter().filter_map(|q| q.front()).map(|c| c.submitted);
        let oldest = self.flying.values().map(|c| c.submitted).chain(waiting).min()?;
        Some(oldest.max(self.last_heard) + patience)
    }

    fn give_up(&mut self, now: Time) {
        if self.give_up_at().is_none_or(|t| t > now) {
            return;
        }
        let flying = std::mem::take(&mut self.flying).into_values();
        let all = flying.chain(self.waiting.drain(..)).chain(self.waiting_bulk.drain(..));
        self.events.extend(all.map(|c| Event::Done { id: c.id, result: Err(Failure::TimedOut) }));
        self.flying_bulk = 0;
        self.timers.clear();
        self.resend.clear();
    }

    fn on_reply(&mut self, now: Time, call: Pending, result: Result<Answer, Failure>) {
        if let Some(sent) = call.sent {
            let full = !self.waiting_bulk.is_empty() || self.flying_bulk >= self.window.size();
            let seen = self.adaptive.on_reply(now, &call, sent);
            self.stats.spurious += u64::from(seen.spurious);
            if call.class.is_bulk() {
                self.flying_bulk = self.flying_bulk.saturating_sub(1);
                self.window.on_reply(seen.rtt, seen.shortest, full);
            }
        }
        self.events.push_back(Event::Done { id: call.id, result });
    }

    fn next_bulk(&mut self) -> Option<Pending> {
        if self.flying_bulk >= self.window.size() {
            return None;
        }
        self.waiting_bulk.pop_front()
    }
}

impl Core for Client {
    type Event = Event;

    fn handle_input(&mut self, now: Time, _from: Peer, bytes: Bytes) {
        self.tick(now);
        let mut r = Reader::new(bytes);
        let Ok(header) = ReplyHeader::decode(&mut r) else {
            self.stats.garbled += 1;
            return;
        };
        if let Some(call) = self.flying.remove(&header.xid) {
            self.last_heard = now;
            let result = call.expect.decode(header.outcome, &mut r);
            self.on_reply(now, call, result);
        } else if self.adaptive.on_probe_reply(now, header.xid) {
            self.last_heard = now;
        } else {
            self.stats.bad_xid += 1;
        }
        self.find_losses(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.tick(now);
        while let Some(&(at, xid)) = self.timers.first() {
            if at > now {
                break;
            }
            self.timers.pop_first();
            self.queue_resend(xid);
        }
        self.find_losses(now);
        self.give_up(now);
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        self.tick(now);
        if !self.connected {
            return None;
        }
        while let Some(xid) = self.resend.pop_front() {
            if let Some(call) = self.flying.remove(&xid) {
                return Some(self.send(now, call));
            }
        }
        if let Some(call) = self.waiting.pop_front().or_else(|| self.next_bulk()) {
            return Some(self.send(now, call));
        }
        if self.probe_due_at().is_some_and(|t| t <= now) {
            return Some(self.probe(now));
        }
        None
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Time> {
        if self.connected && !(self.resend.is_empty() && self.waiting.is_empty()) {
            return Some(self.now);
        }
        let timer = self.timers.first().map(|t| t.0);
        let lost = self
            .is_adaptive()
            .then(|| self.flying_sent().filter_map(|(c, s)| self.adaptive.lost_at(c.class, s)).min())
            .flatten();
        [timer, lost, self.probe_due_at(), self.give_up_at()].into_iter().flatten().min()
    }
}
