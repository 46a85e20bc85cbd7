//! The encoding of objects (ATP 02, section 4): on a stream, a heading of eight bytes and the content;
//! by itself, an object begins with its number.

use bytes::{BufMut, Bytes, BytesMut};

/// Length of a heading: the object's number and its size.
const HEADING: usize = 8;

/// The encoded heading of an object.
pub fn heading(number: usize, size: u32) -> Bytes {
    let mut bytes = BytesMut::with_capacity(HEADING);
    bytes.put_u32(u32::try_from(number).unwrap_or(u32::MAX));
    bytes.put_u32(size);
    bytes.freeze()
}

/// An object of `size` bytes that begins with its number.
pub fn numbered(number: usize, size: u32) -> Bytes {
    let mut bytes = BytesMut::zeroed((size as usize).max(4));
    if let Some(first) = bytes.first_chunk_mut() {
        *first = u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
    }
    bytes.freeze()
}

/// The number at the start of an object.
pub fn number_of(object: &[u8]) -> usize {
    word(object, 0).unwrap_or(u32::MAX) as usize
}

/// Splits a stream into objects.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    heading: Vec<u8>,
    /// Bytes of the current object still to come.
    left: u32,
}

impl Reader {
    /// Handles received bytes; calls `whole` with the number of each complete object.
    pub fn take(&mut self, mut bytes: &[u8], mut whole: impl FnMut(usize)) {
        while !bytes.is_empty() {
            if self.heading.len() < HEADING {
                let (now, rest) = bytes.split_at(bytes.len().min(HEADING - self.heading.len()));
                self.heading.extend_from_slice(now);
                bytes = rest;
                self.left = word(&self.heading, 4).unwrap_or(0);
            }
            let now = bytes.len().min(self.left as usize);
            self.left -= now as u32;
            bytes = &bytes[now..];
            if self.heading.len() == HEADING && self.left == 0 {
                whole(word(&self.heading, 0).unwrap_or(u32::MAX) as usize);
                self.heading.clear();
            }
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_in_any_pieces() {
        let stream: Vec<u8> = [&heading(7, 3)[..], b"abc", &heading(8, 1), b"x", &heading(9, 20), &[0; 20]].concat();
        for piece in 1..=stream.len() {
            let (mut reader, mut found) = (Reader::default(), Vec::new());
            stream.chunks(piece).for_each(|bytes| reader.take(bytes, |number| found.push(number)));
            assert_eq!(found, [7, 8, 9], "pieces of {piece}");
        }
    }
}
