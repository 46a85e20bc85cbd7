//! The records of a capture, one after the other: a packet with its header, or a block.

use std::io::Read;

use pcap_parser::nom::{Err, IResult, Needed};

use super::stations::Tally;
use super::{CaptureError, End, damage};

/// Longest record.
const RECORD_MAX_BYTES: usize = 16 << 20;

/// What comes next in the input.
pub(super) enum Next {
    /// A whole record.
    Record,
    /// The end.
    End(End),
}

/// How many more bytes a parser needs; 0 if it has a result, or fails whatever follows.
pub(super) fn missing<I, O, E>(parsed: &IResult<I, O, E>) -> usize {
    match parsed {
        Err(Err::Incomplete(Needed::Size(n))) => n.get(),
        Err(Err::Incomplete(Needed::Unknown)) => 1,
        _ => 0,
    }
}

/// Reads the next record into `bytes`, of which `missing` says how many more it needs. Memory grows as bytes arrive.
pub(super) fn read(
    input: &mut impl Read,
    bytes: &mut Vec<u8>,
    tally: &Tally,
    missing: impl Fn(&[u8]) -> usize,
) -> Result<Next, CaptureError> {
    bytes.clear();
    loop {
        let more = missing(bytes);
        if more == 0 {
            return Ok(Next::Record);
        }
        let whole = bytes.len().saturating_add(more);
        if whole > RECORD_MAX_BYTES {
            return Err(damage(tally, format!("a record of {whole} bytes, at most {RECORD_MAX_BYTES} are read")));
        }
        let read = input.take(more as u64).read_to_end(bytes)?;
        if read < more {
            return Ok(Next::End(if bytes.is_empty() { End::Whole } else { End::Cut }));
        }
    }
}
