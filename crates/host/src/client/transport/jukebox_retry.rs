//! Retries for NFS3ERR_JUKEBOX (RFC 1813, section 2.6): the request was not executed and is to be sent again later,
//! with a new xid.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use remora_wire::nfs3::Status;

use crate::Clock;
use crate::client::error::ClientError;
use crate::client::transport::shared_core::{Deferrals, SharedCore, elapsed};

/// Pause before a retry, at first and at most; it doubles.
pub(crate) const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The retries of one caller.
#[derive(Debug)]
pub(crate) struct JukeboxRetry {
    patience: Option<Duration>,
    pause: Duration,
    since: Option<Clock>,
    /// Counts the caller while it waits.
    shared: Option<Arc<SharedCore>>,
}

impl JukeboxRetry {
    /// With `patience` from the first such reply on; `None`: without limit.
    pub(crate) fn new(patience: Option<Duration>) -> JukeboxRetry {
        JukeboxRetry { patience, pause: PAUSE.0, since: None, shared: None }
    }

    /// Counts the caller in the connection's [`Deferrals`] while it waits.
    pub(crate) fn counted_by(mut self, shared: &Arc<SharedCore>) -> JukeboxRetry {
        self.shared = Some(shared.clone());
        self
    }

    /// Whether `status` asks for a retry.
    pub(crate) fn is(status: Status) -> bool {
        status == Status::Jukebox
    }

    /// Such a reply came: waits for the pause, or fails when the patience is over.
    pub(crate) async fn wait(&mut self) -> Result<(), ClientError> {
        self.bear()?;
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE.1);
        Ok(())
    }

    /// As [`wait`](JukeboxRetry::wait), without waiting.
    pub(crate) fn bear(&mut self) -> Result<(), ClientError> {
        if self.since.is_none() {
            self.since = Some(Clock::start());
            self.count(Deferrals::add);
        }
        let waited = self.since.as_ref().map(elapsed).unwrap_or_default();
        let is_over = self.patience.is_some_and(|patience| waited >= patience);
        if is_over { Err(Status::Jukebox.into()) } else { Ok(()) }
    }

    /// Another reply came.
    pub(crate) fn is_over(&mut self) {
        self.pause = PAUSE.0;
        if self.since.take().is_some() {
            self.count(Deferrals::remove);
        }
    }

    fn count(&self, change: impl FnOnce(&mut Deferrals)) {
        if let Some(shared) = &self.shared {
            change(&mut shared.deferrals.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl Drop for JukeboxRetry {
    fn drop(&mut self) {
        self.is_over();
    }
}
