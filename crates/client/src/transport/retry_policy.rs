//! Retransmission policies with fixed timeouts.

use std::time::Duration;

/// Retransmission over UDP. Over TCP nothing is sent twice on one connection.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum RetryPolicy {
    /// Exponential backoff of the reference port (DRC 89, section 2.1): each timeout is `factor` times the one before,
    /// up to `max`.
    Exponential {
        initial: Duration,
        /// At least 1; 2 in most ports, 4 in the reference port.
        factor: u32,
        max: Duration,
    },
    /// Hybrid linear backoff (NFS/W 97, section 5.2): each of the first `linear_retries` timeouts is `step` longer than
    /// the one before, each later one twice as long, up to `max`.
    HybridLinear {
        initial: Duration,
        /// Increment of the first timeouts.
        step: Duration,
        /// Number of linear increments.
        linear_retries: u32,
        max: Duration,
    },
    /// Infers losses (`loss::detector`).
    Adaptive,
}

impl RetryPolicy {
    /// The stock client of the 1990s: 0.7 s, doubled up to 60 s.
    pub const STOCK: RetryPolicy =
        RetryPolicy::Exponential { initial: Duration::from_millis(700), factor: 2, max: Duration::from_secs(60) };

    /// The papers' hybrid linear backoff: from 0.7 s in three steps of 0.1 s.
    pub const PAPER: RetryPolicy = RetryPolicy::HybridLinear {
        initial: Duration::from_millis(700),
        step: Duration::from_millis(100),
        linear_retries: 3,
        max: Duration::from_secs(60),
    };

    /// Timeout after `retries` retransmissions; `None` for the adaptive policy.
    pub fn timeout(&self, retries: u32) -> Option<Duration> {
        match *self {
            RetryPolicy::Exponential { initial, factor, max } => Some(grow(initial, factor, retries, max)),
            RetryPolicy::HybridLinear { initial, step, linear_retries, max } => {
                let linear = initial.saturating_add(step.saturating_mul(retries.min(linear_retries)));
                Some(grow(linear, 2, retries.saturating_sub(linear_retries), max))
            }
            RetryPolicy::Adaptive => None,
        }
    }
}

/// `base` times `factor` to the power of `times`, at most `max`.
fn grow(base: Duration, factor: u32, times: u32, max: Duration) -> Duration {
    let factor = factor.max(1).checked_pow(times).unwrap_or(u32::MAX);
    base.saturating_mul(factor).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(policy: RetryPolicy, n: u32) -> Vec<u128> {
        (0..n).map(|r| policy.timeout(r).map_or(0, |d| d.as_millis())).collect()
    }

    #[test]
    fn timeouts_are_those_of_the_papers() {
        let reference =
            RetryPolicy::Exponential { initial: Duration::from_millis(700), factor: 4, max: Duration::from_secs(60) };
        assert_eq!(ms(reference, 6), [700, 2800, 11_200, 44_800, 60_000, 60_000]);
        assert_eq!(ms(RetryPolicy::STOCK, 4), [700, 1400, 2800, 5600]);
        assert_eq!(ms(RetryPolicy::PAPER, 7), [700, 800, 900, 1000, 2000, 4000, 8000]);
    }

    #[test]
    fn timeout_does_not_overflow() {
        for policy in [RetryPolicy::STOCK, RetryPolicy::PAPER] {
            assert_eq!(policy.timeout(u32::MAX), Some(Duration::from_secs(60)));
        }
    }
}
