//! What answers say of what was sent before them.
//!
//! A reply proves the fate of all that was sent before its request, but for one thing: what has waited in the same queue
//! right behind a block reaches the server together with it, and is answered first where that takes less, by another
//! thread, or without a disk. On a medium that both sides share the block's reply then comes a whole frame later.

use std::time::Duration;

use crate::call::{PendingCall, Transmission};
use crate::loss::detector::LossDetector;

/// How much longer than what arrives together with it a server works on a block, and its answer takes on the way.
const TOGETHER: Duration = Duration::from_millis(2);

/// The latest transmissions known to have been answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Evidence {
    latest: Option<u64>,
    /// The latest of those that cannot have arrived together with what was sent before them.
    alone: Option<u64>,
}

impl Evidence {
    /// The transmission `seq` was answered; it may have arrived `together` with others.
    pub(crate) fn add(&mut self, seq: u64, together: bool) {
        self.latest = self.latest.max(Some(seq));
        if !together {
            self.alone = self.alone.max(Some(seq));
        }
    }

    /// Whether something sent after `seq` was answered.
    pub(crate) fn is_after(&self, seq: u64) -> bool {
        self.latest.is_some_and(|latest| latest > seq)
    }

    pub(crate) fn is_surely_after(&self, seq: u64) -> bool {
        self.alone.is_some_and(|alone| alone > seq)
    }
}

impl LossDetector {
    /// Whether something sent after `sent` was answered.
    pub(crate) fn has_passed(&self, sent: &Transmission) -> bool {
        self.evidence.is_after(sent.seq)
    }

    /// Whether something small that was answered after `trip` has waited in a queue, and so may have arrived together with
    /// what waited there before it.
    pub(crate) fn has_waited(&self, trip: Duration) -> bool {
        self.small_trip().is_some_and(|least| trip > least + self.frame_time().unwrap_or_default())
    }

    /// How long after it was first passed `call` may still be answered, as what has passed it arrived together with it.
    pub(crate) fn grace(&self, call: &PendingCall, sent: Transmission) -> Duration {
        if !call.class.is_bulk() || self.evidence.is_surely_after(sent.seq) {
            return Duration::ZERO;
        }
        TOGETHER + self.frame_time().unwrap_or_default() * 5 / 4
    }
}
