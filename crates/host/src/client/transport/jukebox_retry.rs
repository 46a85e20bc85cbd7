//! Servers that ask for patience: NFS3ERR_JUKEBOX (RFC 1813, section 2.6) means that the request
//! was not done and is to be made again later, with a new xid.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use remora_wire::nfs3::Status;

use crate::Clock;
use crate::client::error::ClientError;
use crate::client::transport::shared_core::{Deferrals, SharedCore, elapsed};

/// The pause before a request is made again, at first and at most; each is twice the one before.
pub(crate) const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How long a server has been asking for patience, and how much of it there is.
#[derive(Debug)]
pub(crate) struct JukeboxRetry {
    patience: Option<Duration>,
    pause: Duration,
    since: Option<Clock>,
    /// The connection whose [`Deferrals`] count it.
    shared: Option<Arc<SharedCore>>,
}

impl JukeboxRetry {
    /// With `patience` from the first time on; `None` for ever.
    pub(crate) fn new(patience: Option<Duration>) -> JukeboxRetry {
        JukeboxRetry { patience, pause: PAUSE.0, since: None, shared: None }
    }

    /// Counts while it waits in the connection's [`Deferrals`].
    pub(crate) fn counted_by(mut self, shared: &Arc<SharedCore>) -> JukeboxRetry {
        self.shared = Some(shared.clone());
        self
    }

    /// Whether that is what a server says with `status`.
    pub(crate) fn is(status: Status) -> bool {
        status == Status::Jukebox
    }

    /// The server said so once more: waits a while, or fails with what it said.
    pub(crate) async fn wait(&mut self) -> Result<(), ClientError> {
        self.bear()?;
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE.1);
        Ok(())
    }

    /// The same without waiting, for who has something else to do.
    pub(crate) fn bear(&mut self) -> Result<(), ClientError> {
        if self.since.is_none() {
            self.since = Some(Clock::start());
            self.count(Deferrals::add);
        }
        let waited = self.since.as_ref().map(elapsed).unwrap_or_default();
        let is_over = self.patience.is_some_and(|patience| waited >= patience);
        if is_over { Err(Status::Jukebox.into()) } else { Ok(()) }
    }

    /// It has done something else meanwhile.
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
