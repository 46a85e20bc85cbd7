//! DATA frames: a packet or a chunk of one, numbered, with an optional acknowledgement of the other
//! direction; and that acknowledgement.

use bytes::{BufMut, Bytes};

use super::fields::{Fields, FrameError};

/// The frame type of DATA: this bit; the other seven describe the fields.
pub(super) const DATA: u8 = 0x80;
/// Maximum header length of a DATA frame without an acknowledgement and a context name, in bytes.
pub const DATA_HEADER_MAX: usize = 12;
/// Maximum distance to the previous chunk of the same flow, outstanding or not, for which a frame
/// carries the distance.
pub const PREV_MAX: u64 = 255;
/// Maximum chunks of a packet.
pub const CHUNKS_MAX: u8 = 16;

const POLL: u8 = 0x40;
const WITH_ACK: u8 = 0x20;
pub(super) const WIDE: u8 = 0x10;
pub(super) const VOID: u8 = 0x08;
pub(super) const PART: u8 = 0x04;
pub(super) const SHORT: u8 = 0x02;
pub(super) const CONTEXT: u8 = 0x01;
/// Maximum header compression contexts in one direction.
pub const CONTEXTS_MAX: u8 = 128;
/// The bit of the context byte that marks an offered context.
const OFFERED: u8 = 0x80;

/// A packet, or a chunk of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Data {
    /// Numbers of the chunk and of this transmission.
    pub place: FrameNumbers,
    /// Distance to the previous chunk of the same flow; 0 if none is outstanding or among the last
    /// [`PREV_MAX`]. Always 1, and not sent, in all chunks of a packet but the first.
    pub prev: u16,
    /// Requests an immediate acknowledgement.
    pub poll: bool,
    /// Acknowledgement of the other direction.
    pub ack: Option<Ack>,
    /// The packet, or this chunk of it; `None` if the sender abandoned it.
    pub packet: Option<Bytes>,
    /// Position of this chunk in the packet.
    pub part: Part,
    /// Header compression of the packet, in its first chunk; [`Headers::Full`] in others and
    /// without a packet.
    pub headers: Headers,
}

/// Header compression: most header fields are the same in all packets of a flow (its *context*, RFC
/// 2507), and the peer may know them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Headers {
    /// Headers are uncompressed.
    #[default]
    Full,
    /// Uncompressed; defines the context of this number (range: 0 to 127).
    Offered(u8),
    /// Only the fields that differ; the rest is in the context of this number (range: 0 to 127).
    Brief(u8),
}

impl Headers {
    /// Context byte, if present.
    fn name(self) -> Option<u8> {
        match self {
            Headers::Full => None,
            Headers::Offered(context) => Some(context | OFFERED),
            Headers::Brief(context) => Some(context & !OFFERED),
        }
    }
}

/// Numbers of the chunk and of the transmission. Headers are sent thousands of times, so numbers
/// that the peer can derive are omitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameNumbers {
    /// All numbers in full.
    Full {
        /// Epoch: identifies the sender's current start.
        epoch: u16,
        /// Chunk number (low 16 bits), the same in each retransmission. The chunks of a packet have
        /// consecutive numbers.
        seq: u16,
        /// Transmission number, incremented for every DATA and RTS to a destination.
        stamp: u16,
        /// Distance from `seq` down to the lowest number that may still be sent. Lower numbers that
        /// have not arrived were abandoned.
        back: u16,
    },
    /// Low bytes. Allowed when the peer knows the epoch and all abandoned numbers, and expects
    /// numbers within half a byte's range.
    Short {
        /// Low byte of the chunk number.
        seq: u8,
        /// Low byte of the transmission number.
        stamp: u8,
    },
}

/// Position of a chunk in its packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    index: u8,
    last: u8,
}

impl Part {
    /// The only chunk of a packet.
    pub const WHOLE: Part = Part { index: 0, last: 0 };

    /// Chunk `index` of 0 to `last`; `None` if out of range or above [`CHUNKS_MAX`].
    pub fn new(index: u8, last: u8) -> Option<Part> {
        (index <= last && last < CHUNKS_MAX).then_some(Part { index, last })
    }

    /// Index of this chunk.
    pub fn index(self) -> u8 {
        self.index
    }

    /// Index of the packet's last chunk.
    pub fn last(self) -> u8 {
        self.last
    }

    /// Whether this is the packet's last chunk.
    pub fn is_last(self) -> bool {
        self.index == self.last
    }
}

impl Data {
    /// Header length in bytes.
    pub fn header_len(&self) -> usize {
        let wide = if self.is_wide() { 2 } else { 1 };
        let place = match self.place {
            FrameNumbers::Full { .. } => 6 + wide,
            FrameNumbers::Short { .. } => 2,
        };
        let prev = if self.part.index == 0 { wide } else { 0 };
        let flags = [self.part.last > 0, self.headers != Headers::Full];
        1 + place + prev + flags.map(usize::from).iter().sum::<usize>() + self.ack.as_ref().map_or(0, Ack::len)
    }

    fn is_wide(&self) -> bool {
        let back = if let FrameNumbers::Full { back, .. } = self.place { back } else { 0 };
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
            (matches!(self.place, FrameNumbers::Short { .. }), SHORT),
            (self.headers != Headers::Full, CONTEXT),
        ];
        let distance = |out: &mut Vec<u8>, value: u16| {
            if is_wide { out.put_u16(value) } else { out.put_u8(value as u8) }
        };
        out.put_u8(flags.iter().filter(|(set, _)| *set).fold(DATA, |kind, (_, flag)| kind | flag));
        match self.place {
            FrameNumbers::Full { epoch, seq, stamp, back } => {
                out.put_u16(epoch);
                out.put_u16(seq);
                out.put_u16(stamp);
                distance(out, back);
            }
            FrameNumbers::Short { seq, stamp } => {
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
            true => FrameNumbers::Short { seq: r.u8()?, stamp: r.u8()? },
            false => FrameNumbers::Full { epoch: r.u16()?, seq: r.u16()?, stamp: r.u16()?, back: distance(&mut r)? },
        };
        let part = match kind & PART != 0 {
            false => Part::WHOLE,
            true => {
                let place = r.u8()?;
                Part::new(place >> 4, place & 0x0f).filter(|part| part.last > 0).ok_or(FrameError::Range)?
            }
        };
        let prev = if part.index == 0 { distance(&mut r)? } else { 1 };
        let back = if let FrameNumbers::Full { back, .. } = place { back } else { 0 };
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

/// Maximum length of an acknowledgement's bitmap in bytes, given by its length byte.
pub const BITMAP_MAX: usize = u8::MAX as usize;
/// Maximum number of frames beyond the first missing one that an acknowledgement covers: the limit
/// of the send window.
pub const WINDOW_MAX: u64 = BITMAP_MAX as u64 * 8;
/// Length of an acknowledgement with an empty bitmap, in bytes.
pub const ACK_MIN: usize = 7;

/// Selective acknowledgement: the first missing number, and a bitmap of those beyond it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ack {
    /// Epoch of the *peer* whose frames it acknowledges.
    pub epoch: u16,
    /// Lowest packet number not received.
    pub next: u16,
    /// Transmission number of the latest frame received: earlier unacknowledged transmissions are
    /// lost, since frames keep their order.
    pub echo: u16,
    /// Bit `i % 8` of byte `i / 8`: packet `next + 1 + i` was received. At most [`BITMAP_MAX`]
    /// bytes.
    pub bitmap: Bytes,
}

impl Ack {
    /// Encoded length in bytes, without the frame type.
    pub fn len(&self) -> usize {
        ACK_MIN + self.bitmap.len()
    }

    /// Whether it acknowledges nothing beyond `next`.
    pub fn is_empty(&self) -> bool {
        self.bitmap.is_empty()
    }

    /// Distances beyond `next` of the packets received (1: the one after it).
    pub fn beyond(&self) -> impl Iterator<Item = u64> + '_ {
        let bits =
            self.bitmap.iter().enumerate().flat_map(|(i, byte)| (0..8).map(move |bit| (i * 8 + bit, byte >> bit)));
        bits.filter(|(_, byte)| byte & 1 != 0).map(|(i, _)| i as u64 + 1)
    }

    /// A bitmap of these distances beyond `next`, as far as it reaches.
    pub fn bitmap(beyond: impl Iterator<Item = u64>) -> Bytes {
        let mut bitmap = Vec::new();
        for distance in beyond.filter(|d| (1..=WINDOW_MAX).contains(d)) {
            let (byte, bit) = ((distance - 1) as usize / 8, (distance - 1) % 8);
            if bitmap.len() <= byte {
                bitmap.resize(byte + 1, 0u8);
            }
            bitmap[byte] |= 1 << bit;
        }
        bitmap.into()
    }

    pub(super) fn encode_after(&self, kind: u8, out: &mut Vec<u8>) {
        out.put_u8(kind);
        self.encode(out);
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let bitmap = &self.bitmap[..self.bitmap.len().min(BITMAP_MAX)];
        out.put_u16(self.epoch);
        out.put_u16(self.next);
        out.put_u16(self.echo);
        out.put_u8(bitmap.len() as u8);
        out.put_slice(bitmap);
    }

    pub(super) fn decode(r: &mut Fields) -> Result<Ack, FrameError> {
        let (epoch, next, echo, len) = (r.u16()?, r.u16()?, r.u16()?, usize::from(r.u8()?));
        Ok(Ack { epoch, next, echo, bitmap: r.take(len)? })
    }
}
