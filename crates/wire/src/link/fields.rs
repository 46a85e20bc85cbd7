//! Fields of a frame: decoding, and the expansion of truncated numbers.

use bytes::Bytes;

/// An error of decoding a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// The frame ends before its fields.
    #[error("the frame is truncated")]
    Short,
    /// Unknown frame type.
    #[error("unknown frame type {0:#04x}")]
    Kind(u8),
    /// A field is out of range.
    #[error("a field of the frame is out of range")]
    Range,
    /// Bytes follow the frame.
    #[error("bytes follow the frame")]
    Trailing,
}

/// Fields of a frame not yet decoded.
pub(super) struct Fields(Bytes);

impl Fields {
    /// All fields of a frame.
    pub(super) fn of(frame: Bytes) -> Fields {
        Fields(frame)
    }

    /// Whether all fields are decoded.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rest of the frame.
    pub(super) fn rest(self) -> Bytes {
        self.0
    }

    pub(super) fn take(&mut self, len: usize) -> Result<Bytes, FrameError> {
        if self.0.len() < len { Err(FrameError::Short) } else { Ok(self.0.split_to(len)) }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        self.take(N)?.first_chunk().copied().ok_or(FrameError::Short)
    }

    pub(super) fn u8(&mut self) -> Result<u8, FrameError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, FrameError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, FrameError> {
        self.array().map(u32::from_be_bytes)
    }
}

/// Maximum distance of a number sent as a low byte above the peer's latest.
pub const SHORT_AHEAD_MAX: u64 = 96;
/// Maximum number of later frames that may overtake a frame with low-byte numbers: the receiver may
/// have advanced by as many, and by [`SHORT_AHEAD_MAX`]. The layer below guarantees it.
pub const SHORT_LATE_MAX: u64 = 63;

/// Expands the low byte of a number, at most [`SHORT_AHEAD_MAX`] above `near` and as far below as a
/// frame can be late. Numbers start far above 2^8.
pub fn expand_byte(near: u64, low: u8) -> u64 {
    // All 256 values are used: up to 96 above, and up to 96 + 63 below.
    let middle = near.wrapping_add(SHORT_AHEAD_MAX).wrapping_sub(i8::MAX as u64);
    let ahead = low.wrapping_sub(middle as u8) as i8;
    middle.wrapping_add_signed(i64::from(ahead))
}

/// Expands the low 16 bits of a number to the nearest one to `near`. Numbers start far above 2^16.
pub fn expand(near: u64, low: u16) -> u64 {
    let ahead = low.wrapping_sub(near as u16) as i16;
    near.wrapping_add_signed(i64::from(ahead))
}
