//! The client core: the call table, its state machine's public methods, and block sizes.
//!
//! [`transmission`](super::transmission) sends, retransmits and probes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Peer, Rng, Time};
use remora_wire::nfs3;
use remora_wire::rpc::OpaqueAuth;
use remora_wire::urgency::Urgency;

use super::state::{BulkLoad, CallQueues, ConnectionState, Hold, LastContact, RecentXids, Retransmitted};
use crate::call::PendingCall;
use crate::config::ClientConfig;
use crate::congestion::pacer::Pacer;
use crate::congestion::window::{InFlight, OBJECTS_MAX, REQUESTS_MAX, Window};
use crate::loss::detector::LossDetector;
use crate::request::{Answer, CallClass, CallFailure, CallId, ReplyKind, Request};
use crate::transport::Transport;
use crate::transport::block_size::{BlockSize, PathView, fragments};
use crate::transport::pmtu_blackhole::{DATAGRAM_SIZES, PAIR, PmtuBlackhole, REPLY_HEADER};
use crate::transport::reassembly_budget::ReassemblyBudget;

/// Bytes of a READ reply beside the data: RPC header, status, attributes, counts.
const READ_HEADER: u32 = 24 + 4 + 4 + 84 + 4 + 4 + 4;
/// READs and WRITEs of at most one frame that bypass the window at a time.
const SMALL_MAX: u32 = 8;
/// RTT from which a COMMIT of its own costs more than a few synchronous writes.
const TAIL_TRIP: Duration = Duration::from_millis(50);
/// Synchronous writes that cost less than a round trip, unless the server is near.
const TAIL_FEW: u32 = 4;
/// RTT below which one more round trip does not matter.
const NEAR_TRIP: Duration = Duration::from_millis(5);

/// An event of the client core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientEvent {
    /// A request has ended.
    Done {
        id: CallId,
        /// The reply, or why there is none.
        result: Result<Answer, CallFailure>,
    },
}

/// Too many requests are waiting; submit again after an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("too many requests are waiting")]
pub struct Busy;

/// Counters of a client. They never decrease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClientStats {
    pub requests: u64,
    /// Messages sent, with retransmissions, without probes.
    pub sent: u64,
    pub retransmissions: u64,
    /// Spurious retransmissions: the original was answered after all.
    pub spurious: u64,
    /// Probes (NULL calls) sent.
    pub probes: u64,
    /// Replies with an unknown xid, mostly duplicates (badxid in DRC 89).
    pub bad_xid: u64,
    /// Messages that are no RPC reply.
    pub garbled: u64,
}

/// The NFS client core: a pure state machine ([`Core`](remora_base::Core)).
#[derive(Debug)]
pub struct Client {
    pub(super) config: ClientConfig,
    pub(super) cred: OpaqueAuth,
    /// Longest body of a credential so far, in bytes.
    pub(super) longest_cred: usize,
    pub(super) server: Peer,
    pub(super) stream: ConnectionState,
    /// While this is set nothing is sent; see [`interruption`](super::interruption).
    pub(super) held: Option<Hold>,
    pub(super) next_id: u64,
    pub(super) next_xid: u32,
    pub(super) next_seq: u64,
    /// Transmissions of file data.
    pub(super) bulk_sent: u64,
    pub(super) in_flight: BTreeMap<u32, PendingCall>,
    /// File data in flight, and file data in `waiting`.
    pub(super) bulk_in_flight: BulkLoad,
    pub(super) bulk_waiting: BulkLoad,
    /// Fixed retransmission timeouts.
    pub(super) timers: BTreeSet<(Time, u32)>,
    pub(super) waiting: CallQueues<PendingCall>,
    pub(super) resend: CallQueues<u32>,
    pub(super) window: Window,
    pub(super) pacer: Pacer,
    pub(super) detector: LossDetector,
    pub(super) blackhole: PmtuBlackhole,
    pub(super) reassembly: ReassemblyBudget,
    /// Requests that were answered after a retransmission. A second reply shows that it was spurious (as DSACK does,
    /// RFC 3708).
    pub(super) retransmitted: RecentXids<Retransmitted>,
    /// Requests that failed because the path seemed to drop messages of their length.
    pub(super) failed_too_long: RecentXids<()>,
    pub(super) last_contact: LastContact,
    /// The latest time that was passed in.
    pub(super) now: Time,
    pub(super) events: VecDeque<ClientEvent>,
    pub(super) stats: ClientStats,
}

/// Whether a user waits for the request while file data moves. A COMMIT is part of the moving.
fn is_awaited(request: &Request, class: CallClass) -> bool {
    !class.is_bulk() && !matches!(request, Request::Nfs(nfs3::Call::Commit(_)))
}

impl Client {
    /// A client of the server at `server`; `seed` draws the first xid.
    pub fn new(config: ClientConfig, server: Peer, seed: u64, now: Time) -> Client {
        let cred = OpaqueAuth::unix(&config.cred);
        Client {
            longest_cred: cred.body.len(),
            cred,
            server,
            stream: ConnectionState::new(now, config.transport == Transport::Udp),
            held: None,
            next_id: 0,
            next_xid: Rng::stream(seed, "xid").next_u32(),
            next_seq: 0,
            bulk_sent: 0,
            in_flight: BTreeMap::new(),
            bulk_in_flight: BulkLoad::default(),
            bulk_waiting: BulkLoad::default(),
            timers: BTreeSet::new(),
            waiting: CallQueues::new(),
            resend: CallQueues::new(),
            window: Window::new(config.window, if config.transport == Transport::Atp { OBJECTS_MAX } else { u64::MAX }),
            pacer: Pacer::default(),
            detector: LossDetector::new(now, &config),
            blackhole: PmtuBlackhole::default(),
            reassembly: ReassemblyBudget::default(),
            retransmitted: RecentXids::new(),
            failed_too_long: RecentXids::new(),
            last_contact: LastContact::new(now),
            now,
            events: VecDeque::new(),
            stats: ClientStats::default(),
            config,
        }
    }

    /// Takes a request. Its [`ClientEvent::Done`] will come.
    ///
    /// READs and WRITEs of more than a frame wait for the window. Those of at most a frame that are shorter than half a
    /// block are taken for a user's request and bypass it, a few at a time.
    pub fn submit(&mut self, now: Time, request: Request) -> Result<CallId, Busy> {
        let cred = self.cred.clone();
        self.submit_as(now, request, &cred, None)
    }

    /// As [`submit`](Client::submit), with another credential than the configured one, and the urgency of the request.
    /// Without it no program waits for file data of more than a frame.
    pub fn submit_as(
        &mut self,
        now: Time,
        request: Request,
        cred: &OpaqueAuth,
        urgency: Option<Urgency>,
    ) -> Result<CallId, Busy> {
        self.tick(now);
        if self.waiting.len() >= self.config.waiting_max {
            return Err(Busy);
        }
        if self.is_idle() {
            // Silence counts from the first unanswered request.
            self.last_contact = LastContact::new(now);
        }
        let id = CallId(self.next_id);
        self.next_id += 1;
        self.stats.requests += 1;
        self.longest_cred = self.longest_cred.max(cred.body.len());
        let xid = self.take_xid();
        let class = self.class_of(&request);
        let is_shared = self.bulk_in_flight.all.requests > 0 || self.bulk_waiting.all.requests > 0;
        if is_shared && is_awaited(&request, class) && urgency != Some(Urgency::Bulk) {
            let before = self.message_bytes();
            self.detector.on_foreground(now);
            self.window.on_shorter(before, self.message_bytes());
        }
        let pending = PendingCall {
            id,
            xid,
            class,
            urgency,
            expect: ReplyKind::from(&request),
            message: Bytes::from(request.encode(xid, cred)),
            reply_data: if let Request::Nfs(nfs3::Call::Read(r)) = &request { r.count } else { 0 },
            reply_max: request.reply_max(),
            syncs: request.syncs(),
            submitted: now,
            sent: None,
        };
        self.bulk_waiting.add(pending.lane(), pending.bytes());
        self.waiting.push(pending.lane(), pending);
        Ok(id)
    }

    /// Removes a request that was not sent yet; no event follows. A request in flight goes on, because the server may
    /// execute it. Returns whether it was removed.
    pub fn cancel(&mut self, now: Time, id: CallId) -> bool {
        self.tick(now);
        let Some(call) = self.waiting.remove_by(|call| call.id.cmp(&id)) else { return false };
        self.bulk_waiting.remove(call.lane(), call.bytes());
        true
    }

    pub(super) fn class_of(&self, request: &Request) -> CallClass {
        let class = request.class();
        if !class.is_bulk() {
            return class;
        }
        let bytes = request.data();
        let is_small = fragments(bytes.saturating_add(READ_HEADER)) == 1 && bytes < self.read_block(u32::MAX) / 2;
        let in_table = self.in_flight.values().chain(&self.waiting.small);
        if is_small && in_table.filter(|c| c.moves_data() && !c.class.is_bulk()).count() < SMALL_MAX as usize {
            class.small()
        } else {
            class
        }
    }

    /// Requests for file data that the window admits now.
    pub fn room(&self) -> usize {
        self.room_beside(self.bulk_in_flight.all.and(self.bulk_waiting.all))
    }

    /// As [`room`](Client::room), for file data that a program waits for ([`Urgency::Sync`] and more).
    pub fn urgent_room(&self) -> usize {
        self.room_beside(self.bulk_in_flight.urgent.and(self.bulk_waiting.urgent))
    }

    fn room_beside(&self, taken: InFlight) -> usize {
        self.window.room(taken, self.message_bytes()) as usize
    }

    /// Urgency of request `xid` in flight, as its caller said.
    pub fn urgency_of(&self, xid: u32) -> Option<Urgency> {
        self.in_flight.get(&xid)?.urgency
    }

    /// Bytes that a READ should ask for now, at most `max`.
    pub fn read_block(&self, max: u32) -> u32 {
        self.block(READ_HEADER, max)
    }

    /// As [`read_block`](Client::read_block), but at most what fits one packet. A fixed block size is kept.
    pub fn read_packet(&self, max: u32) -> u32 {
        self.packet(READ_HEADER, max)
    }

    /// Bytes that a WRITE to `fh` should carry now, at most `max`.
    pub fn write_block(&self, fh: &nfs3::Fh, max: u32) -> u32 {
        self.block(self.write_header(fh), max)
    }

    /// As [`write_block`](Client::write_block), but at most what fits one packet. A fixed block size is kept.
    pub fn write_packet(&self, fh: &nfs3::Fh, max: u32) -> u32 {
        self.packet(self.write_header(fh), max)
    }

    pub(super) fn write_header(&self, fh: &nfs3::Fh) -> u32 {
        let cred = 8 + self.longest_cred as u32;
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

    /// Approximate bytes of a block with its request and reply.
    pub(super) fn message_bytes(&self) -> u32 {
        self.read_block(u32::MAX).saturating_add(READ_HEADER)
    }

    /// Bytes at the end of a file to write synchronously instead of with a COMMIT of their own
    /// ([`Upload::sync_tail`](crate::Upload::sync_tail)): a window of them where the RTT is long or the window small,
    /// else none.
    pub fn sync_tail(&self) -> u64 {
        let is_little = !self.is_near() && self.window() <= TAIL_FEW;
        if self.is_far() || is_little { u64::from(self.window()) * u64::from(self.read_block(u32::MAX)) } else { 0 }
    }

    /// Whether a round trip costs more than a few synchronous writes: the minimum RTT is at least 50 ms.
    pub fn is_far(&self) -> bool {
        self.detector.path().min_rtt().is_some_and(|trip| trip >= TAIL_TRIP)
    }

    /// Whether the minimum RTT is below 5 ms, so that one more round trip does not matter.
    pub fn is_near(&self) -> bool {
        self.min_rtt().is_none_or(|trip| trip < NEAR_TRIP)
    }

    /// Minimum RTT of small calls and probes.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.detector.path().min_rtt()
    }

    pub fn set_give_up(&mut self, patience: Option<Duration>) {
        self.config.give_up = patience;
    }

    pub fn patience(&self) -> Option<Duration> {
        self.config.give_up
    }

    pub fn stats(&self) -> ClientStats {
        self.stats
    }

    /// The congestion window, in requests of the present block size.
    pub fn window(&self) -> u32 {
        self.window.room(InFlight::default(), self.message_bytes())
    }

    /// Share of frames that the path loses independently of one another (0 to 1). 0 while losses come in bursts, `None`
    /// while too little is known. A stream hides losses.
    pub fn loss(&self) -> Option<f64> {
        self.detector.path().loss_rate()
    }

    /// Full frames per second of the slowest hop, measured or guessed from the first blocks.
    pub fn frames_per_second(&self) -> Option<f64> {
        self.detector.path().frame_time().map(|frame| 1.0 / frame.as_secs_f64().max(1e-9))
    }

    /// Whether the path drops datagrams above some length.
    pub fn drops_fragments(&self) -> bool {
        self.blackhole.longest().is_some()
    }

    /// Whether the path drops even full Ethernet packets, and so the segments of a stream.
    pub fn drops_packets(&self) -> bool {
        self.blackhole.longest().is_some_and(|longest| longest < DATAGRAM_SIZES[0])
    }

    /// Largest reply in bytes that arrives, if the path limits the length.
    pub fn reply_max(&self) -> Option<u32> {
        self.longest().map(|longest| longest - REPLY_HEADER)
    }

    /// Largest datagram in bytes, if longer ones do not arrive or too many fragments were lost.
    pub(super) fn longest(&self) -> Option<u32> {
        let reassembly = || self.reassembly.is_full(self.now).then(|| self.shortest_that_fills());
        self.blackhole.longest().or_else(reassembly)
    }

    /// Single packets leave no fragments behind. Where the BDP is more packets than the window has requests, pairs are
    /// twice as fast and leave as much as most.
    pub(super) fn shortest_that_fills(&self) -> u32 {
        let held = self.min_rtt().unwrap_or_default().as_secs_f64() * self.frames_per_second().unwrap_or_default();
        let is_short = held <= REQUESTS_MAX as f64;
        if is_short || self.blackhole.lacks_room() { DATAGRAM_SIZES[0] } else { PAIR }
    }

    /// From `now` on one more connection fills the path beside the `others` that do already. The path model from before
    /// the first of them is saved.
    pub fn save_path(&mut self, now: Time, others: usize) {
        self.detector.save_path(now, others);
    }

    /// No other connection fills the path any more: restores the path model, unless it is older than a minute.
    pub fn restore_path(&mut self, now: Time) {
        self.detector.restore_path(now);
    }

    /// Smoothed RTT of file data.
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        [CallClass::Read, CallClass::Write]
            .map(|class| self.detector.path().rtt(class).smoothed().map(|(mean, _)| mean))
            .into_iter()
            .max()
            .flatten()
    }

    /// Whether the server has answered anything small, or a probe.
    pub fn has_answer(&self) -> bool {
        self.detector.path().min_rtt().is_some()
    }

    /// Whether the server has answered any request; probes do not count.
    pub fn has_replied(&self) -> bool {
        self.detector.has_replied()
    }

    /// Whether no request is unanswered.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.waiting.is_empty()
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
