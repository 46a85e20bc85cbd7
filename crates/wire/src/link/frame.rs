//! Any frame of the link protocol, and the small frames RTS, CTS and the hand-off signal.

use bytes::{BufMut, Bytes};

use super::data::{ACK_MIN, Ack, DATA, DATA_HEADER_MAX, Data};
use super::fields::{Fields, FrameError};

// Frame types other than DATA.
const ACK: u8 = 0x01;
const RTS: u8 = 0x02;
const CTS: u8 = 0x03;
const PLAIN: u8 = 0x04;
const HANDOFF_BEGIN: u8 = 0x05;
const HANDOFF_END: u8 = 0x06;
const HANDOFF_ACK: u8 = 0x07;

/// A frame of any type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame {
    /// A packet, acknowledged by the peer.
    Data(Data),
    /// Acknowledgement of received packets.
    Ack(Ack),
    /// Probe of a channel suspected to be bad: requests a CTS.
    Rts(Rts),
    /// Answer to an RTS, with an acknowledgement.
    Cts(Ack),
    /// A packet sent once, without retransmission.
    Plain(Bytes),
    /// Begin or end of a hand-off.
    HandOff(HandOff),
    /// Acknowledgement of a hand-off signal.
    HandOffAck(Announcement),
}

/// A probe of a suspect channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rts {
    /// Epoch: identifies the sender's current start.
    pub epoch: u16,
    /// Lowest packet number that may still be sent.
    pub floor: u16,
    /// Number of the transmission.
    pub stamp: u16,
}

/// Identifier of one hand-off signal, the same in repetitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announcement {
    /// Epoch of the signal's sender.
    pub epoch: u16,
    /// Number within the epoch.
    pub id: u16,
}

/// The hand-off signal (planned in NFS/W 95 and NFS/W 97).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandOff {
    /// Identifier of the signal.
    pub announcement: Announcement,
    /// Expected duration of the hand-off in milliseconds; `None` at its end.
    pub expected_ms: Option<u32>,
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

    /// The encoded frame.
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

    /// Decodes a frame. Its packet is a slice of `bytes`.
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
mod tests {
    use super::super::data::{BITMAP_MAX, CONTEXT, FrameNumbers, Headers, PART, Part, SHORT, VOID, WIDE, WINDOW_MAX};
    use super::super::fields::{SHORT_AHEAD_MAX, SHORT_LATE_MAX, expand, expand_byte};
    use super::*;

    #[test]
    fn header_has_its_documented_size() {
        let ack = Ack { epoch: 1, next: 2, echo: 3, bitmap: Bytes::new() };
        let of_four = |index| Part::new(index, 3).unwrap();
        let place = FrameNumbers::Full { epoch: 1, seq: 9, stamp: 9, back: 3 };
        let headers = Headers::Full;
        let data = Data { place, prev: 1, poll: true, ack: None, packet: None, part: Part::WHOLE, headers };
        let named = |headers| Data { packet: Some(Bytes::new()), headers, ..data.clone() };
        let (brief, offered) = (named(Headers::Brief(127)), named(Headers::Offered(0)));
        let chunk = Data { part: of_four(2), ..data.clone() };
        let wide = Data { prev: 300, part: of_four(0), ..data.clone() };
        let short = Data { place: FrameNumbers::Short { seq: 9, stamp: 9 }, ..data.clone() };
        let short_chunk = Data { part: of_four(2), ..short.clone() };
        let both = Data { ack: Some(ack.clone()), ..data.clone() };
        for (frame, len) in [
            (Frame::Data(data), 9),
            (Frame::Data(brief), 10),
            (Frame::Data(offered), 10),
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
    fn malformed_frame_is_refused() {
        let cases: &[(&[u8], FrameError)] = &[
            (&[], FrameError::Short),
            (&[0], FrameError::Kind(0)),
            (&[0x08], FrameError::Kind(8)),
            (&[DATA | CONTEXT, 0, 0, 0, 0, 0, 0, 0, 0], FrameError::Short),
            (&[DATA | CONTEXT | VOID, 0, 0, 0, 0, 0, 0, 0, 0, 0], FrameError::Range),
            (&[DATA | CONTEXT | PART, 0, 0, 0, 0, 0, 0, 0, 0x11, 0], FrameError::Range),
            (&[DATA, 0, 0, 0, 0, 0, 0, 0], FrameError::Short),
            (&[DATA | WIDE, 0, 0, 0, 0, 0, 0, 0, 0, 0x07, 0xf8], FrameError::Range),
            (&[DATA | WIDE, 0, 0, 0, 0, 0, 0, 0x07, 0xf8, 0, 1], FrameError::Range),
            (&[DATA | PART, 0, 0, 0, 0, 0, 0, 0, 0, 0x00], FrameError::Range),
            (&[DATA | PART, 0, 0, 0, 0, 0, 0, 0, 0x32, 0], FrameError::Range),
            (&[DATA | SHORT, 0, 0], FrameError::Short),
            (&[DATA | VOID, 0, 0, 0, 0, 0, 0, 0, 0, 7], FrameError::Trailing),
            (&[ACK, 0, 0, 0, 0, 0, 0, 2, 1], FrameError::Short),
            (&[ACK, 0, 0, 0, 0, 0, 0, 0, 1], FrameError::Trailing),
            (&[HANDOFF_BEGIN, 0, 0, 0, 0, 0, 0], FrameError::Short),
        ];
        for (bytes, error) in cases {
            assert_eq!(Frame::decode(Bytes::copy_from_slice(bytes)), Err(*error), "{bytes:?}");
        }
    }

    #[test]
    fn truncated_number_expands_to_the_nearest() {
        let near = 0x5_0000;
        for expected in [near, near + 1, near - 1, near + 0x7fff, near - 0x8000, near + 1024] {
            assert_eq!(expand(near, expected as u16), expected);
        }
        let latest = near - SHORT_AHEAD_MAX - SHORT_LATE_MAX;
        for expected in [near, near + 1, near - 1, near + SHORT_AHEAD_MAX, latest] {
            assert_eq!(expand_byte(near, expected as u8), expected);
        }
    }

    #[test]
    fn bitmap_holds_the_numbers_it_was_built_from() {
        let beyond = [1, 2, 9, 640, WINDOW_MAX];
        let ack =
            Ack { epoch: 0, next: 0, echo: 0, bitmap: Ack::bitmap(beyond.into_iter().chain([0, WINDOW_MAX + 1])) };
        assert_eq!(ack.beyond().collect::<Vec<_>>(), beyond);
        assert_eq!(ack.bitmap.len(), BITMAP_MAX);
    }
}
