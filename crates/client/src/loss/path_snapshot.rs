//! The path model as it was before other connections filled the path.
//!
//! While streams beside a client carry the file data, its own few datagrams wait behind theirs and are dropped where
//! they overflow a queue. Estimates from that time are worthless once the streams are gone.

use std::time::Duration;

use remora_base::Time;

use super::path_model::PathModel;

/// Age from which a snapshot is no longer restored.
const AGE_MAX: Duration = Duration::from_secs(60);

/// A saved [`PathModel`].
#[derive(Clone, Debug)]
pub(crate) struct PathSnapshot {
    at: Time,
    path: PathModel,
}

impl PathSnapshot {
    pub(crate) fn take(now: Time, path: &PathModel) -> PathSnapshot {
        PathSnapshot { at: now, path: path.clone() }
    }

    /// Restores it unless it is too old. Returns whether it did.
    pub(crate) fn restore(self, now: Time, path: &mut PathModel) -> bool {
        if now.since(self.at) >= AGE_MAX {
            return false;
        }
        path.restore(self.path);
        // Replies to what is in flight say nothing of the restored path.
        path.loss.forget_in_flight();
        path.forget_queue();
        true
    }
}
