//! Chooses how many frames to send for each requested acknowledgement.
//!
//! A request costs an ACK's airtime. Without a request, frames sent into a bad period before its detection are lost.
//! With `p` the probability that a frame begins a burst that also destroys the next one, a request every `n` frames
//! costs `ack / n + p * frame * n / 2` a frame, which is least at `n = sqrt(2 * ack / (p * frame))`. The second cost
//! counts only if another destination could use the airtime.

/// Frames over which the burst probability is averaged.
const MEMORY: f64 = 128.0;

/// Estimates the probability of loss bursts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckFrequency {
    /// Probability that a frame begins a burst.
    burst: f64,
}

impl AckFrequency {
    /// Starts with a low burst probability.
    pub(crate) fn new() -> AckFrequency {
        AckFrequency { burst: 1.0 / MEMORY / 2.0 }
    }

    /// Adds the fates of frames in order of transmission, `true` for a loss. `outlived` means that the silence lasted
    /// longer than a probe. At most one burst is counted: no more fits between two acknowledgements.
    pub(crate) fn learn(&mut self, lost: &[bool], outlived: bool) {
        for _ in lost {
            self.burst -= self.burst / MEMORY;
        }
        if outlived || lost.windows(2).any(|pair| pair == [true, true]) {
            self.burst += 1.0 / MEMORY;
        }
    }

    /// The number of frames for each requested acknowledgement: 1 to `max`.
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

    /// The result after 10,000 frames if every `gap`-th begins a burst of two.
    fn plan(gap: usize, contended: bool) -> u32 {
        let mut ack_frequency = AckFrequency::new();
        for _ in 0..10_000 / gap {
            let fates: Vec<bool> = (0..gap).map(|i| i < 2).collect();
            ack_frequency.learn(&fates, false);
        }
        ack_frequency.learn(&vec![false; gap / 2], false);
        ack_frequency.every(60, 1500, contended, 6)
    }

    #[test]
    fn ack_frequency_grows_with_bursts() {
        assert_eq!(plan(10, true), 1);
        assert_eq!(plan(40, true), 2);
        assert_eq!(plan(1000, true), 6);
        assert_eq!(plan(10, false), 6, "lost airtime that nobody else wanted costs nothing");
    }

    #[test]
    fn single_losses_are_no_bursts() {
        let mut ack_frequency = AckFrequency::new();
        for _ in 0..200 {
            ack_frequency.learn(&[true, false, false, false, false], false);
        }
        assert_eq!(ack_frequency.every(60, 1500, true, 6), 6);
    }
}
