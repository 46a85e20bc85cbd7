//! Sets of byte ranges.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A set of bytes: sorted ranges that neither touch nor overlap.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ByteRanges(Vec<Range<u64>>);

impl ByteRanges {
    pub(crate) fn insert(&mut self, new: Range<u64>) {
        if new.is_empty() {
            return;
        }
        // Ranges that touch the new one are merged.
        let first = self.0.partition_point(|r| r.end < new.start);
        let last = self.0.partition_point(|r| r.start <= new.end);
        let touched = self.0.get(first..last).unwrap_or_default();
        let start = touched.first().map_or(new.start, |r| r.start.min(new.start));
        let end = touched.last().map_or(new.end, |r| r.end.max(new.end));
        self.0.splice(first..last, std::iter::once(start..end));
    }

    /// The union with `other`.
    pub(crate) fn with(&self, other: &ByteRanges) -> ByteRanges {
        let (mut sorted, mut both) = ([&self.0[..], &other.0[..]].concat(), ByteRanges::default());
        // In order, each is appended.
        sorted.sort_unstable_by_key(|range| range.start);
        sorted.into_iter().for_each(|range| both.insert(range));
        both
    }

    /// The ranges of `0..size` that are not in it.
    pub(crate) fn missing(&self, size: u64) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = 0;
        for r in &self.0 {
            gaps.push(at..r.start.min(size));
            at = r.end.max(at);
        }
        gaps.push(at..size);
        gaps.retain(|g| g.start < g.end);
        gaps
    }

    /// The ranges of `0..size` that are in it.
    pub(crate) fn within(&self, size: u64) -> Vec<Range<u64>> {
        self.0.iter().map(|r| r.start..r.end.min(size)).filter(|r| r.start < r.end).collect()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|r| r.end.saturating_sub(r.start)).fold(0, u64::saturating_add)
    }

    /// End of the last range.
    pub(crate) fn end(&self) -> u64 {
        self.0.last().map_or(0, |r| r.end)
    }

    /// Whether it is sorted and disjoint; one that was read from a file may not be.
    pub(crate) fn is_sound(&self) -> bool {
        self.0.iter().all(|r| r.start < r.end) && self.0.windows(2).all(|w| w[0].end < w[1].start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_agree_with_a_set_of_bytes(inserts in prop::collection::vec((0u64..60, 0u64..12), 0..20)) {
            let mut ranges = ByteRanges::default();
            let mut bytes = std::collections::BTreeSet::new();
            for (start, len) in inserts {
                ranges.insert(start..start + len);
                bytes.extend(start..start + len);
                prop_assert!(ranges.is_sound(), "{ranges:?}");
            }
            let missing: Vec<u64> = ranges.missing(64).into_iter().flatten().collect();
            prop_assert_eq!(missing, (0..64).filter(|b| !bytes.contains(b)).collect::<Vec<_>>());
            let rest = ByteRanges(ranges.missing(64));
            prop_assert_eq!(ranges.with(&rest).missing(100), vec![64.max(ranges.end())..100]);
            prop_assert_eq!(ranges.bytes(), bytes.len() as u64);
            prop_assert_eq!(ranges.end(), bytes.last().map_or(0, |b| b + 1));
        }
    }

    #[test]
    fn bytes_after_the_end_are_not_missing() {
        let mut r = ByteRanges::default();
        r.insert(10..20);
        assert_eq!(r.missing(15), vec![0..10]);
        assert_eq!(r.missing(5), vec![0..5]);
        for (size, want) in [(30, Some(10..20)), (15, Some(10..15)), (10, None)] {
            assert_eq!(r.within(size), Vec::from_iter(want));
        }
    }
}
