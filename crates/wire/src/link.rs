//! Frames of the link protocol: DATA, ACK, RTS, CTS and the hand-off signal, after the plan
//! in NFS/W 95, section 5 (RTS-CTS-DATA-ACK by the driver). Big-endian, without padding;
//! docs/link.md draws them.
//!
//! Every byte is sent over a slow hop, so numbers are 16 bits and the receiver expands them
//! around what it expects next ([`expand`]).

use bytes::{BufMut, Bytes};

/// What is wrong with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// It ends before its fields do.
    #[error("the frame is cut short")]
    Short,
    /// Its first byte is no kind of frame.
    #[error("no kind of frame has the first byte {0:#04x}")]
    Kind(u8),
    /// A field has a value it must not have.
    #[error("a field of the frame is out of range")]
    Range,
    /// Bytes follow where none may.
    #[error("bytes follow the frame")]
    Trailing,
}

/// The longest bitmap of an acknowledgement, in bytes.
pub const BITMAP_MAX: usize = 128;
/// The most frames beyond the first missing one that an acknowledgement can speak of: no
/// sender may be further ahead.
pub const WINDOW_MAX: u64 = BITMAP_MAX as u64 * 8;
/// The longest header of a DATA frame without an acknowledgement on it, in bytes.
pub const DATA_HEADER_MAX: usize = 12;
/// A chunk names the one before it in its flow if that is among so many before it, outstanding or
/// not.
pub const PREV_MAX: u64 = 255;
/// The most chunks of a packet.
pub const CHUNKS_MAX: u8 = 16;
/// An acknowledgement with an empty bitmap, in bytes.
pub const ACK_MIN: usize = 7;

const DATA: u8 = 0x80;
const POLL: u8 = 0x40;
const WITH_ACK: u8 = 0x20;
const WIDE: u8 = 0x10;
const VOID: u8 = 0x08;
const PART: u8 = 0x04;
const SHORT: u8 = 0x02;
/// The bit of a DATA frame's first byte that means nothing: zero.
const SPARE: u8 = 0x01;

const ACK: u8 = 0x01;
const RTS: u8 = 0x02;
const CTS: u8 = 0x03;
const PLAIN: u8 = 0x04;
const HANDOFF_BEGIN: u8 = 0x05;
const HANDOFF_END: u8 = 0x06;
const HANDOFF_ACK: u8 = 0x07;

/// One frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame {
    /// A packet, to be acknowledged.
    Data(Data),
    /// What has arrived.
    Ack(Ack),
    /// Are you there? Sent only while the channel is suspect.
    Rts(Rts),
    /// Yes; and this has arrived.
    Cts(Ack),
    /// A packet sent once, without retransmission.
    Plain(Bytes),
    /// A cell switch begins or ends.
    HandOff(HandOff),
    /// That hand-off signal has arrived.
    HandOffAck(Announcement),
}

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

/// What has arrived of the other end's frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ack {
    /// The life of the *other* end that this speaks of.
    pub epoch: u16,
    /// The lowest packet number that has not arrived.
    pub next: u16,
    /// The stamp of the latest frame that has arrived: what was sent before it and is not
    /// acknowledged is lost, for frames do not overtake one another.
    pub echo: u16,
    /// Bit `i % 8` of byte `i / 8`: packet `next + 1 + i` has arrived. At most [`BITMAP_MAX`].
    pub bitmap: Bytes,
}

/// A probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rts {
    /// Which life of the sender this is.
    pub epoch: u16,
    /// The lowest packet number that may still be sent.
    pub floor: u16,
    /// The transmission's number.
    pub stamp: u16,
}

/// Names one hand-off signal, however often it is repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announcement {
    /// The life of the end that made it.
    pub epoch: u16,
    /// Its number in that life.
    pub id: u16,
}

/// The hand-off signal (planned in NFS/W 95 and NFS/W 97).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandOff {
    /// Its name.
    pub announcement: Announcement,
    /// How long the switch is expected to take, in milliseconds; `None`: it is over.
    pub expected_ms: Option<u32>,
}

/// The number nearest to `near` whose low byte is `low`. Numbers start far above 2^8.
pub fn expand_byte(near: u64, low: u8) -> u64 {
    let ahead = low.wrapping_sub(near as u8) as i8;
    near.wrapping_add_signed(i64::from(ahead))
}

/// The number nearest to `near` whose low 16 bits are `low`. Numbers start far above 2^16.
pub fn expand(near: u64, low: u16) -> u64 {
    let ahead = low.wrapping_sub(near as u16) as i16;
    near.wrapping_add_signed(i64::from(ahead))
}

impl Frame {
    /// Appends the frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Frame::Data(data) => data.encode(out),
            Frame::Ack(ack) => ack.encode_after(ACK, out),
            Frame::Cts(ack) => ack.encode_after(CTS, out),
            Frame::Rts(rts) => {
                out.put_u8(RTS);
                out.put_u16(rts.epoch);
                out.put_u16(rts.floor);
                out.put_u16(rts.stamp);
            }
            Frame::Plain(packet) => {
                out.put_u8(PLAIN);
                out.put_slice(packet);
            }
            Frame::HandOff(HandOff { announcement, expected_ms }) => {
                announcement.encode_after(if expected_ms.is_some() { HANDOFF_BEGIN } else { HANDOFF_END }, out);
                if let Some(ms) = expected_ms {
                    out.put_u32(*ms);
                }
            }
            Frame::HandOffAck(announcement) => announcement.encode_after(HANDOFF_ACK, out),
        }
    }

    /// The frame as bytes.
    pub fn to_bytes(&self) -> Bytes {
        let packet = match self {
            Frame::Data(data) => data.packet.as_ref().map_or(0, Bytes::len),
            Frame::Plain(packet) => packet.len(),
            _ => 0,
        };
        let mut out = Vec::with_capacity(DATA_HEADER_MAX + ACK_MIN + 8 + packet);
        self.encode(&mut out);
        out.into()
    }

    /// Reads a whole frame. The packet in it is a slice of `bytes`.
    pub fn decode(bytes: Bytes) -> Result<Frame, FrameError> {
        let mut r = Fields(bytes);
        let kind = r.u8()?;
        let frame = match kind {
            kind if kind & DATA != 0 => return Data::decode(kind, r).map(Frame::Data),
            PLAIN => return Ok(Frame::Plain(r.0)),
            ACK => Frame::Ack(Ack::decode(&mut r)?),
            CTS => Frame::Cts(Ack::decode(&mut r)?),
            RTS => Frame::Rts(Rts { epoch: r.u16()?, floor: r.u16()?, stamp: r.u16()? }),
            HANDOFF_BEGIN | HANDOFF_END => {
                let announcement = Announcement::decode(&mut r)?;
                let expected_ms = if kind == HANDOFF_BEGIN { Some(r.u32()?) } else { None };
                Frame::HandOff(HandOff { announcement, expected_ms })
            }
            HANDOFF_ACK => Frame::HandOffAck(Announcement::decode(&mut r)?),
            other => return Err(FrameError::Kind(other)),
        };
        if r.0.is_empty() { Ok(frame) } else { Err(FrameError::Trailing) }
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
        1 + place + prev + usize::from(self.part.last > 0) + self.ack.as_ref().map_or(0, Ack::len)
    }

    fn is_wide(&self) -> bool {
        let back = if let Place::Full { back, .. } = self.place { back } else { 0 };
        back.max(self.prev) > u16::from(u8::MAX)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let is_part = self.part.last > 0;
        let is_wide = self.is_wide();
        let flags = [
            (self.poll, POLL),
            (self.ack.is_some(), WITH_ACK),
            (is_wide, WIDE),
            (self.packet.is_none(), VOID),
            (is_part, PART),
            (matches!(self.place, Place::Short { .. }), SHORT),
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
        if let Some(ack) = &self.ack {
            ack.encode(out);
        }
        if let Some(packet) = &self.packet {
            out.put_slice(packet);
        }
    }

    fn decode(kind: u8, mut r: Fields) -> Result<Data, FrameError> {
        if kind & SPARE != 0 {
            return Err(FrameError::Kind(kind));
        }
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
        let ack = if kind & WITH_ACK != 0 { Some(Ack::decode(&mut r)?) } else { None };
        let packet = match kind & VOID != 0 {
            false => Some(r.0),
            true if r.0.is_empty() => None,
            true => return Err(FrameError::Trailing),
        };
        Ok(Data { place, prev, poll: kind & POLL != 0, ack, packet, part })
    }
}

impl Ack {
    /// Bytes on the wire, without the kind of frame.
    pub fn len(&self) -> usize {
        ACK_MIN + self.bitmap.len()
    }

    /// Whether it says nothing beyond `next`.
    pub fn is_empty(&self) -> bool {
        self.bitmap.is_empty()
    }

    /// How far beyond `next` the packets are that have arrived (1: the one after it).
    pub fn beyond(&self) -> impl Iterator<Item = u64> + '_ {
        let bits =
            self.bitmap.iter().enumerate().flat_map(|(i, byte)| (0..8).map(move |bit| (i * 8 + bit, byte >> bit)));
        bits.filter(|(_, byte)| byte & 1 != 0).map(|(i, _)| i as u64 + 1)
    }

    /// A bitmap in which these distances beyond `next` are set; what it cannot hold is left out.
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

    fn encode_after(&self, kind: u8, out: &mut Vec<u8>) {
        out.put_u8(kind);
        self.encode(out);
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let bitmap = &self.bitmap[..self.bitmap.len().min(BITMAP_MAX)];
        out.put_u16(self.epoch);
        out.put_u16(self.next);
        out.put_u16(self.echo);
        out.put_u8(bitmap.len() as u8);
        out.put_slice(bitmap);
    }

    fn decode(r: &mut Fields) -> Result<Ack, FrameError> {
        let (epoch, next, echo, len) = (r.u16()?, r.u16()?, r.u16()?, usize::from(r.u8()?));
        if len > BITMAP_MAX {
            return Err(FrameError::Range);
        }
        Ok(Ack { epoch, next, echo, bitmap: r.take(len)? })
    }
}

impl Announcement {
    fn encode_after(&self, kind: u8, out: &mut Vec<u8>) {
        out.put_u8(kind);
        out.put_u16(self.epoch);
        out.put_u16(self.id);
    }

    fn decode(r: &mut Fields) -> Result<Announcement, FrameError> {
        Ok(Announcement { epoch: r.u16()?, id: r.u16()? })
    }
}

/// Fields not yet read.
struct Fields(Bytes);

impl Fields {
    fn take(&mut self, len: usize) -> Result<Bytes, FrameError> {
        if self.0.len() < len { Err(FrameError::Short) } else { Ok(self.0.split_to(len)) }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        self.take(N)?.first_chunk().copied().ok_or(FrameError::Short)
    }

    fn u8(&mut self) -> Result<u8, FrameError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, FrameError> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, FrameError> {
        self.array().map(u32::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_as_small_as_the_slow_hop_asks_for() {
        let ack = Ack { epoch: 1, next: 2, echo: 3, bitmap: Bytes::new() };
        let (packet, part) = (None, Part::WHOLE);
        let place = Place::Full { epoch: 1, seq: 9, stamp: 9, back: 3 };
        let data = Data { place, prev: 1, poll: true, ack: None, packet, part };
        let chunk = Data { part: Part { index: 2, last: 3 }, ..data.clone() };
        let wide = Data { prev: 300, part: Part { index: 0, last: 3 }, ..data.clone() };
        let short = Data { place: Place::Short { seq: 9, stamp: 9 }, ..data.clone() };
        let short_chunk = Data { part: Part { index: 2, last: 3 }, ..short.clone() };
        let both = Data { ack: Some(ack.clone()), ..data.clone() };
        for (frame, len) in [
            (Frame::Data(data), 9),
            (Frame::Data(chunk), 9),
            (Frame::Data(short), 4),
            (Frame::Data(short_chunk), 4),
            (Frame::Data(wide), DATA_HEADER_MAX),
            (Frame::Data(both), 9 + ACK_MIN),
            (Frame::Ack(ack), 8),
            (Frame::Rts(Rts { epoch: 1, floor: 2, stamp: 3 }), 7),
        ] {
            assert_eq!(frame.to_bytes().len(), len, "{frame:?}");
            if let Frame::Data(data) = &frame {
                assert_eq!(data.header_len(), len);
            }
            assert_eq!(Frame::decode(frame.to_bytes()), Ok(frame));
        }
    }

    #[test]
    fn frames_that_lie_are_errors() {
        let cases: &[(&[u8], FrameError)] = &[
            (&[], FrameError::Short),
            (&[0], FrameError::Kind(0)),
            (&[0x08], FrameError::Kind(8)),
            (&[DATA | 1, 0, 0, 0, 0, 0, 0, 0, 0], FrameError::Kind(0x81)),
            (&[DATA, 0, 0, 0, 0, 0, 0, 0], FrameError::Short),
            (&[DATA | WIDE, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0], FrameError::Range),
            (&[DATA | WIDE, 0, 0, 0, 0, 0, 0, 4, 0, 0, 1], FrameError::Range),
            (&[DATA | PART, 0, 0, 0, 0, 0, 0, 0, 0, 0x00], FrameError::Range),
            (&[DATA | PART, 0, 0, 0, 0, 0, 0, 0, 0x32, 0], FrameError::Range),
            (&[DATA | SHORT, 0, 0], FrameError::Short),
            (&[DATA | VOID, 0, 0, 0, 0, 0, 0, 0, 0, 7], FrameError::Trailing),
            (&[ACK, 0, 0, 0, 0, 0, 0, 129], FrameError::Range),
            (&[ACK, 0, 0, 0, 0, 0, 0, 2, 1], FrameError::Short),
            (&[ACK, 0, 0, 0, 0, 0, 0, 0, 1], FrameError::Trailing),
            (&[HANDOFF_BEGIN, 0, 0, 0, 0, 0, 0], FrameError::Short),
        ];
        for (bytes, error) in cases {
            assert_eq!(Frame::decode(Bytes::copy_from_slice(bytes)), Err(*error), "{bytes:?}");
        }
    }

    #[test]
    fn numbers_expand_to_the_nearest() {
        let near = 0x5_0000;
        for expected in [near, near + 1, near - 1, near + 0x7fff, near - 0x8000, near + 1024] {
            assert_eq!(expand(near, expected as u16), expected);
        }
        for expected in [near, near + 1, near - 1, near + 0x7f, near - 0x80] {
            assert_eq!(expand_byte(near, expected as u8), expected);
        }
    }

    #[test]
    fn a_bitmap_says_what_it_was_made_of() {
        let beyond = [1, 2, 9, 640, WINDOW_MAX];
        let ack =
            Ack { epoch: 0, next: 0, echo: 0, bitmap: Ack::bitmap(beyond.into_iter().chain([0, WINDOW_MAX + 1])) };
        assert_eq!(ack.beyond().collect::<Vec<_>>(), beyond);
        assert_eq!(ack.bitmap.len(), BITMAP_MAX);
    }
}
