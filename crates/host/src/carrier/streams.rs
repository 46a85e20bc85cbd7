//! The streams core on an ATP connection.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use remora_atp::stream::{
    Config, End, Event, Fate, ObjectId, OpenError, Refused, Reset, Stats, StreamId, Streams, Taken, Target, Terms,
    Violation,
};
use remora_atp::{Final, Outcome, Rejection};
use tokio::sync::{Notify, Semaphore, watch};

use crate::atp::{AtpError, Remote, RequestControl};

/// Pause before an object without room is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of reset connections whose programs have data to read.
const CLOSING_MAX: usize = 32;

/// The connections of an ATP session. The caller watches and closes the session.
pub(crate) struct Carrier {
    remote: Remote,
    /// Permits for reset connections with data to read.
    pub(super) closing: Arc<Semaphore>,
    state: Mutex<State>,
}

struct State {
    streams: Streams,
    handles: BTreeMap<StreamId, Arc<StreamHandle>>,
    /// Objects in flight.
    controls: BTreeMap<ObjectId, RequestControl>,
    is_over: bool,
}

/// Wakers of a connection's task.
pub(crate) struct StreamHandle {
    id: StreamId,
    pub(super) room: Notify,
    pub(super) readable: Notify,
    end: watch::Sender<Option<End>>,
}

/// A requested connection, to be accepted or refused.
pub(crate) struct StreamRequest {
    /// The requested destination.
    pub(crate) target: Target,
    /// Wakers of its task.
    pub(crate) stream: Arc<StreamHandle>,
}

impl StreamHandle {
    fn new(id: StreamId) -> Arc<StreamHandle> {
        let (room, readable) = (Notify::new(), Notify::new());
        Arc::new(StreamHandle { id, room, readable, end: watch::Sender::new(None) })
    }

    fn close(&self, end: End) {
        self.end.send_replace(Some(end));
    }

    /// Waits for the end of the connection; returns how it ended.
    pub(crate) async fn ended(&self) -> End {
        let mut end = self.end.subscribe();
        let found = end.wait_for(Option::is_some).await.ok().and_then(|end| *end);
        found.unwrap_or(End::Reset(Reset::Broken))
    }
}

impl Carrier {
    /// Creates the end that opens connections.
    pub(crate) fn opener(remote: Remote, config: Config) -> Arc<Carrier> {
        Carrier::new(remote, Streams::opener(config))
    }

    /// Creates the end that accepts connections.
    pub(crate) fn acceptor(remote: Remote, config: Config) -> Arc<Carrier> {
        Carrier::new(remote, Streams::acceptor(config))
    }

    fn new(remote: Remote, streams: Streams) -> Arc<Carrier> {
        let (handles, controls) = (BTreeMap::new(), BTreeMap::new());
        let closing = Arc::new(Semaphore::new(CLOSING_MAX));
        Arc::new(Carrier { remote, closing, state: Mutex::new(State { streams, handles, controls, is_over: false }) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The peer of the session.
    pub(crate) fn remote(&self) -> &Remote {
        &self.remote
    }

    pub(crate) fn stats(&self) -> Stats {
        self.lock().streams.stats()
    }

    /// Connections that have not ended.
    pub(crate) fn connections(&self) -> usize {
        self.lock().streams.len()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Requests a connection.
    pub(crate) fn open(self: &Arc<Self>, target: Target, terms: Terms) -> Result<Arc<StreamHandle>, OpenError> {
        let mut state = self.lock();
        if state.is_over {
            return Err(OpenError::NoNumbers);
        }
        let stream = StreamHandle::new(state.streams.open(target, terms)?);
        state.handles.insert(stream.id, stream.clone());
        self.drain(state);
        Ok(stream)
    }

    /// Handles an object; returns the connections that it requests.
    pub(crate) fn handle(self: &Arc<Self>, object: Bytes) -> Result<Vec<StreamRequest>, Violation> {
        let mut state = self.lock();
        state.streams.handle_object(object)?;
        Ok(self.drain(state))
    }

    /// Passes the bandwidth forecast to the core.
    pub(crate) fn update_forecast(self: &Arc<Self>) {
        // A session that ended has no forecast; the caller removes it.
        let Ok(status) = self.remote.status() else { return };
        let mut state = self.lock();
        state.streams.forecast(status.forecast.rate);
        self.drain(state);
    }

    /// Resets all connections after the end of the session.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        state.controls.clear();
        let handles = std::mem::take(&mut state.handles);
        drop(state);
        handles.values().for_each(|stream| stream.close(End::Reset(Reset::Broken)));
    }

    pub(super) fn accept(self: &Arc<Self>, stream: &StreamHandle) {
        self.with(|streams| streams.accept(stream.id));
    }

    /// Refuses a requested connection.
    pub(crate) fn refuse(self: &Arc<Self>, stream: &StreamHandle, why: Refused) {
        self.with(|streams| streams.refuse(stream.id, why));
    }

    pub(super) fn broke(self: &Arc<Self>, stream: &StreamHandle) {
        self.with(|streams| streams.broke(stream.id, Reset::Broken));
    }

    pub(super) fn room(self: &Arc<Self>, stream: &StreamHandle) -> Option<usize> {
        self.with(|streams| streams.room(stream.id))
    }

    pub(super) fn send(self: &Arc<Self>, stream: &StreamHandle, bytes: Bytes) -> Option<Bytes> {
        self.with(|streams| streams.send(stream.id, bytes))
    }

    pub(super) fn finish(self: &Arc<Self>, stream: &StreamHandle) {
        self.with(|streams| streams.finish(stream.id));
    }

    pub(super) fn take(self: &Arc<Self>, stream: &StreamHandle) -> Option<Taken> {
        self.with(|streams| streams.take(stream.id))
    }

    fn with<T>(self: &Arc<Self>, act: impl FnOnce(&mut Streams) -> T) -> T {
        let mut state = self.lock();
        let done = act(&mut state.streams);
        self.drain(state);
        done
    }

    /// Sends the core's objects and wakes the tasks; returns the requested connections.
    fn drain(self: &Arc<Self>, mut state: MutexGuard<'_, State>) -> Vec<StreamRequest> {
        let mut asks = Vec::new();
        if state.is_over {
            return asks;
        }
        let state = &mut *state;
        while let Some(event) = state.streams.poll_event() {
            match event {
                Event::Asked { id, target, .. } => {
                    let stream = StreamHandle::new(id);
                    state.handles.insert(id, stream.clone());
                    asks.push(StreamRequest { target, stream });
                }
                Event::Opened(_) => {}
                Event::Room(id) => state.handles.get(&id).into_iter().for_each(|d| d.room.notify_one()),
                Event::Readable(id) => state.handles.get(&id).into_iter().for_each(|d| d.readable.notify_one()),
                Event::Ended(id, end) => {
                    state.handles.remove(&id).into_iter().for_each(|stream| stream.close(end));
                }
            }
        }
        while let Some(object) = state.streams.poll_object() {
            // The caller removes a session that has ended.
            let Ok(request) = self.remote.send(object.bytes, object.options) else { break };
            state.controls.insert(object.id, request.control());
            let carrier = self.clone();
            tokio::spawn(async move { carrier.await_end(object.id, request.await).await });
        }
        while let Some(id) = state.streams.poll_cancel() {
            // It may have ended just now.
            let _ = state.controls.remove(&id).map(|c| c.ask(remora_atp::Command::Cancel));
        }
        asks
    }

    async fn await_end(self: Arc<Self>, id: ObjectId, end: Result<Final, AtpError>) {
        // The session has ended, and all connections with it.
        let Some(fate) = end.ok().and_then(|end| fate(end.outcome)) else { return };
        if fate == Fate::Again {
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        let mut state = self.lock();
        state.controls.remove(&id);
        state.streams.ended(id, fate);
        self.drain(state);
    }
}

/// The fate of an object by the outcome of its request; `None` after a cancellation.
fn fate(outcome: Outcome) -> Option<Fate> {
    match outcome {
        Outcome::Delivered => Some(Fate::Delivered),
        Outcome::Expired | Outcome::Evicted => Some(Fate::Missed),
        Outcome::Rejected(Rejection::InsufficientBandwidth { .. } | Rejection::WouldDisplace(_)) => Some(Fate::Missed),
        Outcome::Rejected(_) => Some(Fate::Again),
        Outcome::Cancelled | Outcome::Lost => None,
    }
}
