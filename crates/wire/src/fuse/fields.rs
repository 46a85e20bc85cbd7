//! The fields of a C structure, in the machine's byte order.

use bytes::{Buf, Bytes};

/// A request that no kernel of the supported versions sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RequestError {
    #[error("the request is truncated")]
    Truncated,
    /// The length in the header is not that of the message.
    #[error("the header states {stated} bytes, but the request has {received}")]
    Length { stated: u32, received: usize },
    #[error("a name without its final NUL")]
    UnterminatedName,
}

/// Fields not yet decoded.
pub(super) struct Fields(Bytes);

impl Fields {
    /// All fields in `bytes`.
    pub(super) fn of(bytes: Bytes) -> Fields {
        Fields(bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, RequestError> {
        self.take().map(u16::from_ne_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, RequestError> {
        self.take().map(u32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, RequestError> {
        self.take().map(u64::from_ne_bytes)
    }

    /// Passes over `len` bytes of padding or unused fields.
    pub(super) fn skip(&mut self, len: usize) -> Result<(), RequestError> {
        self.slice(len).map(drop)
    }

    /// The next `len` bytes.
    pub(super) fn slice(&mut self, len: usize) -> Result<Bytes, RequestError> {
        if len > self.0.len() { Err(RequestError::Truncated) } else { Ok(self.0.split_to(len)) }
    }

    /// A name, without its final NUL.
    pub(super) fn name(&mut self) -> Result<Bytes, RequestError> {
        let len = self.0.iter().position(|&byte| byte == 0).ok_or(RequestError::UnterminatedName)?;
        let name = self.0.split_to(len);
        self.0.advance(1);
        Ok(name)
    }

    /// Bytes not yet decoded.
    pub(super) fn remaining(&self) -> usize {
        self.0.len()
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], RequestError> {
        let field = *self.0.first_chunk::<N>().ok_or(RequestError::Truncated)?;
        self.0.advance(N);
        Ok(field)
    }
}

/// A C structure under construction.
#[derive(Default)]
pub(super) struct Structure(pub(super) Vec<u8>);

impl Structure {
    pub(super) fn u16(&mut self, value: u16) -> &mut Structure {
        self.bytes(&value.to_ne_bytes())
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Structure {
        self.bytes(&value.to_ne_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Structure {
        self.bytes(&value.to_ne_bytes())
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Structure {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A name with its final NUL.
    pub(super) fn name(&mut self, name: &[u8]) -> &mut Structure {
        self.bytes(name).zeros(1)
    }

    /// Padding, or unused fields.
    pub(super) fn zeros(&mut self, len: usize) -> &mut Structure {
        self.0.resize(self.0.len() + len, 0);
        self
    }
}
