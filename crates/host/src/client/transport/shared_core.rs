//! The client core of one connection, shared by its sessions and its driver.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use remora_atp::session::Refusal;
use remora_base::{Core, Time};
use remora_client::{Answer, CallFailure, CallId, Client, ClientEvent, Request};
use remora_wire::nfs3;
use remora_wire::rpc::OpaqueAuth;
use remora_wire::urgency::Urgency;
use tokio::sync::{Notify, oneshot};

use crate::atp::AtpError;
use crate::client::error::ClientError;
use crate::handoff::Signal;
use crate::{Clock, tcp};

/// State that sessions and the driver of a connection share.
#[derive(Debug)]
pub(crate) struct SharedCore {
    state: Mutex<State>,
    /// Notified when there is something to send, or a timer has moved.
    pub(crate) changed: Notify,
    pub(crate) clock: Clock,
    /// The server for messages.
    pub(crate) name: String,
    /// A parallel stream: others do its work while it stalls, so no second connection is tried.
    pub(crate) is_beside: bool,
    /// The socket of a parallel stream, to ask the kernel about it.
    watched: Mutex<Option<OwnedFd>>,
    /// Calls that the server puts off.
    pub(crate) deferrals: Mutex<Deferrals>,
    closed: AtomicBool,
    /// Why the connection was closed for good (ATP).
    refusal: OnceLock<Refusal>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) core: Client,
    /// Since when the server's host has answered "port unreachable" (UDP).
    pub(crate) refused_since: Option<Time>,
    pub(crate) waiters: BTreeMap<CallId, oneshot::Sender<Result<Answer, CallFailure>>>,
    /// Patience after the server's first reply, until that comes.
    pub(crate) later_patience: Option<Option<Duration>>,
}

impl State {
    /// Delivers the core's events.
    pub(crate) fn deliver_events(&mut self) {
        if self.later_patience.is_some() && (self.core.has_replied() || self.core.has_answer()) {
            self.core.set_give_up(self.later_patience.take().flatten());
        }
        while let Some(ClientEvent::Done { id, result }) = self.core.poll_event() {
            if let Some(waiter) = self.waiters.remove(&id) {
                // The caller may be gone.
                let _ = waiter.send(result);
            }
        }
    }
}

/// A reply to come.
pub(crate) type Pending = oneshot::Receiver<Result<Answer, CallFailure>>;

impl SharedCore {
    pub(crate) fn new(core: Client, clock: Clock, name: String, is_beside: bool) -> Arc<SharedCore> {
        let state = Mutex::new(State { core, refused_since: None, waiters: BTreeMap::new(), later_patience: None });
        Arc::new(SharedCore {
            state,
            changed: Notify::new(),
            clock,
            name,
            is_beside,
            watched: Mutex::default(),
            deferrals: Mutex::default(),
            closed: AtomicBool::new(false),
            refusal: OnceLock::new(),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Watches this socket from now on, or none. A watched socket stays open until it is not watched any more.
    pub(crate) fn watch(&self, stream: Option<OwnedFd>) {
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = stream;
    }

    /// How long the peer has acknowledged no byte in flight on the watched connection; `None` if all is
    /// acknowledged or the connection is down.
    pub(crate) fn unacknowledged_for(&self) -> Option<Duration> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(tcp::unacknowledged_for)
    }

    #[cfg(test)]
    pub(crate) fn is_watched(&self) -> bool {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    pub(crate) fn submit(&self, request: Request) -> Result<Pending, ClientError> {
        let (tx, rx) = oneshot::channel();
        {
            let mut state = self.lock();
            if self.is_closed() {
                return Err(self.why_closed());
            }
            let id = state.core.submit(self.now(), request)?;
            state.waiters.insert(id, tx);
        }
        self.changed.notify_one();
        Ok(rx)
    }

    /// Submits an NFS call with this credential and urgency. It is cancelled when the result is dropped.
    pub(crate) fn submit_as(
        self: &Arc<SharedCore>,
        credential: &OpaqueAuth,
        urgency: Urgency,
        call: nfs3::Call,
    ) -> Result<CancellableCall, ClientError> {
        let (tx, reply) = oneshot::channel();
        let id = {
            let mut state = self.lock();
            if self.is_closed() {
                return Err(self.why_closed());
            }
            let id = state.core.submit_as(self.now(), Request::Nfs(call), credential, Some(urgency))?;
            state.waiters.insert(id, tx);
            id
        };
        self.changed.notify_one();
        Ok(CancellableCall { shared: self.clone(), id, reply })
    }

    /// Cancels a call, if it is unanswered: nobody receives its reply.
    fn cancel(&self, id: CallId) {
        let mut state = self.lock();
        if state.waiters.remove(&id).is_some() {
            state.core.cancel(self.now(), id);
        }
    }

    /// Closes the connection: callers get an error.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        self.closed.store(true, Ordering::Relaxed);
        state.waiters.clear();
    }

    /// Closes the connection for this reason.
    pub(crate) fn refuse(&self, why: Refusal) {
        // The first reason counts.
        let _ = self.refusal.set(why);
        self.close();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Takes a hand-off signal.
    pub(crate) fn hand_off(&self, signal: Signal) {
        {
            let mut state = self.lock();
            let now = self.now();
            match signal {
                Signal::Begin(expected) => state.core.hold(now, now + expected),
                Signal::Kept(expected) => state.core.hold_kept(now, now + expected),
                Signal::End => state.core.resume(now),
            }
        }
        self.changed.notify_one();
    }

    /// The machine has another address: replies to the old one are lost.
    pub(crate) fn moved(&self) {
        self.lock().core.moved(self.now());
        self.changed.notify_one();
    }

    pub(crate) async fn ask(&self, request: Request, what: &'static str) -> Result<Answer, ClientError> {
        let pending = self.submit(request)?;
        self.wait(pending, what).await
    }

    pub(crate) async fn wait(&self, pending: Pending, what: &'static str) -> Result<Answer, ClientError> {
        match pending.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(CallFailure::TimedOut)) => Err(ClientError::Silent { server: self.name.clone(), what }),
            Ok(Err(failure)) => Err(ClientError::Rpc(failure)),
            Err(_) => Err(self.why_closed()),
        }
    }

    fn why_closed(&self) -> ClientError {
        let Some(refusal) = self.refusal.get() else { return ClientError::Closed };
        ClientError::Atp { server: self.name.clone(), source: AtpError::Refused(refusal.clone()) }
    }
}

/// A call under way, which is cancelled when this is dropped.
#[derive(Debug)]
pub(crate) struct CancellableCall {
    shared: Arc<SharedCore>,
    id: CallId,
    reply: Pending,
}

impl CancellableCall {
    /// Its reply. May be called again if the future was dropped before its end.
    pub(crate) async fn reply(&mut self) -> Result<Answer, ClientError> {
        match (&mut self.reply).await {
            Ok(answered) => answered.map_err(ClientError::Rpc),
            Err(_) => Err(self.shared.why_closed()),
        }
    }
}

impl Drop for CancellableCall {
    fn drop(&mut self) {
        self.shared.cancel(self.id);
    }
}

/// Calls that the server puts off, and since when there are any.
#[derive(Debug, Default)]
pub(crate) struct Deferrals {
    count: usize,
    since: Option<Clock>,
}

impl Deferrals {
    /// How long there have been any.
    pub(crate) fn lasts(&self) -> Duration {
        self.since.as_ref().map(elapsed).unwrap_or_default()
    }

    pub(crate) fn add(&mut self) {
        self.count += 1;
        self.since.get_or_insert_with(Clock::start);
    }

    pub(crate) fn remove(&mut self) {
        self.count = self.count.saturating_sub(1);
        if self.count == 0 {
            self.since = None;
        }
    }
}

/// How long the process has run since `clock` was started.
pub(crate) fn elapsed(clock: &Clock) -> Duration {
    clock.now().since(Time::ZERO)
}
