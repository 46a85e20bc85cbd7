//! Wire format of stream frames, one in each object. All numbers are big-endian.
//!
//! ```text
//! open    : 1 u8, connection u32, version u8, priority u8, deadline u32 (ms; 0: none), window u32,
//!           port u16, host (UTF-8, to the end)
//! opened  : 2 u8, connection u32, window u32
//! refused : 3 u8, connection u32, why u8
//! data    : 4 u8, connection u32, number u64, last u8 (0 or 1), bytes (to the end)
//! credit  : 5 u8, connection u32, limit u64
//! reset   : 6 u8, connection u32, why u8
//! ```
//! `number` counts the data frames of one direction of a connection from 0; `limit` counts its bytes.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut, TryGetError};

use super::interface::{Refused, Reset, StreamId, Terms};
use super::target::Target;
use crate::Priority;

const VERSION: u8 = 1;
/// Bytes of a data frame before its data.
const DATA_HEAD: usize = 14;
/// Maximum bytes of other frames, without a host name.
const SMALL_MAX: usize = 64;

/// A frame of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Frame {
    /// Requests a connection. The opener accepts `window` bytes initially.
    Open { target: Target, terms: Terms, window: u32 },
    /// Accepts the connection. The acceptor accepts `window` bytes initially.
    Opened { window: u32 },
    /// Refuses the connection.
    Refused(Refused),
    /// Bytes of the connection.
    Data { number: u64, last: bool, bytes: Bytes },
    /// Total bytes that the peer may send.
    Credit { limit: u64 },
    /// Ends the connection.
    Reset(Reset),
}

/// Why an object is not a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum FrameError {
    #[error("it is too short")]
    Short,
    #[error("it has bytes beyond its end")]
    Long,
    #[error("its kind is {0}")]
    Kind(u8),
    #[error("its version is {0}")]
    Version(u8),
    #[error("a field of it is out of range")]
    Range,
}

impl From<TryGetError> for FrameError {
    fn from(_: TryGetError) -> FrameError {
        FrameError::Short
    }
}

impl Frame {
    /// Encodes the frame of connection `id`.
    pub(super) fn encode(&self, id: StreamId) -> Bytes {
        let room = match self {
            Frame::Data { bytes, .. } => DATA_HEAD + bytes.len(),
            Frame::Open { target, .. } => SMALL_MAX + target.host().len(),
            _ => SMALL_MAX,
        };
        let mut out = BytesMut::with_capacity(room);
        out.put_u8(self.kind());
        out.put_u32(id.0);
        match self {
            Frame::Open { target, terms, window } => {
                out.put_u8(VERSION);
                out.put_u8(terms.priority.level());
                out.put_u32(milliseconds(terms.deadline));
                out.put_u32(*window);
                out.put_u16(target.port());
                out.put_slice(target.host().as_bytes());
            }
            Frame::Opened { window } => out.put_u32(*window),
            Frame::Refused(why) => out.put_u8(why.code()),
            Frame::Data { number, last, bytes } => {
                out.put_u64(*number);
                out.put_u8(u8::from(*last));
                out.put_slice(bytes);
            }
            Frame::Credit { limit } => out.put_u64(*limit),
            Frame::Reset(why) => out.put_u8(why.code()),
        }
        out.freeze()
    }

    fn kind(&self) -> u8 {
        match self {
            Frame::Open { .. } => 1,
            Frame::Opened { .. } => 2,
            Frame::Refused(_) => 3,
            Frame::Data { .. } => 4,
            Frame::Credit { .. } => 5,
            Frame::Reset(_) => 6,
        }
    }

    /// Decodes an object, without copying data.
    pub(super) fn decode(mut object: Bytes) -> Result<(StreamId, Frame), FrameError> {
        let r = &mut object;
        let kind = r.try_get_u8()?;
        let id = StreamId(r.try_get_u32()?);
        let frame = match kind {
            1 => return Ok((id, open(object)?)),
            2 => Frame::Opened { window: r.try_get_u32()? },
            3 => Frame::Refused(Refused::from_code(r.try_get_u8()?)),
            4 => {
                let number = r.try_get_u64()?;
                let last = flag(r.try_get_u8()?)?;
                return Ok((id, Frame::Data { number, last, bytes: object }));
            }
            5 => Frame::Credit { limit: r.try_get_u64()? },
            6 => Frame::Reset(Reset::from_code(r.try_get_u8()?)),
            other => return Err(FrameError::Kind(other)),
        };
        if object.is_empty() { Ok((id, frame)) } else { Err(FrameError::Long) }
    }
}

fn open(mut r: Bytes) -> Result<Frame, FrameError> {
    let version = r.try_get_u8()?;
    if version != VERSION {
        return Err(FrameError::Version(version));
    }
    let priority = Priority::new(r.try_get_u8()?).ok_or(FrameError::Range)?;
    let deadline = match r.try_get_u32()? {
        0 => None,
        ms => Some(Duration::from_millis(ms.into())),
    };
    let window = r.try_get_u32()?;
    let port = r.try_get_u16()?;
    let host = std::str::from_utf8(&r).map_err(|_| FrameError::Range)?;
    let target = Target::new(host, port).map_err(|_| FrameError::Range)?;
    Ok(Frame::Open { target, terms: Terms { priority, deadline }, window })
}

fn flag(byte: u8) -> Result<bool, FrameError> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(FrameError::Range),
    }
}

/// Encodes a deadline as at least 1 ms.
fn milliseconds(deadline: Option<Duration>) -> u32 {
    deadline.map_or(0, |d| u32::try_from(d.as_millis()).unwrap_or(u32::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<Frame> {
        let target: Target = "nas.example:80".parse().unwrap();
        let terms = Terms { priority: Priority::HIGH, deadline: Some(Duration::from_secs(5)) };
        vec![
            Frame::Open { target: target.clone(), terms, window: 65_536 },
            Frame::Open { target, terms: Terms::default(), window: u32::MAX },
            Frame::Opened { window: 1 },
            Frame::Refused(Refused::NotAllowed),
            Frame::Data { number: u64::MAX, last: true, bytes: Bytes::new() },
            Frame::Data { number: 0, last: false, bytes: Bytes::from_static(b"abc") },
            Frame::Credit { limit: 1 << 40 },
            Frame::Reset(Reset::Deadline),
        ]
    }

    #[test]
    fn what_is_written_is_read() {
        for frame in frames() {
            let object = frame.encode(StreamId(7));
            assert_eq!(Frame::decode(object), Ok((StreamId(7), frame)));
        }
    }

    #[test]
    fn what_is_cut_short_or_too_long_is_bad() {
        for frame in frames() {
            let object = frame.encode(StreamId(7));
            let (least, is_open_ended) = match frame {
                // Up to the first byte of a host.
                Frame::Open { .. } => (18, true),
                Frame::Data { .. } => (DATA_HEAD, true),
                _ => (object.len(), false),
            };
            for n in 0..least {
                assert!(Frame::decode(object.slice(..n)).is_err(), "{frame:?} cut to {n}");
            }
            let longer = Bytes::from([&object[..], b"x"].concat());
            assert_eq!(Frame::decode(longer).is_ok(), is_open_ended, "{frame:?}");
        }
    }

    #[test]
    fn nonsense_is_told() {
        for (object, why) in [
            (&[9u8, 0, 0, 0, 1][..], FrameError::Kind(9)),
            (&[1, 0, 0, 0, 1, 2, 8, 0, 0, 0, 0, 0, 1, 0, 0, 0, 80, b'a'], FrameError::Version(2)),
            (&[1, 0, 0, 0, 1, 1, 16, 0, 0, 0, 0, 0, 1, 0, 0, 0, 80, b'a'], FrameError::Range),
            (&[1, 0, 0, 0, 1, 1, 8, 0, 0, 0, 0, 0, 1, 0, 0, 0, 80, 0xff], FrameError::Range),
            (&[4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2], FrameError::Range),
        ] {
            assert_eq!(Frame::decode(Bytes::copy_from_slice(object)), Err(why), "{object:?}");
        }
    }
}
