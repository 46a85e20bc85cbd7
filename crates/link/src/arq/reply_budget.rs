//! What one peer may make this end do out of turn.
//!
//! Answers go at once and are not held back by the pacer, which is right as long as they are few.
//! A peer that asks without end, out of malice or by a fault, must not take the medium from the
//! others, so there is a bound on the average: the generic cell rate algorithm (ITU-T I.371,
//! annex A), which lets a few go at once after a pause.

use std::time::Duration;

use remora_base::Time;

/// So many may go at once after a pause.
const BURST: u32 = 4;

/// One in each `gap` on average.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowance {
    /// When all of it is there again.
    full_at: Time,
}

impl Allowance {
    /// From when on there is one.
    pub(crate) fn opens_at(&self, gap: Duration) -> Time {
        self.full_at - gap * (BURST - 1)
    }

    /// One went that counts for as much time as `cost`: a gap, or more if it was a long one.
    pub(crate) fn charge(&mut self, now: Time, cost: Duration) {
        self.full_at = self.full_at.max(now) + cost;
    }

    /// Takes one if there is one.
    pub(crate) fn take(&mut self, now: Time, gap: Duration) -> bool {
        let is_open = self.opens_at(gap) <= now;
        if is_open {
            self.charge(now, gap);
        }
        is_open
    }
}

/// So many frames' time may have come of one peer at once: more than the medium carries, but what
/// waited elsewhere comes together.
const BELIEVED_FRAMES: u32 = 32;

/// The airtime that a peer's frames are said to have taken: they may not have come over this
/// medium, and then they have held up nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Claim {
    /// When the medium would have been done with them, had they begun when they came.
    until: Time,
    short: Allowance,
}

impl Claim {
    /// Whether a frame is believed to have taken `airtime`, where a full one takes `frame`. Who
    /// claims more than there is is not believed until that has passed; and of frames that are
    /// `short`, which go out of turn, one in each frame's time is.
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
    fn a_few_go_at_once_and_then_one_in_each_gap() {
        let gap = Duration::from_millis(10);
        let mut allowance = Allowance::default();
        let mut taken = |from: u64, to: u64| -> Vec<u64> {
            (from..to).filter(|ms| allowance.take(Time::from_millis(*ms), gap)).collect()
        };
        assert_eq!(taken(100, 130), [100, 101, 102, 103, 110, 120]);
        assert_eq!(taken(1000, 1012), [1000, 1001, 1002, 1003, 1010]);
    }

    #[test]
    fn who_claims_more_than_there_is_is_not_believed() {
        let (frame, ms) = (Duration::from_millis(12), Time::from_millis);
        let mut claim = Claim::default();
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
    fn a_long_one_counts_for_more() {
        let gap = Duration::from_millis(10);
        let mut allowance = Allowance::default();
        allowance.charge(Time::from_millis(100), gap * 7);
        assert_eq!(allowance.opens_at(gap), Time::from_millis(140));
    }
}
