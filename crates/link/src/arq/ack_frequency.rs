//! How often to ask for an acknowledgement.
//!
//! Asking costs an ACK's airtime; not asking costs the frames sent into a bad period before
//! it is noticed. With `p` the probability that a frame begins a burst that would also have
//! taken the next one, asking every `n` frames costs `ack / n + p * frame * n / 2` a frame,
//! which is least at `n = sqrt(2 * ack / (p * frame))`. The second cost only counts where
//! someone else could have used the airtime.

/// Frames over which the probability is estimated.
const MEMORY: f64 = 128.0;

/// What has been learned about bursts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Polls {
    /// Probability that a frame begins a burst.
    burst: f64,
}

impl Polls {
    /// Nothing learned yet: bursts are rare.
    pub(crate) fn new() -> Polls {
        Polls { burst: 1.0 / MEMORY / 2.0 }
    }

    /// Frames went through, or were lost (`true`), in this order; `outlived` if the silence
    /// outlived a probe. At most one burst is counted: no more fits between two answers.
    pub(crate) fn learn(&mut self, lost: &[bool], outlived: bool) {
        for _ in lost {
            self.burst -= self.burst / MEMORY;
        }
        if outlived || lost.windows(2).any(|pair| pair == [true, true]) {
            self.burst += 1.0 / MEMORY;
        }
    }

    /// How many frames to send for each acknowledgement asked for: 1 to `max`.
    pub(crate) fn every(&self, ack_cost: u64, frame_cost: u64, contended: bool, max: u32) -> u32 {
        let max = max.max(1);
        if !contended {
            return max;
        }
        let best = (2.0 * ack_cost as f64 / (self.burst * frame_cost as f64).max(1e-9)).sqrt();
        (best.round() as u32).clamp(1, max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plan after 1000 frames of which every `gap`-th begins a burst of two.
    fn plan(gap: usize, contended: bool) -> u32 {
        let mut polls = Polls::new();
        for _ in 0..10_000 / gap {
            let fates: Vec<bool> = (0..gap).map(|i| i < 2).collect();
            polls.learn(&fates, false);
        }
        polls.learn(&vec![false; gap / 2], false);
        polls.every(60, 1500, contended, 6)
    }

    #[test]
    fn the_more_bursts_the_more_polls() {
        assert_eq!(plan(10, true), 1);
        assert_eq!(plan(40, true), 2);
        assert_eq!(plan(1000, true), 6);
        assert_eq!(plan(10, false), 6, "lost airtime that nobody else wanted costs nothing");
    }

    #[test]
    fn losses_one_by_one_are_no_bursts() {
        let mut polls = Polls::new();
        for _ in 0..200 {
            polls.learn(&[true, false, false, false, false], false);
        }
        assert_eq!(polls.every(60, 1500, true, 6), 6);
    }
}
