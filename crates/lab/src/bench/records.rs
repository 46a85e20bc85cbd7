//! Record marking (RFC 5531, section 11) read in place: the generator's own, because
//! [`RecordReader`](remora_wire::record::RecordReader) hands out messages that may be kept,
//! which costs more than these that are looked at once.

use super::fault::Fault;

/// What one system call may bring.
const ROOM: usize = 1 << 20;
/// The largest record: a READ of 1 MiB and what belongs to it.
const RECORD_MAX: usize = 2 << 20;
const MARK: usize = 4;
const LAST: u32 = 0x8000_0000;

/// A stream's bytes that came and are not looked at yet.
pub(super) struct Records {
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    /// Fragments of a record that has several.
    parts: Vec<u8>,
}

impl Default for Records {
    fn default() -> Records {
        Records { buffer: vec![0; RECORD_MAX + MARK + ROOM], from: 0, to: 0, parts: Vec::new() }
    }
}

impl Records {
    /// Where to receive into: never empty.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        } else if self.buffer.len() - self.to < ROOM {
            self.buffer.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        self.buffer.get_mut(self.to..).unwrap_or_default()
    }

    /// So many bytes of the room were filled.
    pub(super) fn filled(&mut self, n: usize) {
        self.to = (self.to + n).min(self.buffer.len());
    }

    /// Gives every whole record to `take`.
    pub(super) fn each(&mut self, take: &mut dyn FnMut(&[u8]) -> Result<(), Fault>) -> Result<(), Fault> {
        loop {
            let rest = self.buffer.get(self.from..self.to).unwrap_or_default();
            let Some((word, rest)) = rest.split_first_chunk::<MARK>() else { return Ok(()) };
            let word = u32::from_be_bytes(*word);
            let (len, last) = ((word & !LAST) as usize, word & LAST != 0);
            if self.parts.len() + len > RECORD_MAX || (len == 0 && !last) {
                return Err(Fault::Foreign("a record of an impossible length"));
            }
            let Some(fragment) = rest.get(..len) else { return Ok(()) };
            self.from += MARK + len;
            if last && self.parts.is_empty() {
                take(fragment)?;
                continue;
            }
            self.parts.extend_from_slice(fragment);
            if last {
                take(&self.parts)?;
                self.parts.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_wire::record::mark;

    fn cut(stream: &[u8], step: usize) -> Result<Vec<Vec<u8>>, Fault> {
        let mut records = Records::default();
        let mut found = Vec::new();
        for piece in stream.chunks(step) {
            records.room()[..piece.len()].copy_from_slice(piece);
            records.filled(piece.len());
            records.each(&mut |r| {
                found.push(r.to_vec());
                Ok(())
            })?;
        }
        Ok(found)
    }

    #[test]
    fn records_come_out_however_they_came_in() {
        let part = |text: &[u8]| [&(text.len() as u32).to_be_bytes(), text].concat();
        let last = |text: &[u8]| [&mark(text.len()), text].concat();
        let stream = [last(b"one"), part(b"tw"), part(b"o"), last(b"!"), last(b""), last(b"three")].concat();
        for step in 1..=stream.len() {
            assert_eq!(cut(&stream, step).unwrap(), [&b"one"[..], b"two!", b"", b"three"], "{step}");
        }
    }

    #[test]
    fn large_records_fit_and_larger_ones_are_refused() {
        let big = vec![7; RECORD_MAX];
        let stream = [&mark(big.len())[..], &big, &mark(1), b"x"].concat();
        for step in [ROOM, 1000] {
            assert_eq!(cut(&stream, step).unwrap(), [big.clone(), b"x".to_vec()]);
        }
        assert!(cut(&mark(RECORD_MAX + 1), 4).is_err());
        assert!(cut(&[0; 4], 4).is_err(), "an empty fragment");
    }
}
