//! Transmission: sending, retransmitting and probing.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use remora_base::{Core, Peer, Time, Transmit};
use remora_wire::nfs3::Reply;
use remora_wire::rpc::{CallHeader, OpaqueAuth, ReplyHeader};
use remora_wire::{Reader, Xdr, nfs3};

use super::client::{Client, ClientEvent};
use super::state::{BulkLoad, CallQueues, Retransmitted};
use crate::call::{Lane, PendingCall, Transmission};
use crate::congestion::window::ReplySample;
use crate::loss::detector::FirstReply;
use crate::request::{Answer, CallFailure, ReplyKind};
use crate::transport::Transport;
use crate::transport::block_size::{BlockSize, FRAME_PAYLOAD, fragments, frames};
use crate::transport::pmtu_blackhole::{DATAGRAM_SIZES, RoomGuess, is_longer};

/// Bytes of data in the reply to `call`, at most those that were requested.
fn brought(call: &PendingCall, result: &Result<Answer, CallFailure>) -> u32 {
    match result {
        Ok(Answer::Nfs(Reply::Read(Ok(read)))) => call.reply_data.min(read.data.len() as u32),
        Ok(Answer::Nfs(Reply::Read(Err(_)))) | Err(_) => 0,
        Ok(_) => call.reply_data,
    }
}

impl Client {
    fn send(&mut self, now: Time, mut call: PendingCall) -> Transmit {
        let seq = self.take_seq();
        let alone = call.sent.is_none() && self.bulk_in_flight.all.requests == 0;
        let (retries, strikes) = call.sent.map_or((0, 0), |s| (s.retries + 1, self.detector.timer().strikes(s)));
        if call.class.is_bulk() {
            self.bulk_sent += 1;
            self.window.on_sent(now);
            self.pace(now, &call);
        }
        let sent = Transmission {
            at: now,
            first: call.sent.map_or(now, |s| s.first),
            seq,
            nth: self.bulk_sent,
            retries,
            strikes,
            resending: false,
            passed: None,
            overtaken: call.sent.and_then(|s| s.overtaken.or(s.passed)),
            alone,
            before: self.detector.delivered(),
        };
        self.stats.sent += 1;
        if call.sent.is_some() {
            self.stats.retransmissions += 1;
        } else {
            self.bulk_waiting.remove(call.lane(), call.bytes());
            self.bulk_in_flight.add(call.lane(), call.bytes());
        }
        self.set_timer(now, call.xid, retries);
        call.sent = Some(sent);
        self.detector.on_sent(&call, sent);
        let transmit = Transmit { to: self.server, payload: call.message.clone() };
        self.in_flight.insert(call.xid, call);
        transmit
    }

    /// Only file data of the adaptive policy over datagrams is paced.
    fn pace(&mut self, now: Time, call: &PendingCall) {
        if let Some(frame) = self.detector.path().frame_pace().filter(|_| self.is_adaptive()) {
            self.pacer.on_sent(now, frame.mul_f64(frames(call.bytes())), frame);
        }
    }

    fn set_timer(&mut self, now: Time, xid: u32, retries: u32) {
        if self.config.transport.is_reliable() {
            return;
        }
        if let Some(timeout) = self.config.retry.timeout(retries) {
            self.timers.insert((now + timeout, xid));
        }
    }

    pub(super) fn queue_resend(&mut self, xid: u32) {
        let Some(call) = self.in_flight.get_mut(&xid) else { return };
        let Some(sent) = &mut call.sent else { return };
        sent.resending = true;
        self.resend.push(call.lane(), xid);
    }

    /// Retransmits everything unanswered, in the order of the last transmissions.
    pub(super) fn resend_all(&mut self) {
        let mut unanswered: Vec<(u64, u32)> = self.transmissions().map(|(call, sent)| (sent.seq, call.xid)).collect();
        unanswered.sort_unstable();
        self.resend.clear();
        self.timers.clear();
        for (_, xid) in unanswered {
            self.queue_resend(xid);
        }
    }

    /// Restarts all fixed timeouts.
    pub(super) fn wait_anew(&mut self, now: Time) {
        self.timers.clear();
        let in_flight: Vec<_> =
            self.transmissions().filter(|(_, s)| !s.resending).map(|(c, s)| (c.xid, s.retries)).collect();
        for (xid, retries) in in_flight {
            self.set_timer(now, xid, retries);
        }
    }

    /// Notes when each request was first passed by a reply to a later transmission.
    fn note_passed(&mut self, now: Time) {
        for sent in self.in_flight.values_mut().filter_map(|c| c.sent.as_mut()) {
            if sent.passed.is_none() && self.detector.has_passed(sent) {
                sent.passed = Some(now);
            }
        }
    }

    /// Retransmits what the evidence shows to be lost.
    fn find_losses(&mut self, now: Time) {
        if !self.is_adaptive() || self.is_held() {
            return;
        }
        let is_lost = |call: &PendingCall, sent| self.detector.timer().lost_at(call, sent).is_some_and(|t| t <= now);
        let mut lost: Vec<(u64, u32)> =
            self.transmissions().filter(|(c, s)| is_lost(c, *s)).map(|(c, s)| (s.seq, c.xid)).collect();
        if lost.is_empty() {
            return;
        }
        lost.sort_unstable();
        self.note_lost_fragments(now, &lost);
        self.note_dropped_lengths(now, &lost);
        self.note_losses(now, &lost);
        for (_, xid) in lost {
            self.queue_resend(xid);
        }
    }

    /// Counts losses, but for requests that the server is slow at.
    fn note_losses(&mut self, now: Time, lost: &[(u64, u32)]) {
        let calls = lost.iter().filter_map(|(seq, xid)| Some((*seq, self.in_flight.get(xid)?)));
        let calls = calls.filter(|(_, call)| !call.is_commit());
        let calls = calls
            .filter(|(_, call)| call.sent.is_some_and(|sent| self.detector.timer().excess_retries(call, sent) == 0));
        let lost: Vec<_> = calls.map(|(seq, call)| (seq, call.class, call.bytes())).collect();
        if lost.is_empty() {
            return;
        }
        self.detector.on_losses(now, lost.iter().map(|(seq, class, _)| (*seq, *class)));
        let bulk = lost.iter().filter(|(_, class, _)| class.is_bulk());
        self.window.on_losses(bulk.map(|(.., bytes)| u64::from(*bytes)).sum());
    }

    /// Counts the fragments that lost blocks leave at the receiver, unless the block size is fixed.
    fn note_lost_fragments(&mut self, now: Time, lost: &[(u64, u32)]) {
        if self.config.block == BlockSize::FromLink {
            let calls = lost.iter().filter_map(|(_, xid)| self.in_flight.get(xid)).filter(|call| call.class.is_bulk());
            let lost: Vec<_> = calls.filter_map(|c| Some((c.sent?.nth, fragments(c.bytes())))).collect();
            self.reassembly.on_losses(now, &lost);
        }
    }

    /// Fails the requests that are too long for the path, if these losses show that. Blocks that can be shortened fail
    /// already when the receiver has no room for fragments.
    fn note_dropped_lengths(&mut self, now: Time, lost: &[(u64, u32)]) {
        let mut lacks_room = false;
        let guess = match self.config.block {
            BlockSize::Fixed(_) => RoomGuess::Never,
            BlockSize::FromLink if self.detector.answers_late() => RoomGuess::Slowly,
            BlockSize::FromLink => RoomGuess::Soon,
        };
        for call in lost.iter().filter_map(|(_, xid)| self.in_flight.get(xid)) {
            if let Some(sent) = call.sent {
                lacks_room |= self.blackhole.on_loss(now, call, sent, guess);
            }
        }
        if lacks_room {
            self.reassembly.fill(now);
        }
        let never = self.blackhole.longest();
        let Some(most) = never.or(lacks_room.then_some(DATAGRAM_SIZES[0])) else { return };
        let Client { in_flight, bulk_in_flight, waiting, bulk_waiting, events, failed_too_long, .. } = self;
        let mut fail = |call: &PendingCall, count: &mut BulkLoad| {
            let hopeless = is_longer(call, most) && (never.is_some() || call.can_be_shorter());
            if hopeless {
                count.remove(call.lane(), call.bytes());
                failed_too_long.note(call.xid, ());
                events.push_back(ClientEvent::Done { id: call.id, result: Err(CallFailure::Fragments) });
            }
            !hopeless
        };
        in_flight.retain(|_, call| fail(call, bulk_in_flight));
        for queue in waiting.all_mut() {
            queue.retain(|call| fail(call, bulk_waiting));
        }
    }

    fn transmissions(&self) -> impl Iterator<Item = (&PendingCall, Transmission)> {
        transmissions(&self.in_flight)
    }

    fn probe_due_at(&self) -> Option<Time> {
        if !self.is_adaptive() || !self.resend.is_empty() {
            return None;
        }
        self.detector.timer().probe_at(self.transmissions())
    }

    fn probe(&mut self, now: Time) -> Transmit {
        let (xid, seq) = (self.take_xid(), self.take_seq());
        self.detector.on_probe_sent(now, xid, seq);
        self.stats.probes += 1;
        Transmit { to: self.server, payload: self.null_call(xid) }
    }

    pub(super) fn null_call(&self, xid: u32) -> Bytes {
        let mut message = Vec::with_capacity(40);
        let none = OpaqueAuth::none();
        let (prog, vers, proc) = self.probe_numbers();
        CallHeader { xid, prog, vers, proc, cred: none.clone(), verf: none }.encode(&mut message);
        Bytes::from(message)
    }

    /// Program, version and procedure of NULL for the program that is called.
    fn probe_numbers(&self) -> (u32, u32, u32) {
        let (prog, vers) = match self.in_flight.values().next().map(|c| c.expect) {
            Some(ReplyKind::Mount(_)) => (remora_wire::mount::PROGRAM, remora_wire::mount::VERSION),
            Some(ReplyKind::Port) => (remora_wire::portmap::PROGRAM, remora_wire::portmap::VERSION),
            Some(ReplyKind::Nfs(_)) | None => (nfs3::PROGRAM, nfs3::VERSION),
        };
        (prog, vers, 0)
    }

    fn on_reply(&mut self, now: Time, mut call: PendingCall, result: Result<Answer, CallFailure>) {
        let counted = call.bytes();
        let asked = call.reply_data;
        call.reply_data = brought(&call, &result);
        if let Some(sent) = call.sent {
            // A reply with little data says nothing of the RTT of blocks.
            let is_telling = call.reply_data == asked || call.reply_data >= FRAME_PAYLOAD;
            let full = !self.waiting.bulk.is_empty() || self.room() == 0;
            let seen = self.detector.on_reply(now, &call, sent, is_telling, transmissions(&self.in_flight));
            if sent.retries > 0 {
                let trip = now.since(sent.first);
                let (class, bytes, first, left) = (call.class, call.bytes(), sent.first, sent.retries);
                let (was_clear, was_loss) = (seen.spurious, !call.is_commit());
                let again = Retransmitted { class, bytes, first, trip, left, is_second: true, was_clear, was_loss };
                self.retransmitted.note(call.xid, again);
            }
            self.stats.spurious += u64::from(seen.spurious);
            if call.class.is_bulk() {
                self.bulk_in_flight.remove(call.lane(), counted);
                let seen = ReplySample { bytes: call.bytes(), full, ..seen.sample };
                self.pacer.on_reply(now, &seen);
                self.window.on_reply(seen);
            } else if let Some(trip) = self.detector.path().min_rtt() {
                self.window.prepare(trip);
            }
        }
        self.events.push_back(ClientEvent::Done { id: call.id, result });
    }

    /// A further reply to a retransmitted request: nothing of it was lost. Once each transmission was answered, the
    /// first reply belongs to the first one.
    fn on_second_reply(&mut self, now: Time, xid: u32, again: Retransmitted) {
        if again.is_second {
            self.stats.spurious += u64::from(!again.was_clear);
            if again.was_loss {
                self.detector.on_second_reply();
            }
        }
        match again.left.saturating_sub(1) {
            0 => {
                let Retransmitted { class, bytes, first: sent, trip: rtt, .. } = again;
                self.detector.on_all_answered(now, FirstReply { class, bytes, sent, rtt });
            }
            left => self.retransmitted.note(xid, Retransmitted { left, is_second: false, ..again }),
        }
    }

    /// The next message to send: first for users, then retransmissions, then new file data.
    fn next_call(&mut self) -> Option<PendingCall> {
        if let Some(call) = self.next_resend(|resend| &mut resend.small).or_else(|| self.waiting.small.pop_front()) {
            return Some(call);
        }
        if !self.is_bulk_ready() {
            return None;
        }
        if let Some(call) = self.next_resend(|resend| &mut resend.urgent) {
            return Some(call);
        }
        if self.opens_at(Lane::Urgent).is_some_and(|at| at <= self.now) {
            return self.waiting.urgent.pop_front();
        }
        if let Some(call) = self.next_resend(|resend| &mut resend.bulk) {
            return Some(call);
        }
        // A retransmission that is answered meanwhile leaves its turn.
        if self.opens_at(Lane::Bulk).is_some_and(|at| at <= self.now) { self.waiting.bulk.pop_front() } else { None }
    }

    /// The next retransmission of a queue.
    fn next_resend(&mut self, queue: impl Fn(&mut CallQueues<u32>) -> &mut VecDeque<u32>) -> Option<PendingCall> {
        while let Some(xid) = queue(&mut self.resend).pop_front() {
            if let Some(call) = self.in_flight.remove(&xid) {
                return Some(call);
            }
        }
        None
    }

    /// When the window admits the next new request for file data without another reply.
    fn opens_at(&self, lane: Lane) -> Option<Time> {
        let (queue, in_flight) = match lane {
            Lane::Small => return None,
            Lane::Urgent => (&self.waiting.urgent, self.bulk_in_flight.urgent),
            Lane::Bulk => (&self.waiting.bulk, self.bulk_in_flight.all),
        };
        self.window.opens_at(in_flight, queue.front()?.bytes())
    }

    /// When the next request for file data may be sent without another reply: a retransmission at the pace of the link,
    /// a new one when the window also has room.
    fn bulk_at(&self) -> Option<Time> {
        let is_resending = !self.resend.urgent.is_empty() || !self.resend.bulk.is_empty();
        let room = || [Lane::Urgent, Lane::Bulk].into_iter().filter_map(|lane| self.opens_at(lane)).min();
        let at = if is_resending { Time::ZERO } else { room()? };
        Some(at.max(self.pacer.opens_at()))
    }

    fn is_bulk_ready(&self) -> bool {
        self.bulk_at().is_some_and(|t| t <= self.now)
    }

    fn is_ready(&self) -> bool {
        let has_small = !self.resend.small.is_empty() || !self.waiting.small.is_empty();
        self.stream.connected && (has_small || self.is_bulk_ready())
    }
}

fn transmissions(in_flight: &BTreeMap<u32, PendingCall>) -> impl Iterator<Item = (&PendingCall, Transmission)> + Clone {
    in_flight.values().filter_map(|c| c.sent.map(|s| (c, s)))
}

impl Core for Client {
    type Event = ClientEvent;

    fn handle_input(&mut self, now: Time, _from: Peer, bytes: Bytes) {
        self.tick(now);
        let len = bytes.len();
        let mut r = Reader::new(bytes);
        let Ok(header) = ReplyHeader::decode(&mut r) else {
            self.stats.garbled += 1;
            return;
        };
        if let Some(call) = self.in_flight.remove(&header.xid) {
            self.heard(now);
            self.blackhole.on_answer(now, &call, len);
            let result = call.expect.decode(header.outcome, &mut r);
            self.on_reply(now, call, result);
        } else if self.detector.on_probe_reply(now, header.xid, transmissions(&self.in_flight)) {
            self.heard_probe(now);
        } else if let Some(asked) = self.stream.take_asked(header.xid) {
            self.heard_probe(now);
            self.repeat_overdue(asked);
        } else {
            self.stats.bad_xid += 1;
            if self.config.transport == Transport::Tcp {
                // Too late for a request that was given up, but more than a reply to NULL.
                self.heard(now);
            }
            if self.failed_too_long.take(header.xid).is_some() {
                self.blackhole.disprove();
            }
            if let Some(again) = self.retransmitted.take(header.xid) {
                self.on_second_reply(now, header.xid, again);
            }
        }
        self.note_passed(now);
        self.find_losses(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.tick(now);
        self.end_hold(now);
        if self.is_held() {
            return;
        }
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
        if !self.stream.connected || self.is_held() {
            return None;
        }
        if let Some(call) = self.next_call() {
            return Some(self.send(now, call));
        }
        if self.probe_due_at().is_some_and(|t| t <= now) {
            return Some(self.probe(now));
        }
        None
    }

    fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Time> {
        if let Some(hold) = self.held {
            return Some(hold.until);
        }
        if self.is_ready() {
            return Some(self.now);
        }
        let timer = self.timers.first().map(|t| t.0);
        let lost = self
            .is_adaptive()
            .then(|| self.transmissions().filter_map(|(c, s)| self.detector.timer().lost_at(c, s)).min())
            .flatten();
        let bulk = self.bulk_at().filter(|_| self.stream.connected);
        [timer, lost, bulk, self.probe_due_at(), self.give_up_at()].into_iter().flatten().min()
    }
}
