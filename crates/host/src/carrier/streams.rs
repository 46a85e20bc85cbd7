//! TCP connections over a session of ATP: what a gateway and a forward have in common.
//!
//! A [`Carrier`] runs the core ([`Streams`]) on a connection of ATP; [`pump`] moves bytes between
//! the core and a TCP connection. All wait for one another by the core's bounds, so a reader that
//! takes nothing stops its writer at the other end of the link, and nobody else.

mod pump;

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

use crate::atp::{AtpError, Control, Remote};

pub(crate) use pump::{KEEP_ALIVE, Tcp, pump};

/// How long an object for which there was no room waits before it is sent again.
const AGAIN: Duration = Duration::from_millis(100);
/// Connections that are over but for what their programs have still to read.
const LINGERING_MAX: usize = 32;

/// Connections over one session, which is another's to watch and to end.
pub(crate) struct Carrier {
    remote: Remote,
    /// Room for those.
    lingering: Arc<Semaphore>,
    state: Mutex<State>,
}

struct State {
    streams: Streams,
    doors: BTreeMap<StreamId, Arc<Door>>,
    /// Of objects under way.
    controls: BTreeMap<ObjectId, Control>,
    is_over: bool,
}

/// Where the task of a connection waits.
pub(crate) struct Door {
    id: StreamId,
    room: Notify,
    readable: Notify,
    end: watch::Sender<Option<End>>,
}

/// A connection that was asked for, until it is accepted or refused.
pub(crate) struct Ask {
    /// Where to.
    pub(crate) target: Target,
    /// Where its task is to wait.
    pub(crate) door: Arc<Door>,
}

impl Door {
    fn new(id: StreamId) -> Arc<Door> {
        let (room, readable) = (Notify::new(), Notify::new());
        Arc::new(Door { id, room, readable, end: watch::Sender::new(None) })
    }

    fn close(&self, end: End) {
        self.end.send_replace(Some(end));
    }

    /// Waits for the end of the connection, and says how it ended.
    pub(crate) async fn ended(&self) -> End {
        let mut end = self.end.subscribe();
        let found = end.wait_for(Option::is_some).await.ok().and_then(|end| *end);
        found.unwrap_or(End::Reset(Reset::Broken))
    }
}

impl Carrier {
    /// The end that asks for connections.
    pub(crate) fn opener(remote: Remote, config: Config) -> Arc<Carrier> {
        Carrier::new(remote, Streams::opener(config))
    }

    /// The end that is asked.
    pub(crate) fn acceptor(remote: Remote, config: Config) -> Arc<Carrier> {
        Carrier::new(remote, Streams::acceptor(config))
    }

    fn new(remote: Remote, streams: Streams) -> Arc<Carrier> {
        let (doors, controls) = (BTreeMap::new(), BTreeMap::new());
        let lingering = Arc::new(Semaphore::new(LINGERING_MAX));
        Arc::new(Carrier { remote, lingering, state: Mutex::new(State { streams, doors, controls, is_over: false }) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The other end.
    pub(crate) fn remote(&self) -> &Remote {
        &self.remote
    }

    /// What this end has done.
    pub(crate) fn stats(&self) -> Stats {
        self.lock().streams.stats()
    }

    /// Connections that are not over.
    pub(crate) fn connections(&self) -> usize {
        self.lock().streams.len()
    }

    /// Whether the session has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Asks for a connection.
    pub(crate) fn open(self: &Arc<Self>, target: Target, terms: Terms) -> Result<Arc<Door>, OpenError> {
        let mut state = self.lock();
        if state.is_over {
            return Err(OpenError::NoNumbers);
        }
        let door = Door::new(state.streams.open(target, terms)?);
        state.doors.insert(door.id, door.clone());
        self.drain(state);
        Ok(door)
    }

    /// Takes in an object; the connections that it asks for.
    pub(crate) fn handle(self: &Arc<Self>, object: Bytes) -> Result<Vec<Ask>, Violation> {
        let mut state = self.lock();
        state.streams.handle_object(object)?;
        Ok(self.drain(state))
    }

    /// Tells the core what the link carries.
    pub(crate) fn look_ahead(self: &Arc<Self>) {
        // A session that is over has no forecast, and is cleared away elsewhere.
        let Ok(status) = self.remote.status() else { return };
        let mut state = self.lock();
        state.streams.forecast(status.forecast.rate);
        self.drain(state);
    }

    /// The session has ended: all connections are cut off.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        state.controls.clear();
        let doors = std::mem::take(&mut state.doors);
        drop(state);
        doors.values().for_each(|door| door.close(End::Reset(Reset::Broken)));
    }

    fn accept(self: &Arc<Self>, door: &Door) {
        self.with(|streams| streams.accept(door.id));
    }

    /// The connection that was asked for cannot be had.
    pub(crate) fn refuse(self: &Arc<Self>, door: &Door, why: Refused) {
        self.with(|streams| streams.refuse(door.id, why));
    }

    fn broke(self: &Arc<Self>, door: &Door) {
        self.with(|streams| streams.broke(door.id, Reset::Broken));
    }

    fn room(self: &Arc<Self>, door: &Door) -> Option<usize> {
        self.with(|streams| streams.room(door.id))
    }

    fn send(self: &Arc<Self>, door: &Door, bytes: Bytes) -> Option<Bytes> {
        self.with(|streams| streams.send(door.id, bytes))
    }

    fn finish(self: &Arc<Self>, door: &Door) {
        self.with(|streams| streams.finish(door.id));
    }

    fn take(self: &Arc<Self>, door: &Door) -> Option<Taken> {
        self.with(|streams| streams.take(door.id))
    }

    fn with<T>(self: &Arc<Self>, act: impl FnOnce(&mut Streams) -> T) -> T {
        let mut state = self.lock();
        let done = act(&mut state.streams);
        self.drain(state);
        done
    }

    /// Hands what the core has to the session and to those who wait; the connections asked for.
    fn drain(self: &Arc<Self>, mut state: MutexGuard<'_, State>) -> Vec<Ask> {
        let mut asks = Vec::new();
        if state.is_over {
            return asks;
        }
        let state = &mut *state;
        while let Some(event) = state.streams.poll_event() {
            match event {
                Event::Asked { id, target, .. } => {
                    let door = Door::new(id);
                    state.doors.insert(id, door.clone());
                    asks.push(Ask { target, door });
                }
                Event::Opened(_) => {}
                Event::Room(id) => state.doors.get(&id).into_iter().for_each(|d| d.room.notify_one()),
                Event::Readable(id) => state.doors.get(&id).into_iter().for_each(|d| d.readable.notify_one()),
                Event::Ended(id, end) => {
                    state.doors.remove(&id).into_iter().for_each(|door| door.close(end));
                }
            }
        }
        while let Some(object) = state.streams.poll_object() {
            // A session that has ended is cleared away by whoever watches it.
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
        // The session is over, and with it everything.
        let Some(fate) = end.ok().and_then(|end| fate(end.outcome)) else { return };
        if fate == Fate::Again {
            tokio::time::sleep(AGAIN).await;
        }
        let mut state = self.lock();
        state.controls.remove(&id);
        state.streams.ended(id, fate);
        self.drain(state);
    }
}

/// What the end of a request means; nothing if nobody wants to know any more.
fn fate(outcome: Outcome) -> Option<Fate> {
    match outcome {
        Outcome::Delivered => Some(Fate::Delivered),
        Outcome::Expired | Outcome::Evicted => Some(Fate::Missed),
        Outcome::Rejected(Rejection::InsufficientBandwidth { .. } | Rejection::WouldDisplace(_)) => Some(Fate::Missed),
        Outcome::Rejected(_) => Some(Fate::Again),
        Outcome::Cancelled | Outcome::Lost => None,
    }
}
