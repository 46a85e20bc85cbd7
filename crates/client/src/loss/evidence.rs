//! Which transmissions are known to have been answered, as evidence of the fate of earlier ones (RACK, RFC 8985).
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
