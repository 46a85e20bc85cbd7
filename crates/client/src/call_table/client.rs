//! The call table: every request from its submission to its one event.
//!
//! The table and what people ask of it are here; [`transmission`](super::transmission) sends,
//! retransmits and probes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Peer, Rng, Time};
use remora_wire::nfs3;
use remora_wire::rpc::OpaqueAuth;

use super::liveness::{ConnectionState, Hold, LastContact};
use super::queues::{CallQueues, RecentXids, Retransmitted};
use crate::call::PendingCall;
use crate::config::Config;
use crate::congestion::pacer::Pacer;
use crate::congestion::window::{InFlight, OBJECTS_MAX, REQUESTS_MAX, Window};
use crate::loss::detector::LossDetector;
use crate::request::{Answer, CallClass, CallId, Failure, ReplyKind, Request};
use crate::transport::Transport;
use crate::transport::block_size::{BlockSize, PathView, fragments};
use crate::transport::pmtu_blackhole::{DATAGRAM_SIZES, PAIR, PmtuBlackhole, REPLY_HEADER};
use crate::transport::reassembly_budget::ReassemblyBudget;

/// What READ's results have beside the data: RPC header, status, attributes, counts.
const READ_HEADER: u32 = 24 + 4 + 4 + 84 + 4 + 4 + 4;
/// The most READs and WRITEs of a frame or less that pass the window at a time.
const SMALL_MAX: u32 = 8;
/// The round trip from which on waiting for a COMMIT costs more than a few synchronous writes.
const TAIL_TRIP: Duration = Duration::from_millis(50);
/// So many cost less than waiting for anything but a server next door.
const TAIL_FEW: u32 = 4;
/// Below this round trip one more is no matter.
const NEAR_TRIP: Duration = Duration::from_millis(5);

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

/// The NFS client core. See [`Core`](remora_base::Core) for the law it follows.
#[derive(Debug)]
pub struct Client {
    pub(super) config: Config,
    pub(super) cred: OpaqueAuth,
    pub(super) server: Peer,
    pub(super) stream: ConnectionState,
    /// Nothing is sent until then; see [`handoff`](super::handoff).
    pub(super) held: Option<Hold>,
    pub(super) next_id: u64,
    pub(super) next_xid: u32,
    pub(super) next_seq: u64,
    /// Transmissions of file data.
    pub(super) bulk_sent: u64,
    pub(super) flying: BTreeMap<u32, PendingCall>,
    /// Of `flying`, and of `waiting`, those that the window is for.
    pub(super) flight: InFlight,
    pub(super) queued: InFlight,
    /// Timeouts of the policies that have them.
    pub(super) timers: BTreeSet<(Time, u32)>,
    pub(super) waiting: CallQueues<PendingCall>,
    pub(super) resend: CallQueues<u32>,
    pub(super) window: Window,
    pub(super) pacer: Pacer,
    pub(super) detector: LossDetector,
    pub(super) fragments: PmtuBlackhole,
    pub(super) remains: ReassemblyBudget,
    /// Those that were answered after they had been sent again: a second answer shows that it was
    /// for nothing (as DSACK does, RFC 3708).
    pub(super) answered_again: RecentXids<Retransmitted>,
    /// Those that failed because they were too long for the path, if they were.
    pub(super) failed_long: RecentXids<()>,
    pub(super) signs: LastContact,
    /// The latest time this core was told; what `poll_timeout` reckons from.
    pub(super) now: Time,
    pub(super) events: VecDeque<Event>,
    pub(super) stats: Stats,
}

/// Whether people wait for it while file data moves; a COMMIT is part of the moving.
fn is_awaited(request: &Request, class: CallClass) -> bool {
    !class.is_bulk() && !matches!(request, Request::Nfs(nfs3::Call::Commit(_)))
}

impl Client {
    /// A client of the server at `server`; `seed` draws the first xid.
    pub fn new(config: Config, server: Peer, seed: u64, now: Time) -> Client {
        Client {
            cred: OpaqueAuth::unix(&config.cred),
            server,
            stream: ConnectionState::new(now, config.transport == Transport::Udp),
            held: None,
            next_id: 0,
            next_xid: Rng::stream(seed, "xid").next_u32(),
            next_seq: 0,
            bulk_sent: 0,
            flying: BTreeMap::new(),
            flight: InFlight::default(),
            queued: InFlight::default(),
            timers: BTreeSet::new(),
            waiting: CallQueues::new(),
            resend: CallQueues::new(),
            window: Window::new(config.window, if config.transport == Transport::Atp { OBJECTS_MAX } else { u64::MAX }),
            pacer: Pacer::default(),
            detector: LossDetector::new(now, &config),
            fragments: PmtuBlackhole::default(),
            remains: ReassemblyBudget::default(),
            answered_again: RecentXids::new(),
            failed_long: RecentXids::new(),
            signs: LastContact::new(now),
            now,
            events: VecDeque::new(),
            stats: Stats::default(),
            config,
        }
    }

    /// Takes a request; its [`Event::Done`] will come.
    ///
    /// READs and WRITEs of more than a frame wait for the window. What is smaller than that,
    /// and than half of the present block, is something that people wait for, and goes first
    /// with everything else; but only a few at a time, or else it would be bulk in disguise.
    pub fn submit(&mut self, now: Time, request: Request) -> Result<CallId, Busy> {
        self.tick(now);
        if self.waiting.len() >= self.config.waiting_max {
            return Err(Busy);
        }
        if self.is_idle() {
            // Silence counts from the first unanswered request.
            self.signs = LastContact::new(now);
        }
        let id = CallId(self.next_id);
        self.next_id += 1;
        self.stats.requests += 1;
        let xid = self.take_xid();
        let class = self.class_of(&request);
        let is_shared = self.flight.requests > 0 || self.queued.requests > 0;
        if is_shared && is_awaited(&request, class) {
            let before = self.message_bytes();
            self.detector.on_foreground(now);
            self.window.on_shorter(before, self.message_bytes());
        }
        let pending = PendingCall {
            id,
            xid,
            class,
            expect: ReplyKind::from(&request),
            message: Bytes::from(request.encode(xid, &self.cred)),
            reply_data: if let Request::Nfs(nfs3::Call::Read(r)) = &request { r.count } else { 0 },
            reply_max: request.reply_max(),
            syncs: request.syncs(),
            submitted: now,
            sent: None,
        };
        if class.is_bulk() {
            self.queued.add(pending.bytes());
        }
        self.waiting.push(class, pending);
        Ok(id)
    }

    pub(super) fn class_of(&self, request: &Request) -> CallClass {
        let class = request.class();
        if !class.is_bulk() {
            return class;
        }
        let bytes = request.data();
        let is_small = fragments(bytes.saturating_add(READ_HEADER)) == 1 && bytes < self.read_block(u32::MAX) / 2;
        let in_table = self.flying.values().chain(&self.waiting.foreground);
        if is_small && in_table.filter(|c| c.moves_data() && !c.class.is_bulk()).count() < SMALL_MAX as usize {
            class.small()
        } else {
            class
        }
    }

    /// How many more requests for file data the window takes at this moment.
    pub fn room(&self) -> usize {
        let taken = InFlight {
            requests: self.flight.requests.saturating_add(self.queued.requests),
            bytes: self.flight.bytes.saturating_add(self.queued.bytes),
        };
        self.window.room(taken, self.message_bytes()) as usize
    }

    /// How many bytes a READ should ask for at this moment, and no more than `max`.
    pub fn read_block(&self, max: u32) -> u32 {
        self.block(READ_HEADER, max)
    }

    /// The same for one whose reply had better be a single packet, whatever is thought of the link. A length that people
    /// chose is kept.
    pub fn read_packet(&self, max: u32) -> u32 {
        self.packet(READ_HEADER, max)
    }

    /// How many bytes a WRITE to `fh` should carry at this moment, and no more than `max`.
    pub fn write_block(&self, fh: &nfs3::Fh, max: u32) -> u32 {
        self.block(self.write_header(fh), max)
    }

    /// The same for one that had better be a single packet, whatever is thought of the link. A length that people
    /// chose is kept.
    pub fn write_packet(&self, fh: &nfs3::Fh, max: u32) -> u32 {
        self.packet(self.write_header(fh), max)
    }

    pub(super) fn write_header(&self, fh: &nfs3::Fh) -> u32 {
        let cred = 8 + self.cred.body.len() as u32;
        let handle = 4 + (fh.0.len() as u32).next_multiple_of(4);
        24 + cred + 8 + handle + 8 + 4 + 4 + 4
    }

    pub(super) fn packet(&self, header: u32, max: u32) -> u32 {
        let most = match self.config.block {
            BlockSize::Fixed(_) => max,
            BlockSize::FromLink => max.min(self.link().frame(header)),
        };
        self.block(header, most)
    }

    pub(super) fn link(&self) -> PathView {
        self.detector.view(self.now, self.config.path_mtu)
    }

    pub(super) fn block(&self, header: u32, max: u32) -> u32 {
        let link = self.link();
        let most = self.longest().map_or(u32::MAX, |longest| {
            let data = longest.saturating_sub(header).max(4) & !3;
            if longest == PAIR { data } else { data.min(link.frame(header)) }
        });
        self.config.block.bytes(self.config.transport, header, link).min(most).min(max).max(1)
    }

    /// What a block's request and reply come to, about.
    pub(super) fn message_bytes(&self) -> u32 {
        self.read_block(u32::MAX).saturating_add(READ_HEADER)
    }

    /// How many bytes at the end of a file are better written synchronously than waited for
    /// with a COMMIT of their own ([`Upload::sync_tail`](crate::Upload::sync_tail)): what is on
    /// its way at a time where round trips are long, or where that is little, else none.
    pub fn sync_tail(&self) -> u64 {
        let is_little = !self.is_near() && self.window() <= TAIL_FEW;
        if self.is_far() || is_little { u64::from(self.window()) * u64::from(self.read_block(u32::MAX)) } else { 0 }
    }

    /// Whether a round trip costs more than a few synchronous writes: something small takes 50 ms at least, there
    /// and back.
    pub fn is_far(&self) -> bool {
        self.detector.path().min_rtt().is_some_and(|trip| trip >= TAIL_TRIP)
    }

    /// Whether a round trip more costs next to nothing: something small takes less than 5 ms, there and back.
    pub fn is_near(&self) -> bool {
        self.small_trip().is_none_or(|trip| trip < NEAR_TRIP)
    }

    /// The shortest round trip of something small, if there was one.
    pub fn small_trip(&self) -> Option<Duration> {
        self.detector.path().min_rtt()
    }

    /// From now on requests are given up as [`Config::give_up`] says with this value.
    pub fn set_give_up(&mut self, patience: Option<Duration>) {
        self.config.give_up = patience;
    }

    /// What [`Config::give_up`] says now.
    pub fn patience(&self) -> Option<Duration> {
        self.config.give_up
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The window: how many requests for file data, of the present size, may be outstanding.
    pub fn window(&self) -> u32 {
        self.window.room(InFlight::default(), self.message_bytes())
    }

    /// The share of frames that the path loses one by one, whatever happens to their
    /// neighbours (range: 0 to 1); 0 while losses come in bursts, `None` while too little is
    /// known. Over TCP the path's losses do not show.
    pub fn loss(&self) -> Option<f64> {
        self.detector.path().loss_rate()
    }

    /// How many full frames a second the slowest hop carries, as far as that is known, or guessed from the first blocks.
    pub fn frames_per_second(&self) -> Option<f64> {
        self.detector.path().frame_time().map(|frame| 1.0 / frame.as_secs_f64().max(1e-9))
    }

    /// Whether datagrams of more than a packet, or than shorter packets have, never arrive.
    pub fn drops_fragments(&self) -> bool {
        self.fragments.longest().is_some()
    }

    /// Whether the path does not even carry an Ethernet's packets, so that a stream's segments do not arrive either.
    pub fn drops_packets(&self) -> bool {
        self.fragments.longest().is_some_and(|longest| longest < DATAGRAM_SIZES[0])
    }

    /// How many bytes of a reply may be asked for so that it arrives, if that is a matter of its length.
    pub fn reply_max(&self) -> Option<u32> {
        self.longest().map(|longest| longest - REPLY_HEADER)
    }

    /// What datagrams are to be no longer than, in bytes, if longer ones do not arrive or too many were lost in part.
    pub(super) fn longest(&self) -> Option<u32> {
        let remains = || self.remains.is_full(self.now).then(|| self.shortest_that_fills());
        self.fragments.longest().or_else(remains)
    }

    /// Single packets leave nothing behind, but where a path holds more of them than may be on their way, two at a time go
    /// twice as fast and leave as much as most.
    pub(super) fn shortest_that_fills(&self) -> u32 {
        let held = self.small_trip().unwrap_or_default().as_secs_f64() * self.frames_per_second().unwrap_or_default();
        let is_short = held <= REQUESTS_MAX as f64;
        if is_short || self.fragments.are_crammed() { DATAGRAM_SIZES[0] } else { PAIR }
    }

    /// From `now` on connections beside this one fill the path, more than the `others` that do already. What is learned of
    /// it meanwhile counts for as long as they do; what it was is what it was before the first of them.
    pub fn set_aside(&mut self, now: Time, others: usize) {
        self.detector.set_aside(now, others);
    }

    /// They do not any more: the path is what it was before, unless that is a minute ago.
    pub fn recall(&mut self, now: Time) {
        self.detector.recall(now);
    }

    /// The smoothed round trip of requests for file data, if any was measured.
    pub fn round_trip(&self) -> Option<Duration> {
        [CallClass::Read, CallClass::Write]
            .map(|class| self.detector.path().rtt(class).smoothed().map(|(mean, _)| mean))
            .into_iter()
            .max()
            .flatten()
    }

    /// Whether the server has answered anything small, be it a probe.
    pub fn has_answer(&self) -> bool {
        self.detector.path().min_rtt().is_some()
    }

    /// Whether the server has answered any request, probes not counted.
    pub fn has_replied(&self) -> bool {
        self.detector.has_replied()
    }

    /// Whether nothing is unanswered.
    pub fn is_idle(&self) -> bool {
        self.flying.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn tick(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    pub(super) fn take_xid(&mut self) -> u32 {
        let xid = self.next_xid;
        self.next_xid = xid.wrapping_add(1);
        xid
    }

    pub(super) fn take_seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq
    }

    pub(super) fn is_adaptive(&self) -> bool {
        self.config.infers_losses()
    }
}
