//! The client core of one connection, shared by its sessions and its driver.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use remora_atp::session::Refusal;
use remora_base::{Core, Time};
use remora_client::{Answer, CallId, Client, Event, Failure, Request};
use tokio::sync::{Notify, oneshot};

use crate::atp::AtpError;
use crate::client::error::ClientError;
use crate::handoff::Signal;
use crate::{Clock, tcp};

/// What sessions and their driver share.
#[derive(Debug)]
pub(crate) struct SharedCore {
    state: Mutex<State>,
    /// There is something to send, or a timer has moved.
    pub(crate) changed: Notify,
    pub(crate) clock: Clock,
    /// The server as people know it.
    pub(crate) name: String,
    /// Others do its work while it stands still, so there is no search for a better one.
    pub(crate) is_beside: bool,
    /// Its connection, if it is a stream beside others, to ask the system how it goes.
    watched: Mutex<Option<OwnedFd>>,
    /// Calls that the server has asked to make again later.
    pub(crate) deferrals: Mutex<Deferrals>,
    closed: AtomicBool,
    /// Why the server will have nothing to do with us, or we with it (ATP); then it is closed.
    refusal: OnceLock<Refusal>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) core: Client,
    /// Since when the server's machine has said that nobody listens there (UDP).
    pub(crate) refused_since: Option<Time>,
    pub(crate) waiters: BTreeMap<CallId, oneshot::Sender<Result<Answer, Failure>>>,
    /// How long the server may be silent once it has answered, until it has.
    pub(crate) later_patience: Option<Option<Duration>>,
}

impl State {
    /// Hands what the core has to tell to whoever waits for it.
    pub(crate) fn deliver_events(&mut self) {
        if self.later_patience.is_some() && (self.core.has_replied() || self.core.has_answer()) {
            self.core.set_give_up(self.later_patience.take().flatten());
        }
        while let Some(Event::Done { id, result }) = self.core.poll_event() {
            if let Some(waiter) = self.waiters.remove(&id) {
                // Nobody waits any more: the answer is for nobody.
                let _ = waiter.send(result);
            }
        }
    }
}

/// An answer that is still to come.
pub(crate) type Pending = oneshot::Receiver<Result<Answer, Failure>>;

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

    /// Watches this connection from now on, or none. A connection that is watched stays open: before it is closed it must not
    /// be any more.
    pub(crate) fn watch(&self, stream: Option<OwnedFd>) {
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = stream;
    }

    /// How long the other end has acknowledged nothing of what was sent over the connection that is watched; `None` if all of it
    /// is acknowledged, or no connection is watched, or it does not stand any more.
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

    /// Whoever waits is told that no answer will come.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        self.closed.store(true, Ordering::Relaxed);
        state.waiters.clear();
    }

    /// The same, and why.
    pub(crate) fn refuse(&self, why: Refusal) {
        // The first reason is the reason.
        let _ = self.refusal.set(why);
        self.close();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The link is about to go, or is back.
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

    /// The machine has another address: what is under way will not be answered at this one.
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
            Ok(Err(Failure::TimedOut)) => Err(ClientError::Silent { server: self.name.clone(), what }),
            Ok(Err(failure)) => Err(ClientError::Rpc(failure)),
            Err(_) => Err(self.why_closed()),
        }
    }

    fn why_closed(&self) -> ClientError {
        let Some(refusal) = self.refusal.get() else { return ClientError::Closed };
        ClientError::Atp { server: self.name.clone(), source: AtpError::Refused(refusal.clone()) }
    }
}

/// The calls of a connection that the server has asked to make again later, and since when there has been one.
#[derive(Debug, Default)]
pub(crate) struct Deferrals {
    count: usize,
    since: Option<Clock>,
}

impl Deferrals {
    /// How long there has been at least one.
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
