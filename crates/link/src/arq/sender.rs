//! The sending half: keeps numbered chunks of packets until they are acknowledged or abandoned (selective repeat;
//! retransmission limited by attempts and by lifetime, RFC 3366). A packet longer than a frame is split into chunks;
//! abandoning one chunk abandons the packet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_wire::link::{Ack, CHUNKS_MAX, Data, FrameNumbers, Headers, PREV_MAX, Part, Rts, SHORT_AHEAD_MAX, expand};

use crate::arq::flight::{Flight, Tx};
use crate::compression::contexts::{Compressor, FirstChunk, HeaderForm};
use crate::pacing::pacer::Departure;
use crate::queueing::flows::Waiting;
use crate::{GaveUp, LinkConfig, Packet};

/// Largest distance of sequence numbers from the acknowledged one. Both ends expand the shortened numbers of frames
/// around their own state; in an outage of one direction many numbers are used and abandoned.
const UNHEARD_MAX: u64 = 1 << 14;

/// The sending half of one destination.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    epoch: u16,
    /// Whether the peer has acknowledged anything in this epoch.
    known: bool,
    /// The sequence number of the next chunk.
    next: u64,
    /// The peer has all chunks below this number, or skips them.
    arrived: u64,
    /// Unacknowledged chunks, from the lowest that may still be sent.
    outstanding: BTreeMap<u64, SentChunk>,
    /// Outstanding chunks due for transmission or retransmission.
    due: BTreeSet<u64>,
    /// The highest floor announced to the peer.
    announced_floor: u64,
    flight: Flight,
    compressor: Compressor,
    flows: BTreeMap<u64, FlowTail>,
    /// Flows without outstanding chunks, by their last chunk.
    idle: BTreeMap<u64, u64>,
    gave_up: GaveUp,
    /// Consecutive acknowledgements that report only losses of long frames.
    long_lost: u64,
}

/// The last chunk of a flow and the number of its outstanding chunks.
#[derive(Clone, Copy, Debug)]
struct FlowTail {
    last: u64,
    outstanding: u32,
}

#[derive(Clone, Debug)]
struct SentChunk {
    flow: u64,
    /// `None`: abandoned, while a lower number may still be sent. An empty frame tells the receiver to skip it.
    packet: Option<Bytes>,
    part: Part,
    /// Length of the whole packet in bytes.
    total: usize,
    /// Whether its frame is longer than some hops carry.
    is_long: bool,
    /// Header form of the latest transmission.
    form: HeaderForm,
    /// Distance to the previous chunk of the flow; 0 if none was outstanding.
    prev: u16,
    expires: Time,
    attempts: u32,
    attempts_max: u32,
    /// Stamp of the latest transmission.
    stamp: u64,
}

impl SentChunk {
    /// The numbers of its packet's first and last chunk, where this chunk has number `seq`.
    fn packet_of(&self, seq: u64) -> (u64, u64) {
        let first = seq - u64::from(self.part.index());
        (first, first + u64::from(self.part.last()))
    }
}

/// The result of an acknowledgement.
#[derive(Clone, Debug, Default)]
pub(crate) struct AckOutcome {
    /// Newly acknowledged packets.
    pub(crate) packets: u64,
    /// Bytes of the newly acknowledged chunks.
    pub(crate) bytes: u64,
    /// Whether some of them went in long frames.
    long: bool,
    /// The fates of the DATA frames decided, in order: `true` for lost.
    pub(crate) fates: Vec<bool>,
    /// The echoed transmission, if it was in flight.
    pub(crate) echoed: Option<Tx>,
}

impl Sender {
    /// Starts in `epoch` with sequence number `first`.
    pub(crate) fn new(epoch: u16, first: u16) -> Sender {
        let first = (1 << 32) + u64::from(first);
        Sender {
            epoch,
            known: false,
            next: first,
            arrived: first,
            outstanding: BTreeMap::new(),
            due: BTreeSet::new(),
            announced_floor: first,
            flight: Flight::new(first),
            compressor: Compressor::default(),
            flows: BTreeMap::new(),
            idle: BTreeMap::new(),
            gave_up: GaveUp::default(),
            long_lost: 0,
        }
    }

    pub(crate) fn epoch(&self) -> u16 {
        self.epoch
    }

    /// Handles a restart of the peer, which has lost its state. Frames carry full numbers and headers until it
    /// acknowledges. Abandons packets already sent: the previous epoch may have delivered them.
    pub(crate) fn peer_restarted(&mut self) {
        let sent = |(seq, sent): (&u64, &SentChunk)| (sent.attempts > 0 && sent.packet.is_some()).then_some(*seq);
        for seq in self.outstanding.iter().filter_map(sent).collect::<Vec<_>>() {
            self.gave_up.restart += u64::from(self.give_up(seq));
        }
        self.raise_floor();
        self.known = false;
        self.announced_floor = 0;
        self.compressor.forgotten();
    }

    pub(crate) fn flight(&self) -> &Flight {
        &self.flight
    }

    /// Whether any chunk is outstanding.
    pub(crate) fn is_at_work(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Packets sent, at least in part, and not acknowledged.
    pub(crate) fn unacknowledged(&self) -> usize {
        let chunks = self.outstanding.iter().filter(|(_, sent)| sent.packet.is_some());
        let firsts = chunks.map(|(seq, sent)| sent.packet_of(*seq).0);
        // The chunks of a packet are consecutive.
        firsts.fold((0, None), |(packets, last), first| (packets + usize::from(last != Some(first)), Some(first))).0
    }

    /// Consecutive acknowledgements that report only losses of long frames.
    pub(crate) fn long_lost(&self) -> u64 {
        self.long_lost
    }

    /// Whether the window has room for another packet and the peer can expand its number.
    pub(crate) fn has_room(&self, config: &LinkConfig) -> bool {
        self.next - self.floor() < config.window() && self.next - self.arrived < UNHEARD_MAX
    }

    /// Whether a chunk of `flow` is due for transmission.
    pub(crate) fn lacks(&self, flow: u64) -> bool {
        self.due.iter().any(|seq| self.outstanding.get(seq).is_some_and(|sent| sent.flow == flow))
    }

    /// Whether any numbered chunk is due for transmission.
    pub(crate) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Whether the peer may still wait for abandoned packets.
    pub(crate) fn owes_floor(&self) -> bool {
        self.arrived < self.floor()
    }

    /// Whether it may and the current floor is not announced yet.
    pub(crate) fn must_announce_floor(&self) -> bool {
        self.owes_floor() && self.announced_floor < self.floor()
    }

    /// Returns and resets the counts of abandoned packets.
    pub(crate) fn take_gave_up(&mut self) -> GaveUp {
        std::mem::take(&mut self.gave_up)
    }

    /// Splits a packet into numbered chunks and makes them due.
    ///
    /// Unless it is `ordered`, the receiver releases it without waiting for the flow's earlier packets. Its lifetime
    /// is at least `least`.
    pub(crate) fn admit(&mut self, waiting: Waiting, ordered: bool, least: Duration, config: &LinkConfig) {
        let Packet { flow, class, mut bytes, .. } = waiting.packet;
        let limits = config.limits.get(class);
        let total = bytes.len();
        let chunks = bytes.len().div_ceil(config.chunk_max()).clamp(1, usize::from(CHUNKS_MAX)) as u8;
        for index in 0..chunks {
            let seq = self.next;
            self.next += 1;
            self.forget_flows();
            let tail = self.flows.entry(flow).or_insert(FlowTail { last: seq, outstanding: 0 });
            self.idle.remove(&tail.last);
            // The window is shorter than 2^16. The last chunk of a flow is within it or idle.
            let prev = if ordered || index > 0 { (seq - tail.last) as u16 } else { 0 };
            *tail = FlowTail { last: seq, outstanding: tail.outstanding + 1 };
            let chunk = bytes.split_to(bytes.len().min(config.chunk_max()));
            let sent = SentChunk {
                flow,
                is_long: config.is_long(chunk.len()),
                packet: Some(chunk),
                part: Part::new(index, chunks - 1).unwrap_or(Part::WHOLE),
                total,
                form: HeaderForm::Full,
                prev,
                expires: waiting.came + limits.lifetime.max(least),
                attempts: 0,
                attempts_max: limits.attempts.max(1),
                stamp: 0,
            };
            self.outstanding.insert(seq, sent);
            self.due.insert(seq);
        }
    }

    /// Removes flows idle for more than [`PREV_MAX`] chunks: the next chunk cannot refer to their last one.
    fn forget_flows(&mut self) {
        while let Some(entry) = self.idle.first_entry().filter(|e| *e.key() + PREV_MAX < self.next - 1) {
            self.flows.remove(&entry.remove());
        }
    }

    /// The sequence number of the next admitted chunk.
    pub(crate) fn next_number(&self) -> u64 {
        self.next
    }

    /// Removes this chunk from those due.
    pub(crate) fn take(&mut self, seq: u64) -> Option<u64> {
        self.due.take(&seq)
    }

    /// Removes and returns the next chunk due, after abandoning chunks at their limits.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<u64> {
        while let Some(seq) = self.due.pop_first() {
            self.give_up_if_due(now, seq);
            self.raise_floor();
            if self.outstanding.contains_key(&seq) {
                return Some(seq);
            }
        }
        None
    }

    /// Abandons all chunks past their lifetime.
    pub(crate) fn expire(&mut self, now: Time) {
        let old = |(seq, sent): (&u64, &SentChunk)| (sent.packet.is_some() && now > sent.expires).then_some(*seq);
        for seq in self.outstanding.iter().filter_map(old).collect::<Vec<_>>() {
            self.give_up_if_due(now, seq);
        }
        self.raise_floor();
    }

    /// The frame that carries chunk `seq` now. The caller sends it, then calls [`sent`](Sender::sent).
    pub(crate) fn frame(&mut self, now: Time, seq: u64, poll: bool, config: &LinkConfig) -> Option<Data> {
        let place = self.place(seq);
        let sent = self.outstanding.get_mut(&seq)?;
        let (packet, part) = (sent.packet.clone(), sent.part);
        let mut data = Data { place, prev: sent.prev, poll, ack: None, packet, part, headers: Headers::Full };
        // A chunk first sent without a context identifier keeps that form: a retransmission that defined a context
        // would count as acknowledged when the first transmission, which did not define it, arrives.
        let was_full = sent.attempts > 0 && sent.form == HeaderForm::Full;
        sent.form = HeaderForm::Full;
        if let Some(bytes) = data.packet.as_ref().filter(|_| part.index() == 0 && !was_full) {
            let first = FirstChunk { bytes, total: sent.total, again: sent.attempts > 0 };
            let (form, bytes) = self.compressor.compress(now, first, config.quiet());
            // The context identifier fits unless the frame has long distances.
            if data.header_len() + 1 + bytes.len() <= config.mtu {
                (sent.form, data.headers, data.packet) = (form, form.headers(), Some(bytes));
            }
        }
        Some(data)
    }

    /// The chunk and transmission numbers, as short as the peer can expand them. The peer has everything below
    /// `arrived` and has seen the stamp last echoed.
    fn place(&mut self, seq: u64) -> FrameNumbers {
        let stamp = self.flight.next_stamp();
        if self.known && !self.owes_floor() && (self.next - self.arrived).max(self.flight.ahead()) <= SHORT_AHEAD_MAX {
            return FrameNumbers::Short { seq: seq as u8, stamp: stamp as u8 };
        }
        let floor = self.floor();
        self.announced_floor = floor;
        let back = (seq - floor) as u16;
        FrameNumbers::Full { epoch: self.epoch, seq: seq as u16, stamp: stamp as u16, back }
    }

    /// Records a transmission of chunk `seq`; true for a retransmission.
    pub(crate) fn sent(&mut self, seq: u64, polled: bool, departure: Departure) -> bool {
        let stamp = self.flight.next_stamp();
        let gone = self.flight.push(Some(seq), polled, departure);
        let again = self.outstanding.get_mut(&seq).is_some_and(|sent| {
            sent.stamp = stamp;
            sent.attempts = sent.attempts.saturating_add(1);
            sent.attempts > 1
        });
        self.forgotten(gone);
        again
    }

    /// Handles a transmission dropped from the log: if it was its chunk's latest, it counts as lost. (In an outage of
    /// one direction, probes push DATA out of the log.)
    fn forgotten(&mut self, gone: Option<Tx>) {
        let Some(Tx { seq: Some(seq), stamp, .. }) = gone else { return };
        if self.outstanding.get(&seq).is_some_and(|sent| sent.stamp == stamp) {
            self.due.insert(seq);
        }
    }

    /// A probe. The caller sends it, then calls [`probed`](Sender::probed).
    pub(crate) fn rts(&mut self) -> Rts {
        self.announced_floor = self.floor();
        Rts { epoch: self.epoch, floor: self.announced_floor as u16, stamp: self.flight.next_stamp() as u16 }
    }

    /// Records that a probe was sent.
    pub(crate) fn probed(&mut self, departure: Departure) {
        let gone = self.flight.push(None, true, departure);
        self.forgotten(gone);
    }

    /// Handles an acknowledgement. Ignores those of another epoch.
    pub(crate) fn acknowledged(&mut self, ack: &Ack) -> AckOutcome {
        let mut outcome = AckOutcome::default();
        if ack.epoch != self.epoch {
            return outcome;
        }
        let next = expand(self.arrived, ack.next);
        if next > self.next {
            return outcome;
        }
        self.known = true;
        self.arrived = self.arrived.max(next);
        while let Some(entry) = self.outstanding.first_entry().filter(|e| *e.key() < next) {
            let seq = *entry.key();
            self.remove(seq, &mut outcome);
        }
        for distance in ack.beyond() {
            self.remove(next + distance, &mut outcome);
        }
        self.raise_floor();
        let mut lost_long = false;
        while let Some(tx) = self.flight.resolve(ack.echo) {
            if let Some(seq) = tx.seq {
                let lost = self.outstanding.get(&seq).filter(|sent| sent.stamp == tx.stamp);
                if let Some(sent) = lost {
                    self.due.insert(seq);
                    self.compressor.lost(sent.form);
                    lost_long |= sent.is_long;
                }
                outcome.fates.push(lost.is_some());
            }
            if tx.stamp as u16 == ack.echo {
                outcome.echoed = Some(tx);
            }
        }
        self.long_lost = if outcome.long { 0 } else { self.long_lost.saturating_add(u64::from(lost_long)) };
        outcome
    }

    /// The lowest number that may still be sent.
    fn floor(&self) -> u64 {
        self.outstanding.first_key_value().map_or(self.next, |(seq, _)| *seq)
    }

    fn give_up_if_due(&mut self, now: Time, seq: u64) {
        let Some(sent) = self.outstanding.get(&seq).filter(|s| s.packet.is_some()) else { return };
        if now > sent.expires {
            self.gave_up.lifetime += 1;
        } else if sent.attempts >= sent.attempts_max {
            self.gave_up.attempts += 1;
        } else {
            return;
        }
        self.give_up(seq);
    }

    /// Abandons the packet of chunk `seq`; false if it was abandoned before.
    fn give_up(&mut self, seq: u64) -> bool {
        let Some(sent) = self.outstanding.get(&seq).filter(|s| s.packet.is_some()) else { return false };
        let (first, last) = sent.packet_of(seq);
        for (_, chunk) in self.outstanding.range_mut(first..=last) {
            chunk.packet = None;
        }
        true
    }

    /// Raises the floor over abandoned chunks.
    fn raise_floor(&mut self) {
        while let Some(entry) = self.outstanding.first_entry().filter(|e| e.get().packet.is_none()) {
            let seq = *entry.key();
            self.remove(seq, &mut AckOutcome::default());
        }
    }

    fn remove(&mut self, seq: u64, outcome: &mut AckOutcome) {
        let Some(sent) = self.outstanding.remove(&seq) else { return };
        self.due.remove(&seq);
        if let Some(packet) = &sent.packet {
            self.compressor.arrived(sent.form);
            outcome.long |= sent.is_long;
            let (first, last) = sent.packet_of(seq);
            let is_whole = first == last || self.outstanding.range(first..=last).next().is_none();
            outcome.packets += u64::from(is_whole);
            outcome.bytes += packet.len() as u64;
        }
        if let Some(tail) = self.flows.get_mut(&sent.flow) {
            tail.outstanding -= 1;
            if tail.outstanding == 0 {
                self.idle.insert(tail.last, sent.flow);
            }
        }
    }
}

#[cfg(test)]
mod tests;
