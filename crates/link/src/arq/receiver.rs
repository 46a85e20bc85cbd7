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
use remora_wire::link::{ACK_MIN, Ack, Data, FrameNumbers, Part, Rts, SHORT_LATE_MAX, WINDOW_MAX, expand, expand_byte};

use crate::Config;
use crate::arq::release_pacer::{Before, Outlet, Released};
use crate::compression::contexts::Decompressor;
use crate::config::HOLD_MARGIN;

/// Bytes held for reordering; more, and the oldest gap is given up.
const HELD_BYTES_MAX: usize = 4 << 20;
/// How long frames of a peer's last life are told from those of a new one.
const PAST_LIFE: Duration = Duration::from_secs(10);
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
    outlet: Outlet,
}

/// One life of the peer.
#[derive(Clone, Debug)]
struct Stream {
    epoch: u16,
    /// The lowest number that has not arrived and may still come.
    next: u64,
    /// The latest transmission that has arrived.
    stamp: u16,
    decompressor: Decompressor,
    /// What has arrived from `next` on.
    slots: BTreeMap<u64, Slot>,
    /// Who waits for whom: (the previous packet, the one that waits).
    waits: BTreeSet<(u64, u64)>,
    /// When those that wait came, the first one first.
    arrivals: VecDeque<(Time, u64)>,
    /// Packets of which the first chunks have been released, by the number of the next chunk.
    begun: BTreeMap<u64, Begun>,
    held_bytes: usize,
    /// The highest number that was passed over without having arrived, 0 at first.
    skipped: u64,
    /// Complete and in their place: to be taken away.
    released: Vec<Released>,
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
    came: Time,
    /// The chunk before it in its flow.
    prev: Option<u64>,
    part: Part,
    bytes: Bytes,
}

/// The first chunks of a packet.
#[derive(Clone, Debug)]
struct Begun {
    since: Time,
    /// The chunk before its first one in its flow.
    prev: Option<u64>,
    chunks: u8,
    bytes: BytesMut,
}

impl Receiver {
    /// Takes a DATA frame.
    pub(crate) fn data(&mut self, now: Time, data: Data, config: &Config) -> Arrival {
        let (stream, seq, stamp) = match data.place {
            FrameNumbers::Full { epoch, seq, stamp, back } => {
                let floor = seq.wrapping_sub(back);
                let Some(stream) = self.stream(now, epoch, floor, stamp) else { return Arrival::Refused };
                stream.raise_floor(expand(stream.next, floor));
                let seq = expand(stream.next, seq);
                (stream, seq, stamp)
            }
            // Whoever sends such a one was once answered by this end; if that was before this end
            // began anew, it must ask again.
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
        self.let_out(now, config);
        arrival
    }

    /// Takes a probe.
    pub(crate) fn rts(&mut self, now: Time, rts: Rts, config: &Config) -> Arrival {
        let Some(stream) = self.stream(now, rts.epoch, rts.floor, rts.stamp) else { return Arrival::Refused };
        stream.raise_floor(expand(stream.next, rts.floor));
        stream.pass(rts.stamp);
        self.let_out(now, config);
        Arrival::New
    }

    /// The peer has begun anew, whatever number its life has: what was held goes now, as far as it
    /// is complete, and whatever comes is of the new life.
    pub(crate) fn restarted(&mut self) {
        self.end_life();
        self.past = None;
    }

    /// The life of the peer that it hears.
    pub(crate) fn life(&self) -> Option<u16> {
        self.stream.as_ref().map(|s| s.epoch)
    }

    /// Whether frames of this life are refused, for the peer has begun another since.
    pub(crate) fn is_past(&self, now: Time, epoch: u16) -> bool {
        self.past.is_some_and(|(past, ended)| past == epoch && now.since(ended) < PAST_LIFE)
    }

    /// Gives up gaps that nobody will fill any more.
    pub(crate) fn handle_timeout(&mut self, now: Time, config: &Config) {
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
                    stream.raise_floor(seq);
                }
                _ => break,
            }
        }
        self.let_out(now, config);
    }

    /// The next packet that leaves now.
    pub(crate) fn pop(&mut self, now: Time) -> Option<Bytes> {
        self.outlet.pop(now)
    }

    /// When the next packet leaves.
    pub(crate) fn leaves_at(&self) -> Option<Time> {
        self.outlet.next_at()
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
    pub(crate) fn take_ack(&mut self, config: &Config) -> Option<Ack> {
        let ack = self.ack(config)?;
        (self.ack_at, self.unacknowledged) = (None, 0);
        Some(ack)
    }

    /// The same, without taking it as said. A peer with a longer window than this end's is told no more than fits
    /// in a frame.
    pub(crate) fn ack(&self, config: &Config) -> Option<Ack> {
        let Stream { epoch, next, stamp, slots, .. } = self.stream.as_ref()?;
        let reach = config.mtu.saturating_sub(1 + ACK_MIN) as u64 * 8;
        let bitmap = Ack::bitmap(slots.keys().map(|seq| seq - next).take_while(|beyond| *beyond <= reach));
        Some(Ack { epoch: *epoch, next: *next as u16, echo: *stamp, bitmap })
    }

    /// Chunks that wait for an earlier one, and packets that wait for their next.
    pub(crate) fn held(&self) -> usize {
        self.stream.as_ref().map_or(0, |s| s.waits.len() + s.begun.len()) + self.outlet.waiting()
    }

    /// Times a gap was given up because what was behind it had been held long enough.
    pub(crate) fn hold_timeouts(&self) -> u64 {
        self.hold_timeouts
    }

    /// Sends on their way the packets that are in their place.
    fn let_out(&mut self, now: Time, config: &Config) {
        let Some(stream) = &mut self.stream else { return };
        for packet in stream.released.drain(..) {
            let most = config.spacing_max(packet.bytes.len());
            self.outlet.push(now, packet, most);
        }
    }

    /// Nothing more comes of this life. What waits for that was acknowledged, so that nobody sends it again: all
    /// that is complete goes now, in order. Returns the life.
    fn end_life(&mut self) -> Option<u16> {
        let ended = self.stream.take().map(|mut stream| {
            stream.close();
            for packet in stream.released {
                self.outlet.push(stream.now, packet, Duration::ZERO);
            }
            stream.epoch
        });
        self.outlet.open();
        (self.ack_at, self.unacknowledged) = (None, 0);
        ended
    }

    fn want_ack(&mut self, at: Time) {
        self.ack_at = Some(self.ack_at.map_or(at, |due| due.min(at)));
    }

    /// The stream of this life of the peer. A new one begins at `floor` with the transmission
    /// `stamp`, after what was held of the old one.
    fn stream(&mut self, now: Time, epoch: u16, floor: u16, stamp: u16) -> Option<&mut Stream> {
        if self.stream.as_ref().is_none_or(|s| s.epoch != epoch) {
            if self.is_past(now, epoch) {
                return None;
            }
            self.past = self.end_life().map(|epoch| (epoch, now));
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
            begun: BTreeMap::new(),
            held_bytes: 0,
            skipped: 0,
            released: Vec::new(),
            now: Time::ZERO,
        }
    }

    /// Notes a transmission; true if it is the one after the latest.
    ///
    /// None is later than the layer below lets through: what seems to be is far ahead, for while only this
    /// direction is out the other end goes on asking.
    fn pass(&mut self, stamp: u16) -> bool {
        let behind = self.stamp.wrapping_sub(stamp);
        if u64::from(behind) > SHORT_LATE_MAX {
            self.stamp = stamp;
        }
        behind == u16::MAX
    }

    /// Takes a chunk that is new. One that cannot be read has not arrived: its sender will send it
    /// again, in full.
    fn arrive(&mut self, seq: u64, data: Data) -> Arrival {
        let Data { part, headers, .. } = data;
        let packet = data.packet.map(|bytes| self.decompressor.read(headers, bytes, part.last() > 0));
        if packet == Some(None) {
            return Arrival::Refused;
        }
        // `seq` is at least `next`, which is far above any distance of 16 bits.
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
            match (self.arrivals.front().copied(), self.oldest_begun()) {
                (Some((_, first)), _) => self.raise_floor(first),
                (None, Some((_, seq))) => drop(self.forget(seq)),
                (None, None) => break,
            }
        }
    }

    /// Adds a chunk that has been released to its packet, if those before it are there; a packet
    /// whose last it is is complete. One without bytes ends the packet that waits for it.
    fn join(&mut self, seq: u64, chunk: Option<Chunk>) {
        let begun = self.forget(seq);
        let Some(Chunk { came, prev, part, bytes }) = chunk else {
            self.skipped = self.skipped.max(seq);
            return;
        };
        let mut begun = match begun {
            _ if part == Part::WHOLE => return self.complete(came, prev, seq, bytes),
            None if part.index() == 0 => Begun { since: self.now, prev, chunks: 0, bytes: BytesMut::new() },
            Some(begun) if part.index() == begun.chunks => begun,
            _ => return,
        };
        begun.bytes.extend_from_slice(&bytes);
        begun.chunks += 1;
        if part.is_last() {
            self.complete(came, begun.prev, seq, begun.bytes.freeze());
        } else {
            self.held_bytes += begun.bytes.len();
            self.begun.insert(seq + 1, begun);
        }
    }

    /// A packet may go: its last chunk is `last`, and `prev` the one before its first.
    fn complete(&mut self, came: Time, prev: Option<u64>, last: u64, bytes: Bytes) {
        let before = match prev {
            None => Before::Nothing,
            Some(prev) if prev <= self.skipped => Before::Unknown,
            Some(prev) => Before::Chunk(prev),
        };
        self.released.push(Released { came, before, last, bytes });
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

    /// Nothing below `floor` will come any more.
    fn raise_floor(&mut self, floor: u64) {
        if floor <= self.next {
            return;
        }
        self.next = floor;
        self.skipped = self.skipped.max(floor - 1);
        self.settle();
    }

    /// Nothing that has not arrived will come any more.
    fn close(&mut self) {
        if let Some(last) = self.slots.last_key_value().map(|(seq, _)| *seq) {
            self.raise_floor(last + 1);
        }
    }

    /// Moves `next` over what has arrived, and releases what waited for anything below it,
    /// in order of number, which is the order within each flow.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_is_no_longer_than_a_frame() {
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
        // The last that has come is told where a bitmap that reaches it fits.
        for (mtu, last, bitmap) in [(128, 961, 120), (128, 962, 1), (128, 2040, 1), (1450, 2040, 255)] {
            let config = Config { mtu, ..Config::default() };
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
