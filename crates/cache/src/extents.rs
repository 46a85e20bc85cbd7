//! Contents of a file that are in memory.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::ranges::RangeSet;

/// Disjoint extents of a file's contents by offset. An insertion replaces the bytes in its range.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    parts: BTreeMap<u64, Bytes>,
    bytes: u64,
}

impl Extents {
    /// Sum of the lengths of the extents, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn insert(&mut self, offset: u64, data: Bytes) {
        if data.is_empty() {
            return;
        }
        self.remove(offset..offset + data.len() as u64);
        self.bytes += data.len() as u64;
        self.parts.insert(offset, data);
    }

    pub(crate) fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((start, end)) =
            self.parts.range(..range.end).next_back().map(|(s, data)| (*s, s + data.len() as u64))
        {
            if end <= range.start {
                return;
            }
            let Some(data) = self.parts.remove(&start) else { return };
            self.bytes -= data.len() as u64;
            if start < range.start {
                self.keep(start, data.slice(..(range.start - start) as usize));
            }
            if end > range.end {
                self.keep(range.end, data.slice((range.end - start) as usize..));
            }
        }
    }

    fn keep(&mut self, offset: u64, data: Bytes) {
        self.bytes += data.len() as u64;
        self.parts.insert(offset, data);
    }

    /// Keeps only the ranges of `kept`.
    pub(crate) fn retain(&mut self, kept: &RangeSet) {
        if let Some((last, data)) = self.parts.last_key_value() {
            for gap in kept.gaps(0..last + data.len() as u64) {
                self.remove(gap);
            }
        }
    }

    /// The parts of `range` that are not held, in order.
    pub(crate) fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut at = range.start;
        let first = self.parts.range(..=at).next_back().map_or(at, |(s, _)| *s);
        for (s, data) in self.parts.range(first..range.end) {
            if *s > at {
                missing.push(at..*s);
            }
            at = at.max(s + data.len() as u64);
        }
        if at < range.end {
            missing.push(at..range.end);
        }
        missing
    }

    /// What is held of `range`: offsets and bytes, in order.
    pub(crate) fn parts(&self, range: Range<u64>) -> Vec<(u64, Bytes)> {
        let first = self.parts.range(..=range.start).next_back().map_or(range.start, |(s, _)| *s);
        let mut found = Vec::new();
        for (s, data) in self.parts.range(first..range.end.max(first)) {
            let (from, to) = ((*s).max(range.start), (s + data.len() as u64).min(range.end));
            if from < to {
                found.push((from, data.slice((from - s) as usize..(to - s) as usize)));
            }
        }
        found
    }

    /// The contents of `range`, with zeros where nothing is held.
    pub(crate) fn read(&self, range: Range<u64>) -> Bytes {
        let first = self.parts.range(..=range.start).next_back().map_or(range.start, |(s, _)| *s);
        if let Some((s, data)) = self.parts.range(first..range.end).next()
            && *s <= range.start
            && s + data.len() as u64 >= range.end
        {
            return data.slice((range.start - s) as usize..(range.end - s) as usize);
        }
        let mut out = BytesMut::zeroed((range.end - range.start) as usize);
        for (s, data) in self.parts.range(first..range.end) {
            let (from, to) = ((*s).max(range.start), (s + data.len() as u64).min(range.end));
            if from < to {
                let part = &data[(from - s) as usize..(to - s) as usize];
                out[(from - range.start) as usize..(to - range.start) as usize].copy_from_slice(part);
            }
        }
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn extents_agree_with_an_array(ops in prop::collection::vec((any::<bool>(), 0u64..64, 1u64..16, 1u8..), 1..60)) {
            let mut extents = Extents::default();
            let mut array = [0u8; 96];
            for (inserts, start, len, byte) in ops {
                let range = start as usize..(start + len) as usize;
                if inserts {
                    extents.insert(start, Bytes::from(vec![byte; len as usize]));
                    array[range].fill(byte);
                } else {
                    extents.remove(start..start + len);
                    array[range].fill(0);
                }
                prop_assert_eq!(&extents.read(0..96)[..], &array[..]);
                prop_assert_eq!(&extents.read(7..41)[..], &array[7..41]);
                prop_assert_eq!(extents.bytes(), array.iter().filter(|b| **b != 0).count() as u64);
                let parts = extents.parts(7..41);
                let held: Vec<u64> = parts.iter().flat_map(|(at, data)| *at..at + data.len() as u64).collect();
                prop_assert_eq!(held, (7..41).filter(|b| array[*b as usize] != 0).collect::<Vec<u64>>());
                prop_assert!(parts.iter().all(|(at, data)| data[..] == array[*at as usize..*at as usize + data.len()]));
                let missing: Vec<u64> = extents.missing(7..41).into_iter().flatten().collect();
                let expected: Vec<u64> = (7..41).filter(|b| array[*b as usize] == 0).collect();
                prop_assert_eq!(missing, expected);
            }
        }
    }
}
