//! Pauses of a link that carries much at once and then nothing for a while, as a radio whose stations take turns.
//!
//! The wait for the next turn is in every RTT and is no queue. It shows in replies that stay away and then come
//! together, in two consecutive rounds of the window without a loss.

use std::time::Duration;

/// A gap of this many times the airtime of a reply is a pause.
pub(crate) const PAUSE: u32 = 4;

/// The longest pauses, by round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DutyCycle {
    this_round: Duration,
    last_round: Duration,
    expected: Duration,
}

impl DutyCycle {
    /// Expected wait for the next turn; zero where stations do not take turns.
    pub(crate) fn expected(&self) -> Duration {
        self.expected
    }

    /// A gap before a reply.
    pub(crate) fn see(&mut self, pause: Duration) {
        self.this_round = self.this_round.max(pause);
    }

    /// A round is over; `lossy` if something was lost in it.
    pub(crate) fn end_round(&mut self, lossy: bool) {
        let pause = if lossy { Duration::ZERO } else { self.this_round };
        self.expected = pause.min(self.last_round);
        self.last_round = pause;
        self.forget_round();
    }

    pub(crate) fn forget_round(&mut self) {
        self.this_round = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_is_expected_after_two_lossless_rounds_with_one() {
        let ms = Duration::from_millis;
        let mut pauses = DutyCycle::default();
        for (seen, lossy, expected) in [
            (&[20, 50, 0][..], false, 0),
            (&[40], false, 40),
            (&[60], false, 40),
            (&[60], true, 0),
            (&[60], false, 0),
            (&[], false, 0),
        ] {
            seen.iter().for_each(|pause| pauses.see(ms(*pause)));
            pauses.end_round(lossy);
            assert_eq!(pauses.expected(), ms(expected));
        }
    }
}
