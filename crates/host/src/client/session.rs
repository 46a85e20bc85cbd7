//! A handle on a mounted server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use remora_base::{Core, Time};
use remora_client::{Answer, CallId, Client, Event, Failure, Request, Stats};
use remora_wire::nfs3::{self, Fh};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use super::ClientError;
use crate::Clock;

/// A mounted server. Clones share it; it is closed when the last one goes.
#[derive(Clone, Debug)]
pub struct Session {
    shared: Arc<Shared>,
    root: Fh,
    _driver: Arc<Driver>,
}

/// Ends the driver's task together with its session.
#[derive(Debug)]
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What sessions and their driver share.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// There is something to send, or a timer has moved.
    pub(super) changed: Notify,
    pub(super) clock: Clock,
    /// The server as people know it.
    pub(super) name: String,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) core: Client,
    /// Since when the server's machine has said that nobody listens there (UDP).
    pub(super) refused_since: Option<Time>,
    waiters: BTreeMap<CallId, oneshot::Sender<Result<Answer, Failure>>>,
}

impl State {
    /// Hands what the core has to tell to whoever waits for it.
    pub(super) fn deliver_events(&mut self) {
        while let Some(Event::Done { id, result }) = self.core.poll_event() {
            if let Some(waiter) = self.waiters.remove(&id) {
                // Nobody waits any more: the answer is for nobody.
                let _ = waiter.send(result);
            }
        }
    }
}

/// An answer that is still to come.
pub(super) type Pending = oneshot::Receiver<Result<Answer, Failure>>;

impl Shared {
    pub(super) fn new(core: Client, clock: Clock, name: String) -> Arc<Shared> {
        let state = Mutex::new(State { core, refused_since: None, waiters: BTreeMap::new() });
        Arc::new(Shared { state, changed: Notify::new(), clock, name })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(super) fn submit(&self, request: Request) -> Result<Pending, ClientError> {
        let (tx, rx) = oneshot::channel();
        {
            let mut state = self.lock();
            let id = state.core.submit(self.now(), request)?;
            state.waiters.insert(id, tx);
        }
        self.changed.notify_one();
        Ok(rx)
    }

    pub(super) async fn ask(&self, request: Request, what: &'static str) -> Result<Answer, ClientError> {
        let pending = self.submit(request)?;
        self.wait(pending, what).await
    }

    pub(super) async fn wait(&self, pending: Pending, what: &'static str) -> Result<Answer, ClientError> {
        match pending.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Failure::TimedOut)) => Err(ClientError::Silent { server: self.name.clone(), what }),
            Ok(Err(failure)) => Err(ClientError::Rpc(failure)),
            Err(_) => Err(ClientError::Closed),
        }
    }
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>, root: Fh, driver: JoinHandle<()>) -> Session {
        Session { shared, root, _driver: Arc::new(Driver(driver)) }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The mounted directory.
    pub fn root(&self) -> &Fh {
        &self.root
    }

    /// The server as people know it: `host:port`.
    pub fn server(&self) -> &str {
        &self.shared.name
    }

    /// Makes an NFS call. A reply whose status is not OK is a reply; see [`Session::ok`].
    pub async fn call(&self, call: nfs3::Call) -> Result<nfs3::Reply, ClientError> {
        let proc = call.proc();
        match self.shared.ask(Request::Nfs(call), "").await? {
            Answer::Nfs(reply) => Ok(reply),
            _ => Err(ClientError::Rpc(Failure::Garbled(remora_wire::Error::BadDiscriminant {
                what: "reply",
                value: proc as u32,
            }))),
        }
    }

    /// Makes an NFS call that must succeed.
    pub async fn ok(&self, call: nfs3::Call) -> Result<nfs3::Reply, ClientError> {
        let reply = self.call(call).await?;
        match reply.status() {
            None => Ok(reply),
            Some(status) => Err(status.into()),
        }
    }

    /// What the client has done so far.
    pub fn stats(&self) -> Stats {
        self.shared.lock().core.stats()
    }

    /// How long the server has been silent while it owes an answer.
    pub fn silence(&self) -> Duration {
        let now = self.shared.now();
        self.shared.lock().core.silence(now)
    }

    /// The window and the smoothed round trip, for people.
    pub fn pace(&self) -> (u32, Option<Duration>) {
        let state = self.shared.lock();
        (state.core.window(), state.core.round_trip())
    }
}
