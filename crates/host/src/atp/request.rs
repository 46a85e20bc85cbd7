//! A request of the application: an object in transfer.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use remora_atp::{Command, Final, Gone, Priority, Progress, RequestId};
use tokio::sync::oneshot;

use super::error::AtpError;
use super::shared::SharedEndpoint;

/// An object in transfer. Awaiting it returns its end. Dropping it does not stop the transfer;
/// [`cancel`](Request::cancel) does.
pub struct Request {
    pub(super) id: RequestId,
    pub(super) shared: Arc<SharedEndpoint>,
    pub(super) end: oneshot::Receiver<Final>,
}

/// Controls a request, whether or not it is awaited. Clones control the same one.
#[derive(Clone)]
pub struct RequestControl {
    id: RequestId,
    shared: Arc<SharedEndpoint>,
}

impl Request {
    /// The request's id in notices.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// A control handle, usable while the request is awaited.
    pub fn control(&self) -> RequestControl {
        RequestControl { id: self.id, shared: self.shared.clone() }
    }

    pub fn progress(&self) -> Result<Progress, Gone> {
        self.control().ask(Command::Inspect)
    }

    /// Cancels the request; awaiting it returns `Outcome::Cancelled` unless it has ended.
    pub fn cancel(&self) -> Result<Progress, Gone> {
        self.control().ask(Command::Cancel)
    }

    /// Pauses sending. The deadline continues to run.
    pub fn suspend(&self) -> Result<Progress, Gone> {
        self.control().ask(Command::Suspend)
    }

    /// Resumes a suspended request.
    pub fn restart(&self) -> Result<Progress, Gone> {
        self.control().ask(Command::Restart)
    }

    pub fn set_priority(&self, priority: Priority) -> Result<Progress, Gone> {
        self.control().ask(Command::Prioritise(priority))
    }

    /// Sets the deadline to this time from now; `None` removes it.
    pub fn set_deadline(&self, deadline: Option<Duration>) -> Result<Progress, Gone> {
        self.control().ask(Command::Deadline(deadline))
    }
}

impl RequestControl {
    /// Runs a command; returns the progress, or [`Gone`] if the request has ended.
    pub fn ask(&self, command: Command) -> Result<Progress, Gone> {
        let mut state = self.shared.lock();
        let progress = state.core.control(self.shared.now(), self.id, command);
        self.shared.deliver(&mut state);
        drop(state);
        self.shared.wake();
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

impl fmt::Debug for RequestControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestControl({})", self.id.0)
    }
}
