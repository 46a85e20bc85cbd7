//! A handle on a mounted server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use remora_atp::session::Refusal;
use remora_base::{Core, Time};
use remora_client::{Answer, CallId, Client, Event, Failure, Request, Stats, Transport};
use remora_wire::nfs3::{self, Fh};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::ClientError;
use super::later::{Deferrals, Later};
use super::line::Line;
use super::streams::Streams;
use super::throttle::Throttle;
use crate::atp::AtpError;
use crate::handoff::{Listener, Signal};
use crate::{Clock, tcp};

/// How many times longer a block over a stream is than one in a datagram, and its least bytes.
const STREAM_BLOCK: u32 = 3;
const STREAM_BLOCK_MIN: u32 = 14 << 10;

/// A mounted server. Clones share it; it is closed when the last one goes.
#[derive(Clone, Debug)]
pub struct Session {
    line: Arc<Line>,
    /// `None` where the transport was chosen.
    streams: Option<Arc<Streams>>,
    root: Fh,
    /// Limits transfers.
    throttle: Option<Arc<Throttle>>,
    _ear: Arc<Ear>,
}

/// Hears of hand-offs, for as long as the session lives.
#[derive(Debug)]
struct Ear(Option<(Arc<Listener>, JoinHandle<()>)>);

impl Drop for Ear {
    fn drop(&mut self) {
        if let Some((listener, task)) = &self.0 {
            listener.unlink();
            task.abort();
        }
    }
}

/// Listens for hand-off signals, where there is a place for that.
fn listen(line: &Line, streams: Option<Arc<Streams>>) -> Option<(Arc<Listener>, JoinHandle<()>)> {
    let listener = Arc::new(Listener::open().ok()?);
    let (shared, ear) = (line.shared.clone(), listener.clone());
    let task = tokio::spawn(async move {
        while let Ok(signal) = ear.next().await {
            hand_off(&shared, streams.as_deref(), signal);
        }
    });
    Some((listener, task))
}

fn hand_off(shared: &Shared, streams: Option<&Streams>, signal: Signal) {
    shared.hand_off(signal);
    streams.into_iter().for_each(|streams| streams.hand_off(signal));
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
    /// Others do its work while it stands still, so there is no search for a better one.
    pub(super) is_beside: bool,
    /// Its connection, if it is a stream beside others, to ask the system how it goes.
    watched: Mutex<Option<OwnedFd>>,
    /// Calls that the server has asked to make again later.
    pub(super) deferrals: Mutex<Deferrals>,
    closed: AtomicBool,
    /// Why the server will have nothing to do with us, or we with it (ATP); then it is closed.
    refusal: OnceLock<Refusal>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) core: Client,
    /// Since when the server's machine has said that nobody listens there (UDP).
    pub(super) refused_since: Option<Time>,
    waiters: BTreeMap<CallId, oneshot::Sender<Result<Answer, Failure>>>,
    /// How long the server may be silent once it has answered, until it has.
    later_patience: Option<Option<Duration>>,
}

impl State {
    /// Hands what the core has to tell to whoever waits for it.
    pub(super) fn deliver_events(&mut self) {
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
pub(super) type Pending = oneshot::Receiver<Result<Answer, Failure>>;

impl Shared {
    pub(super) fn new(core: Client, clock: Clock, name: String, is_beside: bool) -> Arc<Shared> {
        let state = Mutex::new(State { core, refused_since: None, waiters: BTreeMap::new(), later_patience: None });
        Arc::new(Shared {
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

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Watches this connection from now on, or none. A connection that is watched stays open: before it is closed it must not
    /// be any more.
    pub(super) fn watch(&self, stream: Option<OwnedFd>) {
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = stream;
    }

    /// How long the other end has acknowledged nothing of what was sent over the connection that is watched; `None` if all of it
    /// is acknowledged, or no connection is watched, or it does not stand any more.
    pub(super) fn unacknowledged_for(&self) -> Option<Duration> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(tcp::unacknowledged_for)
    }

    #[cfg(test)]
    pub(super) fn is_watched(&self) -> bool {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    pub(super) fn submit(&self, request: Request) -> Result<Pending, ClientError> {
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
    pub(super) fn close(&self) {
        let mut state = self.lock();
        self.closed.store(true, Ordering::Relaxed);
        state.waiters.clear();
    }

    /// The same, and why.
    pub(super) fn refuse(&self, why: Refusal) {
        // The first reason is the reason.
        let _ = self.refusal.set(why);
        self.close();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The link is about to go, or is back.
    pub(super) fn hand_off(&self, signal: Signal) {
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
    pub(super) fn moved(&self) {
        self.lock().core.moved(self.now());
        self.changed.notify_one();
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
            Err(_) => Err(self.why_closed()),
        }
    }

    fn why_closed(&self) -> ClientError {
        let Some(refusal) = self.refusal.get() else { return ClientError::Closed };
        ClientError::Atp { server: self.name.clone(), source: AtpError::Refused(refusal.clone()) }
    }
}

impl Session {
    pub(super) fn new(line: Line, streams: Option<Streams>, root: Fh) -> Session {
        let streams = streams.map(Arc::new);
        let ear = Ear(listen(&line, streams.clone()));
        Session { line: Arc::new(line), streams, root, throttle: None, _ear: Arc::new(ear) }
    }

    /// The same session, whose transfers share this limit with others that have it.
    pub fn throttled(self, throttle: Option<Arc<Throttle>>) -> Session {
        Session { throttle, ..self }
    }

    /// Until when transfers ask for nothing more.
    pub(super) fn closed_until(&self, now: Instant) -> Option<Instant> {
        self.throttle.as_ref()?.closed_until(now)
    }

    /// A transfer asks for so many bytes.
    pub(super) fn take(&self, now: Instant, bytes: u64) {
        if let Some(throttle) = &self.throttle {
            throttle.take(now, bytes);
        }
    }

    pub(super) fn stream_lines(&self) -> Vec<Arc<Line>> {
        self.streams.as_ref().map(|s| s.lines()).unwrap_or_default()
    }

    /// The line that has the most room for a request for file data. Other transfers may fill
    /// them all: one that has nothing on its way (`first`) queues one request behind theirs, so
    /// that each gets its turn.
    pub(super) fn line_with_room(&self, first: bool) -> Option<Arc<Line>> {
        if let Some(streams) = &self.streams {
            streams.open_if_lossy(&self.line);
        }
        let streams = self.stream_lines().into_iter();
        let best = streams.map(|l| (l.room(), l)).max_by_key(|(room, _)| *room);
        let (room, line) = best.unwrap_or_else(|| (self.line.room(), self.line.clone()));
        (room > 0 || first).then_some(line)
    }

    /// How many bytes a READ over `line` should ask for, and no more than `max`.
    pub(super) fn read_block(&self, line: &Arc<Line>, max: u32) -> u32 {
        let max = self.throttle.as_ref().map_or(max, |throttle| throttle.block(max));
        self.scaled(line, self.shared().lock().core.read_block(max)).min(max)
    }

    /// How many bytes a WRITE to `fh` over `line` should carry, and no more than `max`.
    pub(super) fn write_block(&self, line: &Arc<Line>, fh: &Fh, max: u32) -> u32 {
        let max = self.throttle.as_ref().map_or(max, |throttle| throttle.block(max));
        self.scaled(line, self.shared().lock().core.write_block(fh, max)).min(max)
    }

    /// Datagrams finish what streams did not, and have the path for themselves.
    pub(super) fn recall(&self) {
        self.shared().lock().core.recall(self.shared().now());
    }

    /// How many bytes a READ should ask for where datagrams finish what streams did not, and no more than `max`: frames are
    /// lost one by one there, and somebody waits for the last of them.
    pub(super) fn read_rescue(&self, max: u32) -> u32 {
        self.shared().lock().core.read_packet(max)
    }

    /// The same of a WRITE to `fh`.
    pub(super) fn write_rescue(&self, fh: &Fh, max: u32) -> u32 {
        self.shared().lock().core.write_packet(fh, max)
    }

    /// A stream's block is a multiple of a datagram's: that one knows the link, and is short
    /// because one lost frame loses all of it.
    fn scaled(&self, line: &Arc<Line>, datagram: u32) -> u32 {
        if !self.is_stream_beside(line) {
            return datagram;
        }
        datagram.saturating_mul(STREAM_BLOCK).max(STREAM_BLOCK_MIN)
    }

    /// Whether `line` is one beside the session's own.
    pub(super) fn is_stream_beside(&self, line: &Arc<Line>) -> bool {
        !Arc::ptr_eq(line, &self.line)
    }

    /// A stream is given up; what was on its way over it ends with [`ClientError::Closed`].
    pub(super) fn give_up(&self, line: &Arc<Line>) {
        if let Some(streams) = &self.streams {
            streams.give_up(line);
        }
    }

    pub(super) fn own_line(&self) -> &Arc<Line> {
        &self.line
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.line.shared
    }

    /// What carries its calls; file data may go over connections beside it.
    pub fn transport(&self) -> Transport {
        self.line.transport
    }

    /// The mounted directory.
    pub fn root(&self) -> &Fh {
        &self.root
    }

    /// The same server, mounted at another directory.
    pub(super) fn at(&self, root: Fh) -> Session {
        Session { root, ..self.clone() }
    }

    /// Where the server is.
    pub fn addr(&self) -> SocketAddr {
        self.line.server
    }

    /// The server as people know it: `host:port`.
    pub fn server(&self) -> &str {
        &self.shared().name
    }

    /// Makes an NFS call. A reply whose status is not OK is a reply; see [`Session::ok`]. Where it is
    /// that the server asks to try again later, that is done for as long as the session has patience.
    pub async fn call(&self, call: nfs3::Call) -> Result<nfs3::Reply, ClientError> {
        let mut later = self.later();
        loop {
            match self.call_once(call.clone()).await {
                Ok(reply) if reply.status().is_some_and(Later::is) && later.wait().await.is_ok() => {}
                done => return done,
            }
        }
    }

    /// How long the server may be silent, or ask to try again later, once it has answered; `None`: without limit.
    pub fn set_patience(&self, patience: Option<Duration>) {
        let mut state = self.shared().lock();
        state.later_patience = Some(patience);
        // It may have answered MOUNT.
        state.deliver_events();
        drop(state);
        self.shared().changed.notify_one();
    }

    /// For a server that asks for patience.
    pub(super) fn later(&self) -> Later {
        let state = self.shared().lock();
        // What asks for patience has answered.
        let patience = state.later_patience.unwrap_or_else(|| state.core.patience());
        drop(state);
        Later::new(patience).counted_by(&self.line)
    }

    /// How long the server has done nothing but ask to try again later (NFS3ERR_JUKEBOX).
    pub fn deferral(&self) -> Duration {
        self.shared().deferrals.lock().unwrap_or_else(PoisonError::into_inner).lasts()
    }

    async fn call_once(&self, call: nfs3::Call) -> Result<nfs3::Reply, ClientError> {
        let proc = call.proc();
        match self.shared().ask(Request::Nfs(call), "").await? {
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

    /// Whether [`stats`](Session::stats) are of the same client.
    pub fn counts_with(&self, other: &Session) -> bool {
        Arc::ptr_eq(&self.line.shared, &other.line.shared)
    }

    /// What the client has done so far.
    pub fn stats(&self) -> Stats {
        let mut sum = self.shared().lock().core.stats();
        for line in self.stream_lines() {
            let stats = line.shared.lock().core.stats();
            sum.requests += stats.requests;
            sum.sent += stats.sent;
            sum.retransmissions += stats.retransmissions;
            sum.spurious += stats.spurious;
            sum.probes += stats.probes;
            sum.bad_xid += stats.bad_xid;
            sum.garbled += stats.garbled;
        }
        sum
    }

    /// Tells the client of a hand-off, as the local protocol of [`handoff`](crate::handoff) does.
    pub fn hand_off(&self, signal: Signal) {
        hand_off(self.shared(), self.streams.as_deref(), signal);
    }

    /// How many bytes of a reply may be asked for where longer ones never arrive; see [`Client::reply_max`].
    pub fn reply_max(&self) -> Option<u32> {
        self.shared().lock().core.reply_max()
    }

    /// The share of frames that the path loses one by one; see [`Client::loss`].
    pub fn loss(&self) -> Option<f64> {
        self.shared().lock().core.loss()
    }

    /// How long the server has been silent while it owes an answer.
    pub fn silence(&self) -> Duration {
        self.shortest(Client::silence)
    }

    /// How long nothing at all has come of it while it owes an answer ([`Client::quiet`]).
    pub(super) fn quiet(&self) -> Duration {
        self.shortest(Client::quiet)
    }

    /// On whichever line that owes an answer it is shortest.
    fn shortest(&self, since: impl Fn(&Client, Time) -> Duration) -> Duration {
        let lines = self.stream_lines().into_iter().chain([self.line.clone()]);
        let since = |line: Arc<Line>| {
            let core = &line.shared.lock().core;
            (!core.is_idle()).then(|| since(core, line.shared.now()))
        };
        lines.filter_map(since).min().unwrap_or_default()
    }

    /// Whether a round trip more costs next to nothing ([`Client::is_near`]).
    pub fn is_near(&self) -> bool {
        self.shared().lock().core.is_near()
    }

    /// The shortest round trip of something small, if there was one.
    pub fn small_trip(&self) -> Option<Duration> {
        self.shared().lock().core.small_trip()
    }

    /// The window and the smoothed round trip, for people.
    pub fn pace(&self) -> (u32, Option<Duration>) {
        let state = self.shared().lock();
        (state.core.window(), state.core.round_trip())
    }
}
