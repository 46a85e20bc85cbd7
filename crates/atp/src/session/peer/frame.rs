//! What ATP itself puts on the wire, inside QUIC: the head of an object's stream, and four
//! kinds of DATAGRAM frames (RFC 9221). All numbers are big-endian.
//!
//! ```text
//! stream  : priority u8, size u32, then `size` bytes, then FIN; the way back: FIN when all was
//!           taken, RESET_STREAM when it will not be, and no bytes
//! stamp   : 1 u8, number u16                   in packets of objects: which one it is
//! probe   : 2 u8, number u16, zeros            a stamp whose arrival is to be reported at once
//! last    : 4 u8, number u16                   the same in the last packet of objects there is for now
//! report  : 3 u8, total u64, time u64, then for each packet that arrived, oldest first:
//!           number u16, time after the last one (u24, microseconds), bytes since the last one (u24)
//! ```
//! `total` and `time` (microseconds of the receiver's clock) are those before the first packet
//! of the report. Unknown kinds are ignored, so that there can be more one day.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use remora_base::Time;

use crate::Priority;

/// Bytes of the head of an object.
pub(crate) const HEAD_LEN: usize = 5;
/// Bytes of a stamp or a minimal probe, without the frame header.
pub(crate) const STAMP_LEN: usize = 3;
/// Maximum arrivals in a report. With its frame header it stays within 700 bytes.
pub(crate) const REPORT_MAX: usize = 80;

const REPORT_HEAD: usize = 17;
const ENTRY_LEN: usize = 8;
const U24_MAX: u64 = (1 << 24) - 1;

/// Head of an object's stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ObjectHead {
    pub(crate) priority: Priority,
    pub(crate) size: u32,
}

impl ObjectHead {
    pub(crate) fn encode(self) -> [u8; HEAD_LEN] {
        let [a, b, c, d] = self.size.to_be_bytes();
        [self.priority.level(), a, b, c, d]
    }

    /// Decodes a head; `None` if malformed.
    pub(crate) fn decode(bytes: [u8; HEAD_LEN]) -> Option<ObjectHead> {
        let [level, a, b, c, d] = bytes;
        Some(ObjectHead { priority: Priority::new(level)?, size: u32::from_be_bytes([a, b, c, d]) })
    }
}

/// Arrival of a packet, as the receiver recorded it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PacketArrival {
    /// The packet's stamp.
    pub(crate) number: u16,
    /// Arrival time, by the receiver's clock.
    pub(crate) at: Time,
    /// Total bytes received, including this packet.
    pub(crate) total: u64,
}

/// A message in a DATAGRAM frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum DatagramMessage {
    Stamp(u16),
    Probe(u16),
    Last(u16),
    Report(Vec<PacketArrival>),
}

impl DatagramMessage {
    /// Encodes the message; pads a probe with zeros to `size`.
    pub(crate) fn encode(&self, size: usize) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            DatagramMessage::Stamp(number) => {
                out.put_u8(1);
                out.put_u16(*number);
            }
            DatagramMessage::Last(number) => {
                out.put_u8(4);
                out.put_u16(*number);
            }
            DatagramMessage::Probe(number) => {
                out.put_u8(2);
                out.put_u16(*number);
                out.resize(out.len().max(size), 0);
            }
            DatagramMessage::Report(seen) => encode_report(seen, &mut out),
        }
        out.freeze()
    }

    /// Decodes a message; `None` if unknown or malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<DatagramMessage> {
        let (kind, rest) = bytes.split_first()?;
        match kind {
            1 => Some(DatagramMessage::Stamp(u16::from_be_bytes(rest.try_into().ok()?))),
            2 => Some(DatagramMessage::Probe(u16::from_be_bytes(*rest.first_chunk()?))),
            3 => decode_report(rest).map(DatagramMessage::Report),
            4 => Some(DatagramMessage::Last(u16::from_be_bytes(rest.try_into().ok()?))),
            _ => None,
        }
    }
}

fn encode_report(seen: &[PacketArrival], out: &mut BytesMut) {
    let micros = |t: Time| t.as_nanos() / 1_000;
    let Some(first) = seen.first() else { return };
    out.reserve(REPORT_HEAD + ENTRY_LEN * seen.len());
    out.put_u8(3);
    let (mut total, mut at) = (first.total, micros(first.at));
    out.put_u64(total);
    out.put_u64(at);
    for s in seen.iter().take(REPORT_MAX) {
        out.put_u16(s.number);
        // Values out of range are cut; the estimator sees one slower sample.
        let gap = micros(s.at).saturating_sub(at).min(U24_MAX);
        let more = s.total.saturating_sub(total).min(U24_MAX);
        out.put_uint(gap, 3);
        out.put_uint(more, 3);
        (total, at) = (total + more, at + gap);
    }
}

fn decode_report(bytes: &[u8]) -> Option<Vec<PacketArrival>> {
    let (total, rest) = bytes.split_first_chunk::<8>()?;
    let (at, entries) = rest.split_first_chunk::<8>()?;
    let (entries, []) = entries.as_chunks::<ENTRY_LEN>() else { return None };
    if entries.is_empty() || entries.len() > REPORT_MAX {
        return None;
    }
    let (mut total, mut at) = (u64::from_be_bytes(*total), u64::from_be_bytes(*at));
    let mut seen = Vec::with_capacity(entries.len());
    for [n0, n1, g0, g1, g2, b0, b1, b2] in entries {
        at = at.saturating_add(u32::from_be_bytes([0, *g0, *g1, *g2]).into());
        total = total.saturating_add(u32::from_be_bytes([0, *b0, *b1, *b2]).into());
        let at = Time::ZERO + Duration::from_micros(at);
        seen.push(PacketArrival { number: u16::from_be_bytes([*n0, *n1]), at, total });
    }
    Some(seen)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn heads_come_back_and_nonsense_does_not() {
        let head = ObjectHead { priority: Priority::HIGH, size: 123_456 };
        assert_eq!(ObjectHead::decode(head.encode()), Some(head));
        assert_eq!(ObjectHead::decode([16, 0, 0, 0, 1]), None);
    }

    #[test]
    fn stamps_and_probes_come_back() {
        for (message, size, len) in [
            (DatagramMessage::Stamp(0xfedc), 0, STAMP_LEN),
            (DatagramMessage::Last(0x1234), 0, STAMP_LEN),
            (DatagramMessage::Probe(7), 0, STAMP_LEN),
            (DatagramMessage::Probe(8), 1100, 1100),
        ] {
            let bytes = message.encode(size);
            assert_eq!((bytes.len(), DatagramMessage::decode(&bytes)), (len, Some(message)));
        }
    }

    #[test]
    fn what_is_no_message_is_none() {
        for bad in [
            &[][..],
            &[0],
            &[9, 1, 2],
            &[1],
            &[1, 2],
            &[1, 2, 3, 4],
            &[4, 1],
            &[3],
            &[3; 17],
            &[3; 24],
            &[3; 18 + 8 * 80],
        ] {
            assert_eq!(DatagramMessage::decode(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn reports_come_back(steps in prop::collection::vec((any::<u16>(), 0u64..1 << 24, 0u64..1 << 24), 1..=REPORT_MAX)) {
            let (mut at, mut total) = (Time::from_secs(7), 1_000);
            let seen: Vec<PacketArrival> = steps.iter().map(|&(number, gap, more)| {
                at += Duration::from_micros(gap);
                total += more;
                PacketArrival { number, at, total }
            }).collect();
            let message = DatagramMessage::Report(seen);
            prop_assert_eq!(DatagramMessage::decode(&message.encode(0)), Some(message));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
            let _ = DatagramMessage::decode(&bytes);
        }
    }
}
