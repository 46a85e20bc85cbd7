//! Record marking: messages on a byte stream (RFC 5531, section 11).
//!
//! A record is one or more fragments, each behind a word that has its length and, in the
//! highest bit, whether it is the last.

use bytes::{Bytes, BytesMut};

/// What is wrong with a stream; it cannot be read on from there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// The record is larger than the reader's limit.
    #[error("a record of {len} bytes or more where at most {max} are taken")]
    TooLarge {
        /// What the fragments claim so far.
        len: usize,
        /// The reader's limit.
        max: usize,
    },
    /// A fragment without a byte that is not the last: no honest sender makes one, and an
    /// endless run of them would cost work for nothing.
    #[error("an empty fragment in the middle of a record")]
    EmptyFragment,
}

const LAST: u32 = 0x8000_0000;

/// Cuts a stream into records. Holds at most what was pushed and not yet taken; the caller
/// pushes no more than it is ready to hold.
#[derive(Debug)]
pub struct RecordReader {
    max: usize,
    input: BytesMut,
    /// Fragments of the record so far, when it has more than one.
    partial: BytesMut,
}

impl RecordReader {
    /// Takes records of at most `max` bytes.
    pub fn new(max: usize) -> RecordReader {
        RecordReader { max, input: BytesMut::new(), partial: BytesMut::new() }
    }

    /// Adds bytes that came in.
    pub fn push(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The buffer to receive into: bytes appended to it count as pushed.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// Bytes held at this moment.
    pub fn held(&self) -> usize {
        self.input.len() + self.partial.len()
    }

    /// The next whole record, if it is here.
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

/// The mark in front of a record sent as one fragment.
pub fn mark(len: usize) -> [u8; 4] {
    (LAST | (len as u32 & !LAST)).to_be_bytes()
}
