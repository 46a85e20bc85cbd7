//! How much later than what was sent after it something is answered, learned from what was given up for lost too soon.

use std::time::Duration;

/// How much later than its successors a reply may come.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReorderingWindow {
    steps: u32,
    calm: u32,
}

impl ReorderingWindow {
    /// Where a trip takes `shortest` at least and `usual` as a rule: the one without a queue, the
    /// other with it, and what overtakes does so in the queue.
    pub(crate) fn window(&self, shortest: Duration, usual: Duration) -> Duration {
        // Even a server that answers in order does not always, least of all what it writes to a disk.
        Duration::from_millis(1) + shortest / 16 + shortest.max(usual) * self.steps / 4
    }

    /// Whether things have been overtaken of late, so that an answer may be to any transmission.
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
