//! Frames of the link protocol: DATA, ACK, RTS, CTS and the hand-off signal, after the plan
//! in NFS/W 95, section 5 (RTS-CTS-DATA-ACK by the driver). Big-endian, without padding;
//! docs/guide/link.md draws them.
//!
//! Every byte is sent over a slow hop, so numbers are 16 bits and the receiver expands them
//! around what it expects next ([`expand`]).

mod ack;
mod data;
mod fields;

use bytes::{BufMut, Bytes};

pub use ack::{ACK_MIN, Ack, BITMAP_MAX, WINDOW_MAX};
pub use data::{CHUNKS_MAX, CONTEXTS_MAX, DATA_HEADER_MAX, Data, Headers, PREV_MAX, Part, Place};
use fields::Fields;

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

// The first byte: this bit, and seven for what is in the frame; or one of those below.
const DATA: u8 = 0x80;

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

/// How far ahead of what the other end has seen a number may be that is told by its low byte.
pub const SHORT_AHEAD_MAX: u64 = 96;
/// How many later frames of its sender may have come before one whose numbers are told by their low
/// bytes: their receiver has gone on by as many, and by [`SHORT_AHEAD_MAX`]. The layer below sees to it.
pub const SHORT_LATE_MAX: u64 = 63;

/// The number whose low byte is `low`, from [`SHORT_AHEAD_MAX`] above `near` down to as far below as a
/// frame can be late. Numbers start far above 2^8.
pub fn expand_byte(near: u64, low: u8) -> u64 {
    // All 256 are used: up to 96 above, and up to 96 + 63 below.
    let middle = near.wrapping_add(SHORT_AHEAD_MAX).wrapping_sub(i8::MAX as u64);
    let ahead = low.wrapping_sub(middle as u8) as i8;
    middle.wrapping_add_signed(i64::from(ahead))
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
        let mut r = Fields::of(bytes);
        let kind = r.u8()?;
        let frame = match kind {
            kind if kind & DATA != 0 => return Data::decode(kind, r).map(Frame::Data),
            PLAIN => return Ok(Frame::Plain(r.rest())),
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
        if r.is_empty() { Ok(frame) } else { Err(FrameError::Trailing) }
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

#[cfg(test)]
mod tests;
