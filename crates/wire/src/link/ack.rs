//! What has arrived: a number up to which all has, and a bitmap of what has beyond it (selective
//! repeat).

use bytes::{BufMut, Bytes};

use super::FrameError;
use super::fields::Fields;

/// The longest bitmap of an acknowledgement, in bytes: as many as the byte before it can count.
pub const BITMAP_MAX: usize = u8::MAX as usize;
/// The most frames beyond the first missing one that an acknowledgement can speak of: no
/// sender may be further ahead.
pub const WINDOW_MAX: u64 = BITMAP_MAX as u64 * 8;
/// An acknowledgement with an empty bitmap, in bytes.
pub const ACK_MIN: usize = 7;

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
