//! The receiving half: what has arrived, what may be released, and when to say so.
//!
//! A packet is released when the previous packet of its flow was, or is known never to come;
//! so each flow is in order and a gap in one does not stall another. A packet of several chunks
//! is put together as they are released one after another. Everything held is bounded in number
//! by the window, in bytes, and in time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use remora_base::Time;
use remora_wire::link::{Ack, Data, Part, Rts, WINDOW_MAX, expand};

use crate::Config;

/// Bytes held for reordering; more, and the oldest gap is given up.
const HELD_BYTES_MAX: usize = 4 << 20;
/// How long frames of a peer's last life are told from those of a new one.
const PAST_LIFE: Duration = Duration::from_secs(10);
/// A packet is held this much longer than its sender may send what it waits for: the time
/// that may be on its way.
const HOLD_MARGIN: Duration = Duration::from_secs(1);
/// Where the numbers of a stream begin, in units of the 16 bits on the wire: far from zero.
const ORIGIN: u64 = 1 << 32;

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// It is new.
    New,
    /// It had come before.
    Duplicate,
    /// It is beyond the window, or of a past life.
    Refused,
}

/// The receiving half of one destination.
#[derive(Clone, Debug, Default)]
pub(crate) struct Receiver {
    stream: Option<Stream>,
    /// The life before this one, and when it ended.
    past: Option<(u16, Time)>,
    /// When an acknowledgement is due.
    ack_at: Option<Time>,
    /// Frames since the last acknowledgement.
    unacknowledged: u32,
    hold_timeouts: u64,
}

/// One life of the peer.
#[derive(Clone, Debug)]
struct Stream {
    epoch: u16,
    /// The lowest number that has not arrived and may still come.
    next: u64,
    /// The latest transmission that has arrived.
    stamp: u16,
    /// What has arrived from `next` on.
    slots: BTreeMap<u64, Slot>,
    /// Who waits for whom: (the previous packet, the one that waits).
    waits: BTreeSet<(u64, u64)>,
    /// When those that wait came, the first one first.
    arrivals: VecDeque<(Time, u64)>,
    /// Packets of which the first chunks have been released, by the number of the next chunk.
    begun: BTreeMap<u64, Begun>,
    held_bytes: usize,
    /// The time it is.
    now: Time,
}

#[derive(Clone, Debug)]
enum Slot {
    /// Waits for an earlier one; without a chunk, it only takes its turn.
    Held(Option<Chunk>),
    /// Has been released.
    Released,
}

#[derive(Clone, Debug)]
struct Chunk {
    part: Part,
    bytes: Bytes,
}

/// The first chunks of a packet.
#[derive(Clone, Debug)]
struct Begun {
    since: Time,
    chunks: u8,
    bytes: BytesMut,
}

impl Receiver {
    /// Takes a DATA frame; what may be released goes to `out`.
    pub(crate) fn data(&mut self, now: Time, data: Data, config: &Config, out: &mut Vec<Bytes>) -> Arrival {
        let floor = data.seq.wrapping_sub(data.back);
        let Some(stream) = self.stream(now, data.epoch, floor, data.stamp) else { return Arrival::Refused };
        stream.raise_floor(expand(stream.next, floor), out);
        let follows = stream.pass(data.stamp);
        let seq = expand(stream.next, data.seq);
        if seq >= stream.next + WINDOW_MAX {
            return Arrival::Refused;
        }
        let arrival = if seq < stream.next || stream.slots.contains_key(&seq) {
            Arrival::Duplicate
        } else {
            // `seq` is at least `next`, which is far above any distance of 16 bits.
            let prev = (data.prev > 0).then(|| seq - u64::from(data.prev));
            let part = data.part;
            stream.insert(seq, prev, data.packet.map(|bytes| Chunk { part, bytes }), out);
            Arrival::New
        };
        self.unacknowledged = self.unacknowledged.saturating_add(1);
        let at_once = data.poll || !follows || arrival != Arrival::New || self.unacknowledged >= config.ack_every;
        self.want_ack(if at_once { now } else { now + config.ack_delay });
        arrival
    }

    /// Takes a probe.
    pub(crate) fn rts(&mut self, now: Time, rts: Rts, out: &mut Vec<Bytes>) -> Arrival {
        let Some(stream) = self.stream(now, rts.epoch, rts.floor, rts.stamp) else { return Arrival::Refused };
        stream.raise_floor(expand(stream.next, rts.floor), out);
        stream.pass(rts.stamp);
        Arrival::New
    }

    /// Gives up gaps that nobody will fill any more.
    pub(crate) fn handle_timeout(&mut self, now: Time, config: &Config, out: &mut Vec<Bytes>) {
        while self.hold_until(config).is_some_and(|at| at <= now) {
            let Some(stream) = &mut self.stream else { return };
            self.hold_timeouts += 1;
            let (begun, waits) = (stream.oldest_begun(), stream.arrivals.front().copied());
            match (begun, waits) {
                (Some((since, seq)), waits) if waits.is_none_or(|(came, _)| since <= came) => drop(stream.forget(seq)),
                // Every number below it was sent before it came, so its sender has given up by
                // now all those that have not arrived.
                (_, Some((_, seq))) => {
                    stream.arrivals.pop_front();
                    stream.raise_floor(seq, out);
                }
                _ => return,
            }
        }
    }

    /// When [`handle_timeout`](Receiver::handle_timeout) is due.
    pub(crate) fn hold_until(&self, config: &Config) -> Option<Time> {
        let stream = self.stream.as_ref()?;
        let waits = stream.arrivals.front().map(|(came, _)| *came);
        let begun = stream.oldest_begun().map(|(since, _)| since);
        Some([waits, begun].into_iter().flatten().min()? + config.lifetime_max() + HOLD_MARGIN)
    }

    /// When an acknowledgement is due.
    pub(crate) fn ack_at(&self) -> Option<Time> {
        self.ack_at
    }

    /// Frames since the last acknowledgement.
    pub(crate) fn unacknowledged(&self) -> u32 {
        self.unacknowledged
    }

    /// What has arrived; `None`: nothing ever did. This answers what was asked so far.
    pub(crate) fn take_ack(&mut self) -> Option<Ack> {
        let ack = self.ack()?;
        (self.ack_at, self.unacknowledged) = (None, 0);
        Some(ack)
    }

    /// The same, without taking it as said.
    pub(crate) fn ack(&self) -> Option<Ack> {
        let Stream { epoch, next, stamp, slots, .. } = self.stream.as_ref()?;
        let bitmap = Ack::bitmap(slots.keys().map(|seq| seq - next));
        Some(Ack { epoch: *epoch, next: *next as u16, echo: *stamp, bitmap })
    }

    /// Chunks that wait for an earlier one, and packets that wait for their next.
    pub(crate) fn held(&self) -> usize {
        self.stream.as_ref().map_or(0, |s| s.waits.len() + s.begun.len())
    }

    /// Times a gap was given up because what was behind it had been held long enough.
    pub(crate) fn hold_timeouts(&self) -> u64 {
        self.hold_timeouts
    }

    fn want_ack(&mut self, at: Time) {
        self.ack_at = Some(self.ack_at.map_or(at, |due| due.min(at)));
    }

    /// The stream of this life of the peer. A new one begins at `floor` with the transmission
    /// `stamp`, and what was held of the old one is dropped: its order is lost.
    fn stream(&mut self, now: Time, epoch: u16, floor: u16, stamp: u16) -> Option<&mut Stream> {
        if self.stream.as_ref().is_none_or(|s| s.epoch != epoch) {
            if self.past.is_some_and(|(past, ended)| past == epoch && now.since(ended) < PAST_LIFE) {
                return None;
            }
            self.past = self.stream.as_ref().map(|s| (s.epoch, now));
            self.stream = Some(Stream::new(epoch, floor, stamp));
            (self.ack_at, self.unacknowledged) = (None, 0);
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
            slots: BTreeMap::new(),
            waits: BTreeSet::new(),
            arrivals: VecDeque::new(),
            begun: BTreeMap::new(),
            held_bytes: 0,
            now: Time::ZERO,
        }
    }

    /// Notes a transmission; true if it is the one after the latest.
    fn pass(&mut self, stamp: u16) -> bool {
        let ahead = stamp.wrapping_sub(self.stamp);
        if ahead as i16 > 0 {
            self.stamp = stamp;
        }
        ahead == 1
    }

    fn insert(&mut self, seq: u64, prev: Option<u64>, chunk: Option<Chunk>, out: &mut Vec<Bytes>) {
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
                self.join(seq, chunk, out);
                self.release_after(seq, out);
            }
        }
        self.settle(out);
        while self.held_bytes > HELD_BYTES_MAX {
            match (self.arrivals.front().copied(), self.oldest_begun()) {
                (Some((_, first)), _) => self.raise_floor(first, out),
                (None, Some((_, seq))) => drop(self.forget(seq)),
                (None, None) => break,
            }
        }
    }

    /// Adds a chunk that has been released to its packet, if those before it are there; a packet
    /// whose last it is goes to `out`. One without bytes ends the packet that waits for it.
    fn join(&mut self, seq: u64, chunk: Option<Chunk>, out: &mut Vec<Bytes>) {
        let begun = self.forget(seq);
        let Some(Chunk { part, bytes }) = chunk else { return };
        let mut begun = match begun {
            _ if part == Part::WHOLE => return out.push(bytes),
            None if part.index() == 0 => Begun { since: self.now, chunks: 0, bytes: BytesMut::new() },
            Some(begun) if part.index() == begun.chunks => begun,
            _ => return,
        };
        begun.bytes.extend_from_slice(&bytes);
        begun.chunks += 1;
        if part.is_last() {
            out.push(begun.bytes.freeze());
        } else {
            self.held_bytes += begun.bytes.len();
            self.begun.insert(seq + 1, begun);
        }
    }

    /// The packet that waits for chunk `seq` waits no more.
    fn forget(&mut self, seq: u64) -> Option<Begun> {
        let begun = self.begun.remove(&seq)?;
        self.held_bytes -= begun.bytes.len();
        Some(begun)
    }

    /// The packet that was begun first, with when: what it waits for.
    fn oldest_begun(&self) -> Option<(Time, u64)> {
        self.begun.iter().map(|(seq, begun)| (begun.since, *seq)).min()
    }

    /// Releases what waits for `done`, and what waits for that.
    fn release_after(&mut self, done: u64, out: &mut Vec<Bytes>) {
        let mut turn = VecDeque::from([done]);
        while let Some(done) = turn.pop_front() {
            while let Some(&(_, seq)) = self.waits.range((done, 0)..=(done, u64::MAX)).next() {
                self.waits.remove(&(done, seq));
                self.release(seq, out);
                turn.push_back(seq);
            }
        }
    }

    fn release(&mut self, seq: u64, out: &mut Vec<Bytes>) {
        if let Some(slot @ Slot::Held(_)) = self.slots.get_mut(&seq)
            && let Slot::Held(chunk) = std::mem::replace(slot, Slot::Released)
        {
            self.held_bytes -= chunk.as_ref().map_or(0, |c| c.bytes.len());
            self.join(seq, chunk, out);
        }
    }

    /// Nothing below `floor` will come any more.
    fn raise_floor(&mut self, floor: u64, out: &mut Vec<Bytes>) {
        if floor <= self.next {
            return;
        }
        self.next = floor;
        self.settle(out);
    }

    /// Moves `next` over what has arrived, and releases what waited for anything below it,
    /// in order of number, which is the order within each flow.
    fn settle(&mut self, out: &mut Vec<Bytes>) {
        loop {
            while let Some(&(prev, seq)) = self.waits.first().filter(|(prev, _)| *prev < self.next) {
                self.waits.remove(&(prev, seq));
                self.release(seq, out);
                self.release_after(seq, out);
            }
            while self.slots.first_key_value().is_some_and(|(seq, _)| *seq < self.next) {
                self.slots.pop_first();
            }
            // One that is still held is released in the next round: what it waits for is below.
            match self.slots.get(&self.next) {
                None => break,
                Some(_) => self.next += 1,
            }
        }
        while self.arrivals.front().is_some_and(|(_, seq)| !matches!(self.slots.get(seq), Some(Slot::Held(_)))) {
            self.arrivals.pop_front();
        }
        // The next chunk of these will not come.
        while let Some((seq, _)) = self.begun.first_key_value().filter(|(seq, _)| **seq < self.next) {
            self.forget(*seq);
        }
    }
}
