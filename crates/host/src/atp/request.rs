//! A request: an object on its way, as the application holds it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use remora_atp::{Command, Final, Gone, Priority, Progress, RequestId};
use tokio::sync::oneshot;

use super::error::AtpError;
use super::shared::Shared;

/// An object on its way. Awaited, it says how it ended, which it does exactly once. The object
/// goes on when this is dropped; [`cancel`](Request::cancel) ends it.
pub struct Request {
    pub(super) id: RequestId,
    pub(super) shared: Arc<Shared>,
    pub(super) end: oneshot::Receiver<Final>,
}

/// Asks something of a request, whether or not somebody awaits it. Clones ask of the same.
#[derive(Clone)]
pub struct Control {
    id: RequestId,
    shared: Arc<Shared>,
}

impl Request {
    /// Its name in notices.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// For asking while something else awaits it.
    pub fn control(&self) -> Control {
        Control { id: self.id, shared: self.shared.clone() }
    }

    /// How far it is.
    pub fn progress(&self) -> Result<Progress, Gone> {
        self.control().ask(Command::Inspect)
    }

    /// Ends it; what awaits it gets `Outcome::Cancelled`, unless it had ended already.
    pub fn cancel(&self) -> Result<Progress, Gone> {
        self.control().ask(Command::Cancel)
    }

    /// Sends no more of it for now. Its deadline keeps running.
    pub fn suspend(&self) -> Result<Progress, Gone> {
        self.control().ask(Command::Suspend)
    }

    /// Goes on where it stopped.
    pub fn restart(&self) -> Result<Progress, Gone> {
        self.control().ask(Command::Restart)
    }

    /// Makes it more urgent, or less.
    pub fn set_priority(&self, priority: Priority) -> Result<Progress, Gone> {
        self.control().ask(Command::Prioritise(priority))
    }

    /// Gives it so long from now; `None` for ever.
    pub fn set_deadline(&self, deadline: Option<Duration>) -> Result<Progress, Gone> {
        self.control().ask(Command::Deadline(deadline))
    }
}

impl Control {
    /// Asks; says how far the request is. [`Gone`] if it has ended.
    pub fn ask(&self, command: Command) -> Result<Progress, Gone> {
        let mut state = self.shared.lock();
        let progress = state.core.control(self.shared.now(), self.id, command);
        self.shared.deliver(&mut state);
        drop(state);
        self.shared.ring();
        progress
    }
}

impl Future for Request {
    type Output = Result<Final, AtpError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.end).poll(cx).map_err(|_| AtpError::Closed)
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({})", self.id.0)
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Control({})", self.id.0)
    }
}
