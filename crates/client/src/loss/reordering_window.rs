//! The reordering window (RFC 8985): how much later than a later request a request may be answered. It grows after a
//! spurious retransmission.

use std::time::Duration;

/// The reordering window.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReorderingWindow {
    steps: u32,
    calm: u32,
}

impl ReorderingWindow {
    /// The window for a minimum RTT `shortest` and a smoothed RTT `usual`. Overtaking happens in the queue.
    pub(crate) fn window(&self, shortest: Duration, usual: Duration) -> Duration {
        // Even a server that answers in order does not always, least of all writes to a disk.
        Duration::from_millis(1) + shortest / 16 + shortest.max(usual) * self.steps / 4
    }

    /// Whether retransmissions were spurious lately, so that a reply may belong to any transmission.
    pub(crate) fn is_known(&self) -> bool {
        self.steps > 0
    }

    pub(crate) fn on_spurious(&mut self) {
        self.steps = (self.steps + 1).min(16);
        self.calm = 0;
    }

    pub(crate) fn on_loss(&mut self) {
        self.calm += 1;
        if self.calm >= 16 {
            self.steps = self.steps.saturating_sub(1);
            self.calm = 0;
        }
    }
}
