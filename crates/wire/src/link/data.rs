//! DATA: a packet or a chunk of one, numbered, with an acknowledgement of the other direction on it
//! if there is something to say.

use bytes::{BufMut, Bytes};

use super::ack::{Ack, WINDOW_MAX};
use super::fields::Fields;
use super::{DATA, FrameError};

/// The longest header of a DATA frame without an acknowledgement on it and without the name of a
/// context, in bytes.
pub const DATA_HEADER_MAX: usize = 12;
/// A chunk names the one before it in its flow if that is among so many before it, outstanding or
/// not.
pub const PREV_MAX: u64 = 255;
/// The most chunks of a packet.
pub const CHUNKS_MAX: u8 = 16;

const POLL: u8 = 0x40;
const WITH_ACK: u8 = 0x20;
pub(super) const WIDE: u8 = 0x10;
pub(super) const VOID: u8 = 0x08;
pub(super) const PART: u8 = 0x04;
pub(super) const SHORT: u8 = 0x02;
pub(super) const CONTEXT: u8 = 0x01;
/// How many contexts there may be in one direction.
pub const CONTEXTS_MAX: u8 = 128;
/// The bit of the byte that names a context that says whether it is offered.
const OFFERED: u8 = 0x80;

/// A packet, or a chunk of one, with its place in its flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Data {
    /// Which chunk and which transmission this is.
    pub place: Place,
    /// How far below its number that of the previous chunk of the same flow is; 0: none is
    /// outstanding, and none is among the last [`PREV_MAX`]. 1 in all chunks of a packet but
    /// the first, and not sent with them.
    pub prev: u16,
    /// The sender asks for an acknowledgement at once.
    pub poll: bool,
    /// An acknowledgement of the other direction.
    pub ack: Option<Ack>,
    /// The packet, or this chunk of it; `None`: it was abandoned, and nobody is to wait for it.
    pub packet: Option<Bytes>,
    /// Which chunk this is.
    pub part: Part,
    /// How the headers of the packet are told. They are in the first chunk; in others, and where
    /// there is no packet, it is [`Headers::Full`].
    pub headers: Headers,
}

/// How the headers of a packet are told: most of what is in them is the same in all packets of a
/// flow (its *context*, as RFC 2507 calls it), and the other end may know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Headers {
    /// As they are.
    #[default]
    Full,
    /// As they are, and their context has this name (range: 0 to 127) from now on.
    Offered(u8),
    /// What differs from packet to packet; the rest is in the context of this name (range: 0 to
    /// 127).
    Brief(u8),
}

impl Headers {
    /// The byte that tells it, if there is one.
    fn name(self) -> Option<u8> {
        match self {
            Headers::Full => None,
            Headers::Offered(context) => Some(context | OFFERED),
            Headers::Brief(context) => Some(context & !OFFERED),
        }
    }
}

/// Which chunk this is, and which transmission. Every byte of a header is sent thousands of times,
/// so what the other end knows goes without saying.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Said in full.
    Full {
        /// Which life of the sender this is.
        epoch: u16,
        /// The chunk's number (its low 16 bits): the same in each retransmission. The chunks of a
        /// packet have numbers one after another.
        seq: u16,
        /// The transmission's number: every DATA and RTS to a destination has the next one.
        stamp: u16,
        /// How far below `seq` the lowest number is that may still be sent. What is lower and
        /// has not arrived was abandoned.
        back: u16,
    },
    /// The low bytes. The other end knows this life, has been told of everything abandoned, and
    /// expects numbers that are less than half a byte's range away.
    Short {
        /// Of the chunk's number.
        seq: u8,
        /// Of the transmission's.
        stamp: u8,
    },
}

/// A chunk's place in its packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    index: u8,
    last: u8,
}

impl Part {
    /// The only chunk of its packet.
    pub const WHOLE: Part = Part { index: 0, last: 0 };

    /// Chunk `index` of those from 0 to `last`; `None` if there is no such chunk, or if there
    /// are more than [`CHUNKS_MAX`].
    pub fn new(index: u8, last: u8) -> Option<Part> {
        (index <= last && last < CHUNKS_MAX).then_some(Part { index, last })
    }

    /// Which one it is, from 0.
    pub fn index(self) -> u8 {
        self.index
    }

    /// The index of the packet's last chunk.
    pub fn last(self) -> u8 {
        self.last
    }

    /// Whether no other follows.
    pub fn is_last(self) -> bool {
        self.index == self.last
    }
}

impl Data {
    /// Bytes in front of the packet.
    pub fn header_len(&self) -> usize {
        let wide = if self.is_wide() { 2 } else { 1 };
        let place = match self.place {
            Place::Full { .. } => 6 + wide,
            Place::Short { .. } => 2,
        };
        let prev = if self.part.index == 0 { wide } else { 0 };
        let flags = [self.part.last > 0, self.headers != Headers::Full];
        1 + place + prev + flags.map(usize::from).iter().sum::<usize>() + self.ack.as_ref().map_or(0, Ack::len)
    }

    fn is_wide(&self) -> bool {
        let back = if let Place::Full { back, .. } = self.place { back } else { 0 };
        back.max(self.prev) > u16::from(u8::MAX)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let is_part = self.part.last > 0;
        let is_wide = self.is_wide();
        let flags = [
            (self.poll, POLL),
            (self.ack.is_some(), WITH_ACK),
            (is_wide, WIDE),
            (self.packet.is_none(), VOID),
            (is_part, PART),
            (matches!(self.place, Place::Short { .. }), SHORT),
            (self.headers != Headers::Full, CONTEXT),
        ];
        let distance = |out: &mut Vec<u8>, value: u16| {
            if is_wide { out.put_u16(value) } else { out.put_u8(value as u8) }
        };
        out.put_u8(flags.iter().filter(|(set, _)| *set).fold(DATA, |kind, (_, flag)| kind | flag));
        match self.place {
            Place::Full { epoch, seq, stamp, back } => {
                out.put_u16(epoch);
                out.put_u16(seq);
                out.put_u16(stamp);
                distance(out, back);
            }
            Place::Short { seq, stamp } => {
                out.put_u8(seq);
                out.put_u8(stamp);
            }
        }
        if is_part {
            out.put_u8(self.part.index << 4 | self.part.last);
        }
        if self.part.index == 0 {
            distance(out, self.prev);
        }
        out.extend(self.headers.name());
        if let Some(ack) = &self.ack {
            ack.encode(out);
        }
        if let Some(packet) = &self.packet {
            out.put_slice(packet);
        }
    }

    pub(super) fn decode(kind: u8, mut r: Fields) -> Result<Data, FrameError> {
        let distance = |r: &mut Fields| match kind & WIDE != 0 {
            true => r.u16(),
            false => r.u8().map(u16::from),
        };
        let place = match kind & SHORT != 0 {
            true => Place::Short { seq: r.u8()?, stamp: r.u8()? },
            false => Place::Full { epoch: r.u16()?, seq: r.u16()?, stamp: r.u16()?, back: distance(&mut r)? },
        };
        let part = match kind & PART != 0 {
            false => Part::WHOLE,
            true => {
                let place = r.u8()?;
                Part::new(place >> 4, place & 0x0f).filter(|part| part.last > 0).ok_or(FrameError::Range)?
            }
        };
        let prev = if part.index == 0 { distance(&mut r)? } else { 1 };
        let back = if let Place::Full { back, .. } = place { back } else { 0 };
        if u64::from(back.max(prev)) >= WINDOW_MAX {
            return Err(FrameError::Range);
        }
        let headers = match kind & CONTEXT != 0 {
            false => Headers::Full,
            true if part.index > 0 || kind & VOID != 0 => return Err(FrameError::Range),
            true => match r.u8()? {
                name if name & OFFERED != 0 => Headers::Offered(name & !OFFERED),
                name => Headers::Brief(name),
            },
        };
        let ack = if kind & WITH_ACK != 0 { Some(Ack::decode(&mut r)?) } else { None };
        let packet = match kind & VOID != 0 {
            false => Some(r.rest()),
            true if r.is_empty() => None,
            true => return Err(FrameError::Trailing),
        };
        Ok(Data { place, prev, poll: kind & POLL != 0, ack, packet, part, headers })
    }
}
