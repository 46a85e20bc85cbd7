//! The receiving half: tracks arrivals, restores the order of flows and schedules acknowledgements.
//!
//! A packet is released after the previous packet of its flow, or once that is known to be abandoned. So each flow is
//! in order, and a gap in one flow does not delay another. Chunks of a packet are joined as they are released. Held
//! data is bounded in number by the window, in bytes, and in time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use remora_base::Time;
use remora_wire::link::{ACK_MIN, Ack, Data, FrameNumbers, Part, Rts, SHORT_LATE_MAX, WINDOW_MAX, expand, expand_byte};

use crate::LinkConfig;
use crate::arq::release_pacer::{Predecessor, ReleasePacer, Released};
use crate::compression::contexts::Decompressor;
use crate::config::HOLD_MARGIN;

/// Bytes held for reordering. Above this limit the oldest gap is skipped.
const HELD_BYTES_MAX: usize = 4 << 20;
/// How long frames of the peer's previous epoch are recognized and refused.
const PAST_EPOCH_KEPT: Duration = Duration::from_secs(10);
/// The first sequence number of a stream, above the 16 bits on the wire: far from zero.
const ORIGIN: u64 = 1 << 32;

/// What the receiver did with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    New,
    Duplicate,
    /// Beyond the window, of a past epoch, or with unknown headers.
    Refused,
}

/// The receiving half of one destination.
#[derive(Clone, Debug, Default)]
pub(crate) struct Receiver {
    stream: Option<Stream>,
    /// The previous epoch and its end.
    past: Option<(u16, Time)>,
    /// When an acknowledgement is due.
    ack_at: Option<Time>,
    /// Frames since the last acknowledgement.
    unacknowledged: u32,
    hold_timeouts: u64,
    release_pacer: ReleasePacer,
}

/// One epoch of the peer.
#[derive(Clone, Debug)]
struct Stream {
    epoch: u16,
    /// The lowest number that has not arrived and may still arrive.
    next: u64,
    /// The latest stamp that has arrived.
    stamp: u16,
    decompressor: Decompressor,
    /// Arrived chunks from `next` on.
    slots: BTreeMap<u64, Slot>,
    /// Pairs of a missing or held chunk and the chunk that waits for it.
    waits: BTreeSet<(u64, u64)>,
    /// Arrival times of the held chunks, oldest first.
    arrivals: VecDeque<(Time, u64)>,
    /// Packets whose first chunks have been released, by the number of their next chunk.
    partial: BTreeMap<u64, PartialPacket>,
    held_bytes: usize,
    /// The highest number skipped without arrival; 0 at first.
    skipped: u64,
    /// Complete packets in flow order, until the next `release_due`.
    released: Vec<Released>,
    /// Time of the latest call.
    now: Time,
}

#[derive(Clone, Debug)]
enum Slot {
    /// Waits for an earlier chunk. `None` is an abandoned chunk, which only keeps its place.
    Held(Option<Chunk>),
    Released,
}

#[derive(Clone, Debug)]
struct Chunk {
    came: Time,
    /// The previous chunk of its flow.
    prev: Option<u64>,
    part: Part,
    bytes: Bytes,
}

/// The first chunks of a packet.
#[derive(Clone, Debug)]
struct PartialPacket {
    since: Time,
    /// The chunk before the first one in its flow.
    prev: Option<u64>,
    chunks: u8,
    bytes: BytesMut,
}

impl Receiver {
    pub(crate) fn data(&mut self, now: Time, data: Data, config: &LinkConfig) -> Arrival {
        let (stream, seq, stamp) = match data.place {
            FrameNumbers::Full { epoch, seq, stamp, back } => {
                let floor = seq.wrapping_sub(back);
                let Some(stream) = self.stream(now, epoch, floor, stamp) else { return Arrival::Refused };
                stream.raise_floor(expand(stream.next, floor));
                let seq = expand(stream.next, seq);
                (stream, seq, stamp)
            }
            // A sender uses short numbers only after this end acknowledged it. If this end has restarted since, the
            // sender must probe.
            FrameNumbers::Short { seq, stamp } => {
                let Some(stream) = &mut self.stream else { return Arrival::Refused };
                stream.now = now;
                let seq = expand_byte(stream.next, seq);
                let stamp = expand_byte(1 << 32 | u64::from(stream.stamp), stamp) as u16;
                (stream, seq, stamp)
            }
        };
        let (follows, poll) = (stream.pass(stamp), data.poll);
        if seq >= stream.next + WINDOW_MAX {
            return Arrival::Refused;
        }
        let arrival = if seq < stream.next || stream.slots.contains_key(&seq) {
            Arrival::Duplicate
        } else {
            stream.arrive(seq, data)
        };
        self.unacknowledged = self.unacknowledged.saturating_add(1);
        let at_once = !follows || arrival != Arrival::New || self.unacknowledged >= config.ack_every;
        self.want_ack(match poll {
            _ if at_once => now,
            true => now + config.answer_delay(),
            false => now + config.ack_delay,
        });
        self.release_due(now, config);
        arrival
    }

    pub(crate) fn rts(&mut self, now: Time, rts: Rts, config: &LinkConfig) -> Arrival {
        let Some(stream) = self.stream(now, rts.epoch, rts.floor, rts.stamp) else { return Arrival::Refused };
        stream.raise_floor(expand(stream.next, rts.floor));
        stream.pass(rts.stamp);
        self.release_due(now, config);
        Arrival::New
    }

    /// Handles a restart of the peer into any epoch: releases complete packets and starts a new stream at the next
    /// frame.
    pub(crate) fn restarted(&mut self) {
        self.end_epoch();
        self.past = None;
    }

    /// The epoch of the current stream.
    pub(crate) fn epoch(&self) -> Option<u16> {
        self.stream.as_ref().map(|s| s.epoch)
    }

    /// Whether frames of `epoch` are refused because the peer has started another since.
    pub(crate) fn is_past(&self, now: Time, epoch: u16) -> bool {
        self.past.is_some_and(|(past, ended)| past == epoch && now.since(ended) < PAST_EPOCH_KEPT)
    }

    /// Skips gaps that the sender has abandoned.
    pub(crate) fn handle_timeout(&mut self, now: Time, config: &LinkConfig) {
        while self.hold_until(config).is_some_and(|at| at <= now) {
            let Some(stream) = &mut self.stream else { return };
            self.hold_timeouts += 1;
            let (partial, waits) = (stream.oldest_partial(), stream.arrivals.front().copied());
            match (partial, waits) {
                (Some((since, seq)), waits) if waits.is_none_or(|(came, _)| since <= came) => drop(stream.forget(seq)),
                // All lower numbers were sent before it arrived, so the sender has abandoned those missing.
                (_, Some((_, seq))) => {
                    stream.arrivals.pop_front();
                    stream.raise_floor(seq);
                }
                _ => break,
            }
        }
        self.release_due(now, config);
    }

    /// The next packet due at `now`.
    pub(crate) fn pop(&mut self, now: Time) -> Option<Bytes> {
        self.release_pacer.pop(now)
    }

    /// Departure time of the next delayed packet.
    pub(crate) fn leaves_at(&self) -> Option<Time> {
        self.release_pacer.next_at()
    }

    /// When [`handle_timeout`](Receiver::handle_timeout) is due.
    pub(crate) fn hold_until(&self, config: &LinkConfig) -> Option<Time> {
        let stream = self.stream.as_ref()?;
        let waits = stream.arrivals.front().map(|(came, _)| *came);
        let partial = stream.oldest_partial().map(|(since, _)| since);
        Some([waits, partial].into_iter().flatten().min()? + config.lifetime_max() + HOLD_MARGIN)
    }

    /// When an acknowledgement is due.
    pub(crate) fn ack_at(&self) -> Option<Time> {
        self.ack_at
    }

    /// Frames since the last acknowledgement.
    pub(crate) fn unacknowledged(&self) -> u32 {
        self.unacknowledged
    }

    /// The acknowledgement to send; resets the acknowledgement timer. `None` before the first frame.
    pub(crate) fn take_ack(&mut self, config: &LinkConfig) -> Option<Ack> {
        let ack = self.ack(config)?;
        (self.ack_at, self.unacknowledged) = (None, 0);
        Some(ack)
    }

    /// The acknowledgement of the current state, without resetting the timer. If the peer's window is longer than this
    /// end's, the bitmap is cut to fit a frame.
    pub(crate) fn ack(&self, config: &LinkConfig) -> Option<Ack> {
        let Stream { epoch, next, stamp, slots, .. } = self.stream.as_ref()?;
        let reach = config.mtu.saturating_sub(1 + ACK_MIN) as u64 * 8;
        let bitmap = Ack::bitmap(slots.keys().map(|seq| seq - next).take_while(|beyond| *beyond <= reach));
        Some(Ack { epoch: *epoch, next: *next as u16, echo: *stamp, bitmap })
    }

    /// Held chunks, incomplete packets and delayed packets.
    pub(crate) fn held(&self) -> usize {
        self.stream.as_ref().map_or(0, |s| s.waits.len() + s.partial.len()) + self.release_pacer.waiting()
    }

    /// Gaps skipped because the chunks behind them reached the hold time.
    pub(crate) fn hold_timeouts(&self) -> u64 {
        self.hold_timeouts
    }

    /// Moves released packets to the release pacer.
    fn release_due(&mut self, now: Time, config: &LinkConfig) {
        let Some(stream) = &mut self.stream else { return };
        for packet in stream.released.drain(..) {
            let most = config.spacing_max(packet.bytes.len());
            self.release_pacer.push(now, packet, most);
        }
    }

    /// Ends the epoch and returns it. Held packets were acknowledged and will not be retransmitted, so all complete
    /// ones are released in order.
    fn end_epoch(&mut self) -> Option<u16> {
        let ended = self.stream.take().map(|mut stream| {
            stream.close();
            for packet in stream.released {
                self.release_pacer.push(stream.now, packet, Duration::ZERO);
            }
            stream.epoch
        });
        self.release_pacer.open();
        (self.ack_at, self.unacknowledged) = (None, 0);
        ended
    }

    fn want_ack(&mut self, at: Time) {
        self.ack_at = Some(self.ack_at.map_or(at, |due| due.min(at)));
    }

    /// The stream of `epoch`. A new one begins at `floor` and `stamp`, after the end of the old one.
    fn stream(&mut self, now: Time, epoch: u16, floor: u16, stamp: u16) -> Option<&mut Stream> {
        if self.stream.as_ref().is_none_or(|s| s.epoch != epoch) {
            if self.is_past(now, epoch) {
                return None;
            }
            self.past = self.end_epoch().map(|epoch| (epoch, now));
            self.stream = Some(Stream::new(epoch, floor, stamp));
        }
        let stream = self.stream.as_mut()?;
        stream.now = now;
        Some(stream)
    }
}

impl Stream {
    fn new(epoch: u16, floor: u16, stamp: u16) -> Stream {
        Stream {
            epoch,
            next: ORIGIN + u64::from(floor),
            stamp: stamp.wrapping_sub(1),
            decompressor: Decompressor::default(),
            slots: BTreeMap::new(),
            waits: BTreeSet::new(),
            arrivals: VecDeque::new(),
            partial: BTreeMap::new(),
            held_bytes: 0,
            skipped: 0,
            released: Vec::new(),
            now: Time::ZERO,
        }
    }

    /// Records a stamp; true if it follows the latest.
    ///
    /// The layer below reorders by at most [`SHORT_LATE_MAX`]. An older stamp is far ahead instead: in an outage of
    /// this direction the peer keeps sending.
    fn pass(&mut self, stamp: u16) -> bool {
        let behind = self.stamp.wrapping_sub(stamp);
        if u64::from(behind) > SHORT_LATE_MAX {
            self.stamp = stamp;
        }
        behind == u16::MAX
    }

    /// Adds a new chunk. A chunk whose headers cannot be decompressed counts as lost; its sender retransmits it with
    /// full headers.
    fn arrive(&mut self, seq: u64, data: Data) -> Arrival {
        let Data { part, headers, .. } = data;
        let packet = data.packet.map(|bytes| self.decompressor.read(headers, bytes, part.last() > 0));
        if packet == Some(None) {
            return Arrival::Refused;
        }
        // `seq` is at least `next`, which exceeds any 16-bit distance.
        let prev = (data.prev > 0).then(|| seq - u64::from(data.prev));
        self.insert(seq, prev, packet.flatten().map(|bytes| Chunk { came: self.now, prev, part, bytes }));
        Arrival::New
    }

    fn insert(&mut self, seq: u64, prev: Option<u64>, chunk: Option<Chunk>) {
        let waits_for = prev.filter(|prev| *prev >= self.next && !matches!(self.slots.get(prev), Some(Slot::Released)));
        match waits_for {
            Some(prev) => {
                self.held_bytes += chunk.as_ref().map_or(0, |c| c.bytes.len());
                self.slots.insert(seq, Slot::Held(chunk));
                self.waits.insert((prev, seq));
                self.arrivals.push_back((self.now, seq));
            }
            None => {
                self.slots.insert(seq, Slot::Released);
                self.join(seq, chunk);
                self.release_after(seq);
            }
        }
        self.settle();
        while self.held_bytes > HELD_BYTES_MAX {
            match (self.arrivals.front().copied(), self.oldest_partial()) {
                (Some((_, first)), _) => self.raise_floor(first),
                (None, Some((_, seq))) => drop(self.forget(seq)),
                (None, None) => break,
            }
        }
    }

    /// Joins a released chunk to its packet if the earlier chunks are there, and completes the packet with its last
    /// chunk. An abandoned chunk discards the incomplete packet.
    fn join(&mut self, seq: u64, chunk: Option<Chunk>) {
        let partial = self.forget(seq);
        let Some(Chunk { came, prev, part, bytes }) = chunk else {
            self.skipped = self.skipped.max(seq);
            return;
        };
        let mut partial = match partial {
            _ if part == Part::WHOLE => return self.complete(came, prev, seq, bytes),
            None if part.index() == 0 => PartialPacket { since: self.now, prev, chunks: 0, bytes: BytesMut::new() },
            Some(partial) if part.index() == partial.chunks => partial,
            _ => return,
        };
        partial.bytes.extend_from_slice(&bytes);
        partial.chunks += 1;
        if part.is_last() {
            self.complete(came, partial.prev, seq, partial.bytes.freeze());
        } else {
            self.held_bytes += partial.bytes.len();
            self.partial.insert(seq + 1, partial);
        }
    }

    /// Releases a packet. Its last chunk is `last`; `prev` is the chunk before its first.
    fn complete(&mut self, came: Time, prev: Option<u64>, last: u64, bytes: Bytes) {
        let before = match prev {
            None => Predecessor::Nothing,
            Some(prev) if prev <= self.skipped => Predecessor::Unknown,
            Some(prev) => Predecessor::Chunk(prev),
        };
        self.released.push(Released { came, before, last, bytes });
    }

    /// Removes the incomplete packet that waits for chunk `seq`.
    fn forget(&mut self, seq: u64) -> Option<PartialPacket> {
        let partial = self.partial.remove(&seq)?;
        self.held_bytes -= partial.bytes.len();
        Some(partial)
    }

    /// The start time of the oldest incomplete packet and the chunk that it waits for.
    fn oldest_partial(&self) -> Option<(Time, u64)> {
        self.partial.iter().map(|(seq, partial)| (partial.since, *seq)).min()
    }

    /// Releases the chunks that wait for `done`, and transitively those that wait for them.
    fn release_after(&mut self, done: u64) {
        let mut turn = VecDeque::from([done]);
        while let Some(done) = turn.pop_front() {
            while let Some(&(_, seq)) = self.waits.range((done, 0)..=(done, u64::MAX)).next() {
                self.waits.remove(&(done, seq));
                self.release(seq);
                turn.push_back(seq);
            }
        }
    }

    fn release(&mut self, seq: u64) {
        if let Some(slot @ Slot::Held(_)) = self.slots.get_mut(&seq)
            && let Slot::Held(chunk) = std::mem::replace(slot, Slot::Released)
        {
            self.held_bytes -= chunk.as_ref().map_or(0, |c| c.bytes.len());
            self.join(seq, chunk);
        }
    }

    /// Skips all missing chunks below `floor`.
    fn raise_floor(&mut self, floor: u64) {
        if floor <= self.next {
            return;
        }
        self.next = floor;
        self.skipped = self.skipped.max(floor - 1);
        self.settle();
    }

    /// Skips all missing chunks.
    fn close(&mut self) {
        if let Some(last) = self.slots.last_key_value().map(|(seq, _)| *seq) {
            self.raise_floor(last + 1);
        }
    }

    /// Advances `next` over arrived chunks and releases those that waited for lower numbers, in order of number, which
    /// is the order within each flow.
    fn settle(&mut self) {
        loop {
            while let Some(&(prev, seq)) = self.waits.first().filter(|(prev, _)| *prev < self.next) {
                self.waits.remove(&(prev, seq));
                self.release(seq);
                self.release_after(seq);
            }
            while self.slots.first_key_value().is_some_and(|(seq, _)| *seq < self.next) {
                self.slots.pop_first();
            }
            // A chunk still held is released in the next iteration: its predecessor is below `next`.
            match self.slots.get(&self.next) {
                None => break,
                Some(_) => self.next += 1,
            }
        }
        while self.arrivals.front().is_some_and(|(_, seq)| !matches!(self.slots.get(seq), Some(Slot::Held(_)))) {
            self.arrivals.pop_front();
        }
        // The next chunk of these packets was skipped.
        while let Some((seq, _)) = self.partial.first_key_value().filter(|(seq, _)| **seq < self.next) {
            self.forget(*seq);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ack_fits_in_a_frame() {
        let place = |seq| FrameNumbers::Full { epoch: 1, seq, stamp: seq, back: seq };
        let data = |seq| Data {
            place: place(seq),
            prev: 0,
            poll: false,
            part: Part::WHOLE,
            headers: Default::default(),
            ack: None,
            packet: Some(Bytes::from_static(b"a packet")),
        };
        // The bitmap includes the last chunk if it then fits.
        for (mtu, last, bitmap) in [(128, 961, 120), (128, 962, 1), (128, 2040, 1), (1450, 2040, 255)] {
            let config = LinkConfig { mtu, ..LinkConfig::default() };
            let mut receiver = Receiver::default();
            for seq in [0, 2, last] {
                receiver.data(Time::ZERO, data(seq), &config);
            }
            let ack = receiver.take_ack(&config).expect("something has come");
            assert!(ack.beyond().next() == Some(1) && ack.len() < mtu, "{last}, mtu {mtu}: {}", ack.len());
            assert_eq!(ack.bitmap.len(), bitmap, "{last}, mtu {mtu}");
        }
    }
}
