//! The sending half: numbered chunks of packets until they are acknowledged or given up
//! (selective repeat; retransmission limited by attempts and by lifetime, RFC 3366). A packet
//! longer than a frame is cut into chunks; who gives up one gives up the packet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_wire::link::{Ack, CHUNKS_MAX, Data, FrameNumbers, Headers, PREV_MAX, Part, Rts, SHORT_AHEAD_MAX, expand};

use crate::arq::flight::{Flight, Tx};
use crate::compression::contexts::{Compressor, Form, Start};
use crate::pacing::pacer::Departure;
use crate::queueing::queue::Waiting;
use crate::{Config, GaveUp, Packet};

/// The most numbers given out beyond what the other end is known to have or to have given up: both ends expand what
/// is on the wire around what they know, and while one direction alone is out much is sent and given up.
const UNHEARD_MAX: u64 = 1 << 14;

/// The sending half of one destination.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    epoch: u16,
    /// Whether the peer has acknowledged anything of this life.
    known: bool,
    /// The number of the next chunk.
    next: u64,
    /// Everything below this has arrived, as far as the peer has said.
    arrived: u64,
    /// Numbered and not acknowledged, from the lowest that may still be sent.
    outstanding: BTreeMap<u64, Sent>,
    /// Those of them to be sent, again or for the first time.
    due: BTreeSet<u64>,
    /// The highest floor that was told.
    told: u64,
    flight: Flight,
    compressor: Compressor,
    flows: BTreeMap<u64, Tail>,
    /// Flows of which nothing is outstanding any more, by their last chunk: forgotten later.
    idle: BTreeMap<u64, u64>,
    gave_up: GaveUp,
    /// Answers in a row that told of long frames lost and of none that arrived.
    long_lost: u64,
}

/// The last chunk of a flow, and how many of it are outstanding.
#[derive(Clone, Copy, Debug)]
struct Tail {
    last: u64,
    outstanding: u32,
}

#[derive(Clone, Debug)]
struct Sent {
    flow: u64,
    /// `None`: given up, while a lower number is still being sent. Its empty frame tells the
    /// receiver not to wait for it.
    packet: Option<Bytes>,
    part: Part,
    /// The whole packet's length.
    total: usize,
    /// Whether its frame is one that some hops do not carry.
    is_long: bool,
    /// How its headers went the last time.
    form: Form,
    /// How far back the previous chunk of the flow is; 0: none was outstanding.
    prev: u16,
    expires: Time,
    attempts: u32,
    attempts_max: u32,
    /// Its latest transmission.
    stamp: u64,
}

impl Sent {
    /// The numbers of its packet's first chunk and its last, where this one's is `seq`.
    fn packet_of(&self, seq: u64) -> (u64, u64) {
        let first = seq - u64::from(self.part.index());
        (first, first + u64::from(self.part.last()))
    }
}

/// What an acknowledgement told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// Packets newly acknowledged.
    pub(crate) packets: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Whether some of them were long.
    long: bool,
    /// Transmissions resolved, in order: whether each DATA frame was lost.
    pub(crate) fates: Vec<bool>,
    /// The transmission echoed, if it was still unresolved.
    pub(crate) echoed: Option<Tx>,
}

impl Sender {
    /// A sender in the life `epoch`, whose numbers begin at `first`.
    pub(crate) fn new(epoch: u16, first: u16) -> Sender {
        let first = (1 << 32) + u64::from(first);
        Sender {
            epoch,
            known: false,
            next: first,
            arrived: first,
            outstanding: BTreeMap::new(),
            due: BTreeSet::new(),
            told: first,
            flight: Flight::new(first),
            compressor: Compressor::default(),
            flows: BTreeMap::new(),
            idle: BTreeMap::new(),
            gave_up: GaveUp::default(),
            long_lost: 0,
        }
    }

    /// Its life.
    pub(crate) fn epoch(&self) -> u16 {
        self.epoch
    }

    /// The peer has begun anew and knows nothing: everything is said in full until it answers. What was sent is given
    /// up, for its last life may have delivered it.
    pub(crate) fn peer_restarted(&mut self) {
        let sent = |(seq, sent): (&u64, &Sent)| (sent.attempts > 0 && sent.packet.is_some()).then_some(*seq);
        for seq in self.outstanding.iter().filter_map(sent).collect::<Vec<_>>() {
            self.gave_up.restart += u64::from(self.give_up(seq));
        }
        self.sink();
        self.known = false;
        self.told = 0;
        self.compressor.forgotten();
    }

    /// The transmissions whose fate is open.
    pub(crate) fn flight(&self) -> &Flight {
        &self.flight
    }

    /// Whether something is numbered and not acknowledged.
    pub(crate) fn is_at_work(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Packets sent, or begun, and not acknowledged.
    pub(crate) fn unacknowledged(&self) -> usize {
        let chunks = self.outstanding.iter().filter(|(_, sent)| sent.packet.is_some());
        let firsts = chunks.map(|(seq, sent)| sent.packet_of(*seq).0);
        // The chunks of a packet follow one another.
        firsts.fold((0, None), |(packets, last), first| (packets + usize::from(last != Some(first)), Some(first))).0
    }

    /// Answers in a row that told of long frames lost and of none that arrived.
    pub(crate) fn long_lost(&self) -> u64 {
        self.long_lost
    }

    /// Whether the window has room for another packet, and the other end will know its number.
    pub(crate) fn has_room(&self, config: &Config) -> bool {
        self.next - self.floor() < config.window() && self.next - self.arrived < UNHEARD_MAX
    }

    /// Whether something of this flow is to be sent before what waits.
    pub(crate) fn lacks(&self, flow: u64) -> bool {
        self.due.iter().any(|seq| self.outstanding.get(seq).is_some_and(|sent| sent.flow == flow))
    }

    /// Whether something that has its number is to be sent.
    pub(crate) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Whether the peer may still wait for packets that were given up.
    pub(crate) fn owes_floor(&self) -> bool {
        self.arrived < self.floor()
    }

    /// Whether it does, and has not been told that it need not.
    pub(crate) fn must_tell_floor(&self) -> bool {
        self.owes_floor() && self.told < self.floor()
    }

    /// What was given up since this was last asked.
    pub(crate) fn take_gave_up(&mut self) -> GaveUp {
        std::mem::take(&mut self.gave_up)
    }

    /// Cuts a packet into chunks that are to be sent and gives them their numbers.
    ///
    /// If it is not `ordered` it does not wait for what is before it in its flow. It lives for `least` at least.
    pub(crate) fn admit(&mut self, waiting: Waiting, ordered: bool, least: Duration, config: &Config) {
        let Packet { flow, class, mut bytes, .. } = waiting.packet;
        let limits = config.limits.get(class);
        let total = bytes.len();
        let chunks = bytes.len().div_ceil(config.chunk_max()).clamp(1, usize::from(CHUNKS_MAX)) as u8;
        for index in 0..chunks {
            let seq = self.next;
            self.next += 1;
            self.forget_flows();
            let tail = self.flows.entry(flow).or_insert(Tail { last: seq, outstanding: 0 });
            self.idle.remove(&tail.last);
            // The window is shorter than 2^16, and the tail is within it or idle.
            let prev = if ordered || index > 0 { (seq - tail.last) as u16 } else { 0 };
            *tail = Tail { last: seq, outstanding: tail.outstanding + 1 };
            let chunk = bytes.split_to(bytes.len().min(config.chunk_max()));
            let sent = Sent {
                flow,
                is_long: config.is_long(chunk.len()),
                packet: Some(chunk),
                part: Part::new(index, chunks - 1).unwrap_or(Part::WHOLE),
                total,
                form: Form::Full,
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

    /// Forgets the flows that have been idle for so long that their last chunk need not be named by the latest.
    fn forget_flows(&mut self) {
        while let Some(entry) = self.idle.first_entry().filter(|e| *e.key() + PREV_MAX < self.next - 1) {
            self.flows.remove(&entry.remove());
        }
    }

    /// The number of the next chunk that is admitted.
    pub(crate) fn next_number(&self) -> u64 {
        self.next
    }

    /// Takes this chunk out of those that are to be sent.
    pub(crate) fn take(&mut self, seq: u64) -> Option<u64> {
        self.due.take(&seq)
    }

    /// The next chunk to be sent, after giving up those whose limits are reached.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<u64> {
        while let Some(seq) = self.due.pop_first() {
            self.give_up_if_due(now, seq);
            self.sink();
            if self.outstanding.contains_key(&seq) {
                return Some(seq);
            }
        }
        None
    }

    /// Gives up everything that is too old.
    pub(crate) fn expire(&mut self, now: Time) {
        let old = |(seq, sent): (&u64, &Sent)| (sent.packet.is_some() && now > sent.expires).then_some(*seq);
        for seq in self.outstanding.iter().filter_map(old).collect::<Vec<_>>() {
            self.give_up_if_due(now, seq);
        }
        self.sink();
    }

    /// The frame that carries packet `seq` now. The caller sends it and says so with
    /// [`sent`](Sender::sent).
    pub(crate) fn frame(&mut self, now: Time, seq: u64, poll: bool, config: &Config) -> Option<Data> {
        let place = self.place(seq);
        let sent = self.outstanding.get_mut(&seq)?;
        let (packet, part) = (sent.packet.clone(), sent.part);
        let mut data = Data { place, prev: sent.prev, poll, ack: None, packet, part, headers: Headers::Full };
        // What went without a name keeps none: one in it now would count as known when the first
        // has arrived, which did not tell it.
        let was_full = sent.attempts > 0 && sent.form == Form::Full;
        sent.form = Form::Full;
        if let Some(bytes) = data.packet.as_ref().filter(|_| part.index() == 0 && !was_full) {
            let start = Start { bytes, total: sent.total, again: sent.attempts > 0 };
            let (form, bytes) = self.compressor.shape(now, start, config.quiet());
            // There is room for the name but where distances are long.
            if data.header_len() + 1 + bytes.len() <= config.mtu {
                (sent.form, data.headers, data.packet) = (form, form.headers(), Some(bytes));
            }
        }
        Some(data)
    }

    /// Which chunk and transmission this is, as short as the other end understands it: it is
    /// known to have all that is below `arrived` and to have seen the stamp last echoed.
    fn place(&mut self, seq: u64) -> FrameNumbers {
        let stamp = self.flight.next_stamp();
        if self.known && !self.owes_floor() && (self.next - self.arrived).max(self.flight.ahead()) <= SHORT_AHEAD_MAX {
            return FrameNumbers::Short { seq: seq as u8, stamp: stamp as u8 };
        }
        let floor = self.floor();
        self.told = floor;
        let back = (seq - floor) as u16;
        FrameNumbers::Full { epoch: self.epoch, seq: seq as u16, stamp: stamp as u16, back }
    }

    /// Notes that packet `seq` was sent; true if it was not for the first time.
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

    /// Nobody will tell what became of that transmission: if it was its packet's latest, it counts
    /// as lost. (While only our direction is out, probes push data out of the log.)
    fn forgotten(&mut self, gone: Option<Tx>) {
        let Some(Tx { seq: Some(seq), stamp, .. }) = gone else { return };
        if self.outstanding.get(&seq).is_some_and(|sent| sent.stamp == stamp) {
            self.due.insert(seq);
        }
    }

    /// A probe. The caller sends it and says so with [`probed`](Sender::probed).
    pub(crate) fn rts(&mut self) -> Rts {
        self.told = self.floor();
        Rts { epoch: self.epoch, floor: self.told as u16, stamp: self.flight.next_stamp() as u16 }
    }

    /// Notes that a probe was sent.
    pub(crate) fn probed(&mut self, departure: Departure) {
        let gone = self.flight.push(None, true, departure);
        self.forgotten(gone);
    }

    /// Takes an acknowledgement; one of another life tells nothing.
    pub(crate) fn acknowledged(&mut self, ack: &Ack) -> Told {
        let mut told = Told::default();
        if ack.epoch != self.epoch {
            return told;
        }
        let next = expand(self.arrived, ack.next);
        if next > self.next {
            return told;
        }
        self.known = true;
        self.arrived = self.arrived.max(next);
        while let Some(entry) = self.outstanding.first_entry().filter(|e| *e.key() < next) {
            let seq = *entry.key();
            self.remove(seq, &mut told);
        }
        for distance in ack.beyond() {
            self.remove(next + distance, &mut told);
        }
        self.sink();
        let mut lost_long = false;
        while let Some(tx) = self.flight.resolve(ack.echo) {
            if let Some(seq) = tx.seq {
                let lost = self.outstanding.get(&seq).filter(|sent| sent.stamp == tx.stamp);
                if let Some(sent) = lost {
                    self.due.insert(seq);
                    self.compressor.lost(sent.form);
                    lost_long |= sent.is_long;
                }
                told.fates.push(lost.is_some());
            }
            if tx.stamp as u16 == ack.echo {
                told.echoed = Some(tx);
            }
        }
        self.long_lost = if told.long { 0 } else { self.long_lost.saturating_add(u64::from(lost_long)) };
        told
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

    /// Gives up the packet of chunk `seq`; true unless it was given up before.
    fn give_up(&mut self, seq: u64) -> bool {
        let Some(sent) = self.outstanding.get(&seq).filter(|s| s.packet.is_some()) else { return false };
        let (first, last) = sent.packet_of(seq);
        for (_, chunk) in self.outstanding.range_mut(first..=last) {
            chunk.packet = None;
        }
        true
    }

    /// Lets the floor rise over what was given up.
    fn sink(&mut self) {
        while let Some(entry) = self.outstanding.first_entry().filter(|e| e.get().packet.is_none()) {
            let seq = *entry.key();
            self.remove(seq, &mut Told::default());
        }
    }

    fn remove(&mut self, seq: u64, told: &mut Told) {
        let Some(sent) = self.outstanding.remove(&seq) else { return };
        self.due.remove(&seq);
        if let Some(packet) = &sent.packet {
            self.compressor.arrived(sent.form);
            told.long |= sent.is_long;
            let (first, last) = sent.packet_of(seq);
            let is_whole = first == last || self.outstanding.range(first..=last).next().is_none();
            told.packets += u64::from(is_whole);
            told.bytes += packet.len() as u64;
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
