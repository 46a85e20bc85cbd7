//! Upper bound of the link's rate. The scheduler gives up an object only if this rate could not deliver it.
//!
//! The estimate itself follows the first measured gap between two packets, because the next packet depends on it.
//! Such a gap may come from the link, or from a receiver that waited tens of milliseconds for a processor. A slow
//! link separates all packets, a busy machine only some. So the bound uses the faster half of the gaps, and needs a
//! minimum number and duration of them. Giving up an object late costs little, since it is sent only when nothing
//! else is waiting; giving it up wrongly loses it.

use std::collections::VecDeque;
use std::time::Duration;

use remora_base::Time;

/// Maximum number of gaps kept.
const KEPT: usize = 32;
/// Gaps beyond [`ENOUGH`] are dropped once the newer ones cover this time.
const SPAN: Duration = Duration::from_secs(1);
/// Minimum number of gaps, and minimum time between the first and the last arrival,
const ENOUGH: usize = 12;
const WHILE: Duration = Duration::from_millis(250);
/// or this many gaps that cover a [`SPAN`]: longer than a receiver pauses.
const ENOUGH_LONG: usize = 4;

/// The bytes that arrived after a gap, including all that arrived in the same batch.
#[derive(Clone, Copy, Debug)]
struct Gap {
    bytes: u64,
    took: Duration,
}

impl Gap {
    fn byte_time(self) -> f64 {
        self.took.as_nanos() as f64 / self.bytes.max(1) as f64
    }
}

/// The latest gaps between packets that left back to back or were queued.
#[derive(Clone, Debug, Default)]
pub(super) struct RateBound {
    gaps: VecDeque<Gap>,
    /// Sum of the gaps.
    took: Duration,
    /// Times of the first and the last gap.
    span: Option<(Time, Time)>,
    /// No gap of the current burst was recorded yet.
    begins: bool,
    least: Option<f64>,
}

impl RateBound {
    /// Marks the start of a burst: the next packet did not leave together with the previous one.
    pub(super) fn burst_begins(&mut self) {
        self.begins = true;
    }

    /// Records that `bytes` arrived at `now`, `took` after the previous packet.
    pub(super) fn gap(&mut self, now: Time, bytes: u64, took: Duration) {
        self.span = Some((self.span.map_or(now, |(first, _)| first), now));
        let begins = std::mem::take(&mut self.begins);
        if let Some(last) = self.gaps.back_mut().filter(|_| took.is_zero() && !begins) {
            last.bytes = last.bytes.saturating_add(bytes);
            return;
        }
        self.gaps.push_back(Gap { bytes, took });
        self.took += took;
        while self.gaps.len() > KEPT || (self.gaps.len() > ENOUGH && self.rest() >= SPAN) {
            let oldest = self.gaps.pop_front().map_or(Duration::ZERO, |gap| gap.took);
            self.took = self.took.saturating_sub(oldest);
        }
    }

    /// The time covered by all gaps but the oldest.
    fn rest(&self) -> Duration {
        self.took.saturating_sub(self.gaps.front().map_or(Duration::ZERO, |gap| gap.took))
    }

    /// Computes the bound from the recorded gaps.
    pub(super) fn conclude(&mut self) {
        self.least = self.least();
    }

    /// Minimum transmission time in nanoseconds a byte, as last computed; `None` while there are too few gaps.
    pub(super) fn min_byte_time(&self) -> Option<f64> {
        self.least
    }

    fn least(&self) -> Option<f64> {
        let (first, last) = self.span?;
        let many = self.gaps.len() >= ENOUGH && last.since(first) >= WHILE;
        let long = self.gaps.len() >= ENOUGH_LONG && self.rest() >= SPAN;
        if !many && !long {
            return None;
        }
        let mut gaps: Vec<Gap> = self.gaps.iter().copied().collect();
        let half = gaps.len() / 2;
        gaps.select_nth_unstable_by(half, |a, b| a.byte_time().total_cmp(&b.byte_time()));
        let faster = gaps.into_iter().take(half).fold(Gap { bytes: 0, took: Duration::ZERO }, |all, gap| Gap {
            bytes: all.bytes.saturating_add(gap.bytes),
            took: all.took.saturating_add(gap.took),
        });
        Some(faster.byte_time())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records gaps, in milliseconds, before packets of 1,000 bytes; returns the upper bound in bytes a second.
    fn at_most(gaps: &[u64]) -> Option<u64> {
        let (mut rate_bound, mut now) = (RateBound::default(), Time::from_secs(1));
        for ms in gaps {
            let gap = Duration::from_millis(*ms);
            now += gap;
            rate_bound.burst_begins();
            rate_bound.gap(now, 1000, gap);
        }
        rate_bound.conclude();
        rate_bound.min_byte_time().map(|byte_time| (1e9 / byte_time) as u64)
    }

    #[test]
    fn a_slow_link_is_shown_by_many_gaps_and_a_pause_is_not() {
        assert_eq!(at_most(&[300]), None, "one gap");
        assert_eq!(at_most(&[20; 11]), None, "few");
        assert_eq!(at_most(&[10; 20]), None, "too soon");
        assert_eq!(at_most(&[20; 14]), Some(50_000));
        assert_eq!(at_most(&[200; 12]), Some(5_000));
        assert_eq!((at_most(&[400; 3]), at_most(&[400; 4])), (None, Some(2_500)), "few, but long");
        for pause in [10, 50, 200, 1000] {
            let paused: Vec<u64> = (0..64).map(|i| if i % 3 == 0 { pause } else { 0 }).collect();
            assert!(at_most(&paused).is_none_or(|rate| rate > 1_000_000_000), "pauses of {pause} ms");
        }
    }

    #[test]
    fn a_link_that_fades_is_seen_within_seconds() {
        let faded: Vec<u64> = [[10; 32].as_slice(), &[200; 12]].concat();
        assert_eq!(at_most(&faded), Some(5_000));
    }

    #[test]
    fn what_is_handed_over_together_came_in_one_gap() {
        let (mut rate_bound, mut now) = (RateBound::default(), Time::from_secs(1));
        for i in 0..200 {
            let gap = Duration::from_millis(if i % 5 == 0 { 20 } else { 0 });
            now += gap;
            rate_bound.gap(now, 1000, gap);
        }
        rate_bound.conclude();
        assert_eq!(rate_bound.min_byte_time(), Some(4_000.0), "five packets in 20 ms");
    }
}
