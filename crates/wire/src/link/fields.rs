//! Reading fields one after another.

use bytes::Bytes;

use super::FrameError;

/// Fields not yet read.
pub(super) struct Fields(Bytes);

impl Fields {
    /// All of a frame.
    pub(super) fn of(frame: Bytes) -> Fields {
        Fields(frame)
    }

    /// Whether all have been read.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is left, whatever it is.
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
