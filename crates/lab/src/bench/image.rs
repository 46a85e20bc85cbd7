//! What the files of a benchmark contain: noise, the same for every run, so that every byte
//! that is read can be compared with what was written.

/// Bytes without a pattern. A file holds a part of them: see [`Span`].
#[derive(Debug)]
pub(super) struct Image(Vec<u8>);

/// A part of the image: the contents of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    /// Where the file's first byte lies in the image.
    pub(super) base: usize,
    /// The file's length in bytes.
    pub(super) len: usize,
}

impl Image {
    /// `len` bytes, rounded up to eight.
    pub(super) fn new(len: usize) -> Image {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        let words = (0..len.div_ceil(8)).flat_map(|_| xorshift(&mut state).to_le_bytes());
        Image(words.collect())
    }

    /// The bytes of a file at `offset`; shorter than `len`, or empty, at its end.
    pub(super) fn bytes(&self, span: Span, offset: u64, len: usize) -> &[u8] {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(span.len);
        let from = span.base.saturating_add(offset);
        let to = from.saturating_add(len.min(span.len - offset));
        self.0.get(from..to.min(self.0.len())).unwrap_or_default()
    }

    /// The bytes at a place that [`Outbox`](super::outbox::Outbox) remembers.
    pub(super) fn range(&self, range: &std::ops::Range<usize>) -> &[u8] {
        self.0.get(range.clone()).unwrap_or_default()
    }
}

/// The next number of xorshift64: quick, and good enough to draw offsets and fill files.
pub(super) fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_parts_of_the_image() {
        let image = Image::new(64);
        let span = Span { base: 16, len: 24 };
        assert_eq!(image.bytes(span, 0, 8), image.range(&(16..24)));
        assert_eq!(image.bytes(span, 20, 8), image.range(&(36..40)), "no further than the file's end");
        assert!(image.bytes(span, 24, 8).is_empty() && image.bytes(span, u64::MAX, 8).is_empty());
        assert_ne!(image.range(&(0..8)), image.range(&(8..16)));
    }
}
