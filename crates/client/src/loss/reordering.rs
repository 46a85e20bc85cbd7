//! Which transmissions are known to have been answered, and how much later than a later request a request may be
//! answered (RACK, RFC 8985).
//!
//! A reply proves the fate of all that was sent before its request, with one exception. A small request that waited in
//! a queue right behind a block arrives together with it and may be answered first: by another thread, or without a
//! disk. On a medium that both directions share, the block's reply may then come a full frame's airtime after the small
//! reply. So after such a reply the client waits for [`Evidence::grace`] before it takes the block for lost.

use std::time::Duration;

/// Extra time of a block at the server, against a small request that arrives with it.
const SERVICE_EXTRA: Duration = Duration::from_millis(2);

/// The latest answered transmissions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Evidence {
    latest: Option<u64>,
    /// The latest that cannot have arrived together with an earlier one.
    alone: Option<u64>,
}

impl Evidence {
    /// Transmission `seq` was answered; it may have arrived `together` with earlier ones.
    pub(crate) fn add(&mut self, seq: u64, together: bool) {
        self.latest = self.latest.max(Some(seq));
        if !together {
            self.alone = self.alone.max(Some(seq));
        }
    }

    /// Whether a transmission after `seq` was answered.
    pub(crate) fn is_after(&self, seq: u64) -> bool {
        self.latest.is_some_and(|latest| latest > seq)
    }

    /// How long after it was passed a block, sent as `seq`, may still be answered.
    pub(crate) fn grace(&self, seq: u64, frame_time: Duration) -> Duration {
        let is_proof = self.alone.is_some_and(|alone| alone > seq);
        if is_proof { Duration::ZERO } else { SERVICE_EXTRA + frame_time * 5 / 4 }
    }
}

/// The reordering window. It grows after a spurious retransmission.
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
