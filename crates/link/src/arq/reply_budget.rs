//! Limits the control frames that one peer can trigger.
//!
//! Replies bypass the pacer. That is right while they are few, but a malicious or faulty peer must not take the medium
//! from others by endless requests. The limit is a rate by the generic cell rate algorithm (ITU-T I.371, annex A),
//! with a small burst after a pause.

use std::time::Duration;

use remora_base::Time;

/// Largest burst after a pause.
const BURST: u32 = 4;

/// A token bucket: one reply in each `gap` on average, bursts of [`BURST`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplyBudget {
    /// When the bucket is full again.
    full_at: Time,
}

impl ReplyBudget {
    /// When the next reply is allowed.
    pub(crate) fn opens_at(&self, gap: Duration) -> Time {
        self.full_at - gap * (BURST - 1)
    }

    /// Charges a reply of duration `cost`: one gap, or more for a long reply.
    pub(crate) fn charge(&mut self, now: Time, cost: Duration) {
        self.full_at = self.full_at.max(now) + cost;
    }

    /// Charges one gap if a reply is allowed, and returns whether it is.
    pub(crate) fn take(&mut self, now: Time, gap: Duration) -> bool {
        let is_open = self.opens_at(gap) <= now;
        if is_open {
            self.charge(now, gap);
        }
        is_open
    }
}

/// Largest credible burst of a peer, in full frames. More than the medium carries at once, because frames delayed
/// elsewhere arrive together.
const BELIEVED_FRAMES: u32 = 32;

/// Limits the airtime credited to a peer's frames. Frames that did not cross this medium have not delayed it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AirtimeCredit {
    /// When the medium would have carried all of them, starting at their arrival.
    until: Time,
    short: ReplyBudget,
}

impl AirtimeCredit {
    /// Whether a frame credibly took `airtime`, where a full frame takes `frame`. A peer that exceeds the medium's
    /// capacity is ignored until the excess has passed. Of `short` frames, which bypass the pacer, one in each frame's
    /// airtime is credited.
    pub(crate) fn is_believed(&mut self, now: Time, airtime: Duration, frame: Duration, short: bool) -> bool {
        let most = frame * BELIEVED_FRAMES;
        let is_possible = self.until <= now + most;
        self.until = (self.until.max(now) + airtime).min(now + most * 2);
        is_possible && (!short || self.short.take(now, frame.max(airtime)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_budget_allows_burst_then_one_per_gap() {
        let gap = Duration::from_millis(10);
        let mut budget = ReplyBudget::default();
        let mut taken = |from: u64, to: u64| -> Vec<u64> {
            (from..to).filter(|ms| budget.take(Time::from_millis(*ms), gap)).collect()
        };
        assert_eq!(taken(100, 130), [100, 101, 102, 103, 110, 120]);
        assert_eq!(taken(1000, 1012), [1000, 1001, 1002, 1003, 1010]);
    }

    #[test]
    fn airtime_credit_above_capacity_is_refused() {
        let (frame, ms) = (Duration::from_millis(12), Time::from_millis);
        let mut claim = AirtimeCredit::default();
        let mut believed = |from: u64, to: u64, times: usize| {
            let frames = (from..to).step_by(12).flat_map(|at| std::iter::repeat_n(ms(at), times));
            frames.filter(|at| claim.is_believed(*at, frame, frame, false)).count()
        };
        assert_eq!(believed(0, 1200, 1), 100, "all that the medium carries");
        assert_eq!(believed(1200, 1212, 20), 20, "what had waited elsewhere");
        assert!(believed(2400, 14_400, 10) <= 40, "a flood");
        assert_eq!(believed(20_000, 21_200, 1), 100, "it is over");
    }

    #[test]
    fn long_reply_uses_more_budget() {
        let gap = Duration::from_millis(10);
        let mut budget = ReplyBudget::default();
        budget.charge(Time::from_millis(100), gap * 7);
        assert_eq!(budget.opens_at(gap), Time::from_millis(140));
    }
}
