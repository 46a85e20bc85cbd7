//! Servers that ask for patience: NFS3ERR_JUKEBOX (RFC 1813, section 2.6) means that the request
//! was not done and is to be made again later, with a new xid.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use remora_base::Time;
use remora_wire::nfs3::Status;

use super::ClientError;
use super::line::Line;
use crate::Clock;

/// The pause before a request is made again, at first and at most; each is twice the one before.
pub(super) const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The calls of a line that the server has asked to make again later, and since when there has been one.
#[derive(Debug, Default)]
pub(super) struct Deferrals {
    count: usize,
    since: Option<Clock>,
}

impl Deferrals {
    /// How long there has been at least one.
    pub(super) fn lasts(&self) -> Duration {
        self.since.as_ref().map(elapsed).unwrap_or_default()
    }

    fn add(&mut self) {
        self.count += 1;
        self.since.get_or_insert_with(Clock::start);
    }

    fn remove(&mut self) {
        self.count = self.count.saturating_sub(1);
        if self.count == 0 {
            self.since = None;
        }
    }
}

/// How long the process has run since `clock` was started.
fn elapsed(clock: &Clock) -> Duration {
    clock.now().since(Time::ZERO)
}

/// How long a server has been asking for patience, and how much of it there is.
#[derive(Debug)]
pub(super) struct Later {
    patience: Option<Duration>,
    pause: Duration,
    since: Option<Clock>,
    /// The line whose [`Deferrals`] count it.
    line: Option<Arc<Line>>,
}

impl Later {
    /// With `patience` from the first time on; `None` for ever.
    pub(super) fn new(patience: Option<Duration>) -> Later {
        Later { patience, pause: PAUSE.0, since: None, line: None }
    }

    /// Counts while it waits in the line's [`Deferrals`].
    pub(super) fn counted_by(mut self, line: &Arc<Line>) -> Later {
        self.line = Some(line.clone());
        self
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
        if self.since.is_none() {
            self.since = Some(Clock::start());
            self.count(Deferrals::add);
        }
        let waited = self.since.as_ref().map(elapsed).unwrap_or_default();
        let is_over = self.patience.is_some_and(|patience| waited >= patience);
        if is_over { Err(Status::Jukebox.into()) } else { Ok(()) }
    }

    /// It has done something else meanwhile.
    pub(super) fn is_over(&mut self) {
        self.pause = PAUSE.0;
        if self.since.take().is_some() {
            self.count(Deferrals::remove);
        }
    }

    fn count(&self, change: impl FnOnce(&mut Deferrals)) {
        if let Some(line) = &self.line {
            change(&mut line.shared.deferrals.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        self.is_over();
    }
}
