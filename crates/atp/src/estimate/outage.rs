//! Lengths of past outages, and the probability that the current one ends in time.

use std::collections::VecDeque;
use std::time::Duration;

use remora_base::Time;

use crate::object::Probability;

/// Maximum number of past outages kept.
const KEPT: usize = 32;
/// Scale of the prior, see [`Outage::ends_within`].
const PRIOR: Duration = Duration::from_secs(1);

/// Lengths of the latest outages of a path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PastOutages {
    lengths: VecDeque<Duration>,
}

impl PastOutages {
    /// Records an outage that has ended.
    pub(super) fn ended(&mut self, length: Duration) {
        if self.lengths.len() == KEPT {
            self.lengths.pop_front();
        }
        self.lengths.push_back(length);
    }
}

/// An outage: the forecast of the path is unknown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outage {
    /// Time of the last packet from the peer, or of the first attempt to reach it.
    pub since: Time,
    /// Earlier outages of the path.
    pub past: PastOutages,
}

impl Outage {
    /// An outage since `since` on a path without history.
    pub fn new(since: Time) -> Outage {
        Outage { since, past: PastOutages::default() }
    }

    /// The probability that the outage ends within `left` from `now`.
    ///
    /// It is the share of the past outages that lasted longer than this one has, and no longer than it may. One
    /// more outage, the prior, counts with them: it ends within `left` with the probability `left / (1 s +
    /// elapsed + left)`. So without a history an outage is as likely as not to last as long again and a second.
    pub fn ends_within(&self, now: Time, left: Duration) -> Probability {
        let elapsed = now.since(self.since);
        let longer = self.past.lengths.iter().filter(|length| **length > elapsed);
        let (all, ended) = longer.fold((1.0, 0.0), |(all, ended), length| {
            (all + 1.0, ended + f64::from(u8::from(*length <= elapsed.saturating_add(left))))
        });
        let left = left.as_secs_f64();
        let prior = left / (PRIOR.as_secs_f64() + elapsed.as_secs_f64() + left);
        Probability::new((ended + prior) / all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(outage: &Outage, elapsed_ms: u64, left_ms: u64) -> u64 {
        let now = outage.since + Duration::from_millis(elapsed_ms);
        (outage.ends_within(now, Duration::from_millis(left_ms)).get() * 100.0).round() as u64
    }

    #[test]
    fn outage_without_history_lasts_as_long_again() {
        let outage = Outage::new(Time::from_secs(7));
        for (elapsed, left, expected) in
            [(0, 0, 0), (0, 1000, 50), (0, 9000, 90), (9000, 1000, 9), (9000, 10_000, 50), (0, u64::MAX / 1000, 100)]
        {
            assert_eq!(percent(&outage, elapsed, left), expected, "{elapsed} ms, {left} ms left");
        }
    }

    #[test]
    fn past_outages_of_greater_length_count() {
        let mut outage = Outage::new(Time::from_secs(7));
        // Nine of ten last a tenth of a second, one lasts half a minute.
        (0..30).for_each(|n| outage.past.ended(Duration::from_millis(if n % 10 == 0 { 30_000 } else { 100 })));
        assert_eq!(percent(&outage, 50, 950), 89);
        assert_eq!(percent(&outage, 1000, 1000), 8, "the short ones are over by then");
        assert_eq!(percent(&outage, 40_000, 1000), 2, "longer than any before");
        (0..1000).for_each(|_| outage.past.ended(Duration::from_secs(1)));
        assert_eq!((outage.past.lengths.len(), percent(&outage, 0, 1000)), (KEPT, 99));
    }
}
