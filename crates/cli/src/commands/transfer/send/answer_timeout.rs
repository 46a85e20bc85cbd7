//! Timeout for the receiver's verdict on a file. The receiver reads, compares and syncs large files, one after the
//! other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long an answer may take, whatever the file, not counting the time the link is silent.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// What a slow receiver gets done in a second beside, in bytes: a memory card, say.
const DONE_IN_A_SECOND: u64 = 2_000_000;

/// Bytes of all files that the receiver has, or was asked about, and has not answered.
#[derive(Clone, Default, Debug)]
pub(crate) struct UnansweredBytes(Arc<AtomicU64>);

/// The wait for one answer.
#[derive(Debug)]
pub(crate) struct AnswerTimeout {
    unanswered: UnansweredBytes,
    size: u64,
    waited: Duration,
    /// As much as there was before it at any time, and not what is left of that.
    most: Duration,
    has_place: bool,
}

impl AnswerTimeout {
    /// Starts the timeout for a file of `size` bytes.
    pub(crate) fn new(unanswered: &UnansweredBytes, size: u64) -> AnswerTimeout {
        unanswered.0.fetch_add(size, Ordering::Relaxed);
        AnswerTimeout {
            unanswered: unanswered.clone(),
            size,
            waited: Duration::ZERO,
            most: ANSWER_MAX,
            has_place: true,
        }
    }

    /// So much time has passed in which an answer could have come.
    pub(crate) fn add(&mut self, time: Duration) {
        self.waited += time;
    }

    /// The receiver has said that the file waits for a place: that takes as long as it takes.
    pub(crate) fn for_place(&mut self) {
        self.has_place = false;
    }

    /// Whether it has taken too long.
    pub(crate) fn is_over(&mut self) -> bool {
        let bytes = self.unanswered.0.load(Ordering::Relaxed);
        self.most = self.most.max(ANSWER_MAX + Duration::from_secs(bytes / DONE_IN_A_SECOND));
        self.has_place && self.waited >= self.most
    }
}

impl Drop for AnswerTimeout {
    fn drop(&mut self) {
        self.unanswered.0.fetch_sub(self.size, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_timeout_includes_files_sent_before() {
        let (unanswered, minute) = (UnansweredBytes::default(), Duration::from_secs(60));
        let mut small = AnswerTimeout::new(&unanswered, 1000);
        small.add(minute - Duration::from_millis(100));
        assert!(!small.is_over());
        small.add(Duration::from_millis(100));
        assert!(small.is_over());
        drop(small);
        let mut first = AnswerTimeout::new(&unanswered, 600_000_000);
        let mut second = AnswerTimeout::new(&unanswered, 60_000_000);
        for wait in [&mut first, &mut second] {
            wait.add(minute + Duration::from_secs(329));
            assert!(!wait.is_over());
        }
        // What was before it is done, and has taken its time.
        drop(first);
        assert!(!second.is_over());
        second.add(Duration::from_secs(1));
        assert!(second.is_over());
        drop(second);
        let mut last = AnswerTimeout::new(&unanswered, 0);
        last.add(minute);
        assert!(last.is_over(), "nothing is left of the others");
        last.for_place();
        assert!(!last.is_over());
    }
}
