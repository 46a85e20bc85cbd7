//! Record marking: messages on a byte stream (RFC 5531, section 11).
//!
//! A record is one or more fragments. A word before each has its length and, in the highest bit,
//! the mark of the last one.

use bytes::{Bytes, BytesMut};

/// A fatal error of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// The record is larger than the reader's limit.
    #[error("a record of at least {len} bytes, above the limit of {max}")]
    TooLarge {
        /// Length of the fragments so far.
        len: usize,
        /// The reader's limit.
        max: usize,
    },
    /// An empty fragment that is not the last. No correct sender produces one, and an endless run
    /// of them would cost work for nothing.
    #[error("an empty fragment in the middle of a record")]
    EmptyFragment,
}

const LAST: u32 = 0x8000_0000;

/// Splits a stream into records. Buffers at most what was pushed and not yet taken; the caller
/// bounds what it pushes.
#[derive(Debug)]
pub struct RecordReader {
    max: usize,
    input: BytesMut,
    /// Fragments of the current record, if it has several.
    partial: BytesMut,
}

impl RecordReader {
    /// A reader of records of at most `max` bytes.
    pub fn new(max: usize) -> RecordReader {
        RecordReader { max, input: BytesMut::new(), partial: BytesMut::new() }
    }

    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The receive buffer: bytes appended to it count as pushed.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// The receive buffer, with room for the rest of the current record, and for at least `spare` bytes.
    pub fn roomy_buffer(&mut self, spare: usize) -> &mut BytesMut {
        let word = self.input.first_chunk::<4>().map_or(0, |word| u32::from_be_bytes(*word) & !LAST);
        let rest = (4 + (word as usize).min(self.max)).saturating_sub(self.input.len());
        // The room is used up before new memory is taken, so that short records share it.
        if self.input.capacity() - self.input.len() < rest.max(64) {
            self.input.reserve(rest.max(spare));
        }
        &mut self.input
    }

    /// Number of buffered bytes.
    pub fn held(&self) -> usize {
        self.input.len() + self.partial.len()
    }

    /// Takes the next complete record.
    pub fn next_record(&mut self) -> Result<Option<Bytes>, RecordError> {
        loop {
            let Some(word) = self.input.first_chunk::<4>() else { return Ok(None) };
            let word = u32::from_be_bytes(*word);
            let (len, last) = ((word & !LAST) as usize, word & LAST != 0);
            let total = self.partial.len() + len;
            if total > self.max {
                return Err(RecordError::TooLarge { len: total, max: self.max });
            }
            if len == 0 && !last {
                return Err(RecordError::EmptyFragment);
            }
            if self.input.len() < 4 + len {
                return Ok(None);
            }
            let _ = self.input.split_to(4);
            let fragment = self.input.split_to(len);
            match (last, self.partial.is_empty()) {
                (true, true) => return Ok(Some(fragment.freeze())),
                (true, false) => {
                    self.partial.unsplit(fragment);
                    return Ok(Some(std::mem::take(&mut self.partial).freeze()));
                }
                (false, _) => self.partial.extend_from_slice(&fragment),
            }
        }
    }
}

/// The record mark of a record in one fragment.
pub fn mark(len: usize) -> [u8; 4] {
    (LAST | (len as u32 & !LAST)).to_be_bytes()
}
