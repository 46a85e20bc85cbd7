//! Servers that ask for patience: NFS3ERR_JUKEBOX (RFC 1813, section 2.6) means that the request
//! was not done and is to be made again later, with a new xid.

use std::time::{Duration, Instant};

use remora_wire::nfs3::Status;

use super::ClientError;

/// The pause before a request is made again, at first and at most; each is twice the one before.
pub(super) const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How long a server has been asking for patience, and how much of it there is.
#[derive(Debug)]
pub(super) struct Later {
    patience: Option<Duration>,
    pause: Duration,
    since: Option<Instant>,
}

impl Later {
    /// With `patience` from the first time on; `None` for ever.
    pub(super) fn new(patience: Option<Duration>) -> Later {
        Later { patience, pause: PAUSE.0, since: None }
    }

    /// Whether that is what a server says with `status`.
    pub(super) fn is(status: Status) -> bool {
        status == Status::Jukebox
    }

    /// The server said so once more: waits a while, or fails with what it said.
    pub(super) async fn wait(&mut self) -> Result<(), ClientError> {
        self.bear()?;
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE.1);
        Ok(())
    }

    /// The same without waiting, for who has something else to do.
    pub(super) fn bear(&mut self) -> Result<(), ClientError> {
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        let is_over = self.patience.is_some_and(|patience| waited >= patience);
        if is_over { Err(Status::Jukebox.into()) } else { Ok(()) }
    }

    /// It has done something else meanwhile.
    pub(super) fn is_over(&mut self) {
        (self.pause, self.since) = (PAUSE.0, None);
    }
}
