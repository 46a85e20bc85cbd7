//! What the link carries at most, as far as that has been shown: by this an object is given up.
//!
//! The rate is taken from the first gap between two packets that there is, for what is sent next hangs
//! on it. But a gap may be the link's, or the time for which one of the two ends waited for a processor:
//! on a busy machine tens of milliseconds, in which a fast link carries a whole file. A slow link parts
//! all packets, a busy machine some of them. So what counts here is the faster half of the gaps, and not
//! before there are some and a while is over. To give up an object late costs little, as it is sent only
//! when nothing else is there; to give one up wrongly costs the object.

use std::collections::VecDeque;
use std::time::Duration;

use remora_base::Time;

/// Gaps kept.
const KEPT: usize = 32;
/// Older ones go when the others took so long, as long as there are enough.
const SPAN: Duration = Duration::from_secs(1);
/// Fewer gaps show nothing, nor do those of a shorter while,
const ENOUGH: usize = 12;
const WHILE: Duration = Duration::from_millis(250);
/// unless they are longer than an end pauses: so many, that took a [`SPAN`] and more.
const ENOUGH_LONG: usize = 4;

/// The bytes that came after a gap, all that were handed over together.
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

/// The last gaps in which the link was busy, or should have been.
#[derive(Clone, Debug, Default)]
pub(super) struct RateBound {
    gaps: VecDeque<Gap>,
    /// What they took together.
    took: Duration,
    /// When the first of all came, and the last.
    span: Option<(Time, Time)>,
    /// No gap of this burst has been seen.
    begins: bool,
    least: Option<f64>,
}

impl RateBound {
    /// What reverse_packet_time next did not leave together with what came before.
    pub(super) fn burst_begins(&mut self) {
        self.begins = true;
    }

    /// At `now` came `bytes`, `took` after those before them.
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

    /// The time that all but the oldest took.
    fn rest(&self) -> Duration {
        self.took.saturating_sub(self.gaps.front().map_or(Duration::ZERO, |gap| gap.took))
    }

    /// Draws the conclusion from the gaps so far.
    pub(super) fn conclude(&mut self) {
        self.least = self.least();
    }

    /// Nanoseconds a byte that the link takes at least, as last concluded; `None` while that has not been
    /// shown.
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

    /// Gaps in milliseconds before packets of 1,000 bytes; bytes a second that the link carries at most.
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
