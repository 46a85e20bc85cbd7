//! A set of byte ranges of a file.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint, non-adjacent, non-empty ranges of bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RangeSet {
    /// End of each range by its start.
    ends: BTreeMap<u64, u64>,
}

impl RangeSet {
    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        let touching = |set: &RangeSet, start: u64, end: u64| {
            set.ends.range(..=end).next_back().map(|(s, e)| (*s, *e)).filter(|(_, e)| *e >= start)
        };
        while let Some((s, e)) = touching(self, start, end) {
            self.ends.remove(&s);
            (start, end) = (start.min(s), end.max(e));
        }
        self.ends.insert(start, end);
    }

    pub(crate) fn remove(&mut self, range: Range<u64>) {
        while let Some((s, e)) = self.ends.range(..range.end).next_back().map(|(s, e)| (*s, *e)) {
            if e <= range.start || range.is_empty() {
                return;
            }
            self.ends.remove(&s);
            if s < range.start {
                self.ends.insert(s, range.start);
            }
            if e > range.end {
                self.ends.insert(range.end, e);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ends.iter().map(|(s, e)| *s..*e)
    }

    /// Sum of the lengths.
    pub(crate) fn bytes(&self) -> u64 {
        self.iter().map(|range| range.end - range.start).sum()
    }

    /// The parts of `range` outside the set, in order.
    pub(crate) fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        let before = self.ends.range(..=at).next_back().map(|(_, e)| *e);
        at = at.max(before.unwrap_or(0));
        for (s, e) in self.ends.range(range.start..range.end) {
            if *s > at {
                gaps.push(at..*s);
            }
            at = at.max(*e);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    pub(crate) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.ends.range(..range.end).next_back().is_some_and(|(_, e)| *e > range.start)
    }

    pub(crate) fn clear(&mut self) {
        self.ends.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn range_set_agrees_with_a_set_of_bytes(ops in prop::collection::vec((any::<bool>(), 0u64..64, 0u64..16), 1..60)) {
            let mut ranges = RangeSet::default();
            let mut bytes = BTreeSet::new();
            for (inserts, start, len) in ops {
                let range = start..start + len;
                if inserts {
                    ranges.insert(range.clone());
                    bytes.extend(range);
                } else {
                    ranges.remove(range.clone());
                    range.for_each(|b| { bytes.remove(&b); });
                }
                prop_assert_eq!(ranges.iter().flatten().collect::<BTreeSet<_>>(), bytes.clone());
                prop_assert_eq!(ranges.bytes(), bytes.len() as u64);
                let disjoint = ranges.iter().zip(ranges.iter().skip(1)).all(|(a, b)| a.end < b.start);
                prop_assert!(disjoint, "ranges are merged: {:?}", ranges);
                let overlaps = |range: Range<u64>| range.clone().any(|b| bytes.contains(&b)) == ranges.overlaps(&range);
                prop_assert!((0..60).all(|start| overlaps(start..start + 1) && overlaps(start..start + 9)));
                let gaps: BTreeSet<u64> = ranges.gaps(5..50).into_iter().flatten().collect();
                let expected: BTreeSet<u64> = (5..50).filter(|b| !bytes.contains(b)).collect();
                prop_assert_eq!(gaps, expected);
            }
        }
    }
}
