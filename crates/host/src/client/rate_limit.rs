//! Rate limit of file data: a token bucket, stored as the time of its next token.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// Burst after a pause.
const BURST: Duration = Duration::from_millis(100);
/// Shortest block in bytes.
const BLOCK_MIN: u32 = 1024;

/// A limit in bytes per second that sessions share.
#[derive(Debug)]
pub struct RateLimit {
    bytes_per_second: u64,
    /// Time of the next token.
    free_at: Mutex<Instant>,
}

impl RateLimit {
    /// At least one byte per second.
    pub fn new(bytes_per_second: u64) -> RateLimit {
        RateLimit { bytes_per_second: bytes_per_second.max(1), free_at: Mutex::new(Instant::now()) }
    }

    /// When the next request is admitted, if later than `now`.
    pub(crate) fn closed_until(&self, now: Instant) -> Option<Instant> {
        let free_at = *self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        Some(free_at).filter(|free_at| *free_at > now)
    }

    /// Counts a request for `bytes` bytes.
    pub(crate) fn take(&self, now: Instant, bytes: u64) {
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let lasts = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        *free_at = (*free_at).max(earliest) + lasts;
    }

    /// Longest block: a tenth of a second.
    pub(crate) fn block(&self, max: u32) -> u32 {
        let tenth = u32::try_from(self.bytes_per_second / 10).unwrap_or(u32::MAX);
        max.min(tenth.max(BLOCK_MIN))
    }
}

/// Waits for `answer`; `None` if the next request is admitted before.
pub(crate) async fn or_open<T, E>(
    closed_until: Option<Instant>,
    answer: impl Future<Output = Result<Option<T>, E>>,
) -> Result<Option<T>, E> {
    match closed_until {
        Some(until) => timeout_at(until, answer).await.unwrap_or(Ok(None)),
        None => answer.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_holds_for_any_block_size() {
        for block in [1000, 64_000] {
            let throttle = RateLimit::new(1_000_000);
            let began = Instant::now();
            let (mut now, mut bytes) = (began, 0);
            while bytes < 5_000_000 {
                now = throttle.closed_until(now).unwrap_or(now);
                throttle.take(now, block);
                bytes += block;
            }
            let seconds = (now - began).as_secs_f64();
            assert!((4.8..=5.0).contains(&seconds), "blocks of {block}: {seconds} s");
        }
    }

    #[test]
    fn pause_saves_no_more_than_a_burst() {
        let throttle = RateLimit::new(1_000_000);
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(throttle.closed_until(later), None);
        throttle.take(later, 100_000);
        assert_eq!(throttle.closed_until(later), None, "a burst");
        throttle.take(later, 1_000_000);
        assert_eq!(throttle.closed_until(later), Some(later + Duration::from_secs(1)));
    }

    #[test]
    fn blocks_are_short_where_the_limit_is_low() {
        let block = |rate| RateLimit::new(rate).block(65_536);
        assert_eq!((block(0), block(100_000), block(1 << 30)), (BLOCK_MIN, 10_000, 65_536));
    }
}
