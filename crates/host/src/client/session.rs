//! A handle on a mounted server.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use remora_base::Time;
use remora_client::{Answer, Client, Failure, Request, Stats, Transport};
use remora_wire::nfs3::{self, Fh};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::error::ClientError;
use crate::client::rate_limit::RateLimit;
use crate::client::transport::connection::Connection;
use crate::client::transport::jukebox_retry::JukeboxRetry;
use crate::client::transport::parallel_streams::ParallelStreams;
use crate::client::transport::shared_core::SharedCore;
use crate::handoff::{Listener, Signal};

/// How many times longer a block over a stream is than one in a datagram, and its least bytes.
const STREAM_BLOCK: u32 = 3;
const STREAM_BLOCK_MIN: u32 = 14 << 10;

/// A mounted server. Clones share it; it is closed when the last one goes.
#[derive(Clone, Debug)]
pub struct Session {
    connection: Arc<Connection>,
    /// `None` where the transport was chosen.
    streams: Option<Arc<ParallelStreams>>,
    root: Fh,
    /// Limits transfers.
    throttle: Option<Arc<RateLimit>>,
    _ear: Arc<HandoffSubscription>,
}

/// Hears of hand-offs, for as long as the session lives.
#[derive(Debug)]
struct HandoffSubscription(Option<(Arc<Listener>, JoinHandle<()>)>);

impl Drop for HandoffSubscription {
    fn drop(&mut self) {
        if let Some((listener, task)) = &self.0 {
            listener.unlink();
            task.abort();
        }
    }
}

/// Listens for hand-off signals, where there is a place for that.
fn listen(connection: &Connection, streams: Option<Arc<ParallelStreams>>) -> Option<(Arc<Listener>, JoinHandle<()>)> {
    let listener = Arc::new(Listener::open().ok()?);
    let (shared, ear) = (connection.shared.clone(), listener.clone());
    let task = tokio::spawn(async move {
        while let Ok(signal) = ear.next().await {
            hand_off(&shared, streams.as_deref(), signal);
        }
    });
    Some((listener, task))
}

fn hand_off(shared: &SharedCore, streams: Option<&ParallelStreams>, signal: Signal) {
    shared.hand_off(signal);
    streams.into_iter().for_each(|streams| streams.hand_off(signal));
}

impl Session {
    pub(crate) fn new(connection: Connection, streams: Option<ParallelStreams>, root: Fh) -> Session {
        let streams = streams.map(Arc::new);
        let ear = HandoffSubscription(listen(&connection, streams.clone()));
        Session { connection: Arc::new(connection), streams, root, throttle: None, _ear: Arc::new(ear) }
    }

    /// The same session, whose transfers share this limit with others that have it.
    pub fn throttled(self, throttle: Option<Arc<RateLimit>>) -> Session {
        Session { throttle, ..self }
    }

    /// Until when transfers ask for nothing more.
    pub(crate) fn closed_until(&self, now: Instant) -> Option<Instant> {
        self.throttle.as_ref()?.closed_until(now)
    }

    /// A transfer asks for so many bytes.
    pub(crate) fn take(&self, now: Instant, bytes: u64) {
        if let Some(throttle) = &self.throttle {
            throttle.take(now, bytes);
        }
    }

    pub(crate) fn stream_connections(&self) -> Vec<Arc<Connection>> {
        self.streams.as_ref().map(|s| s.connections()).unwrap_or_default()
    }

    /// The connection that has the most room for a request for file data. Other transfers may fill
    /// them all: one that has nothing on its way (`first`) queues one request behind theirs, so
    /// that each gets its turn.
    pub(crate) fn connection_with_room(&self, first: bool) -> Option<Arc<Connection>> {
        if let Some(streams) = &self.streams {
            streams.open_if_lossy(&self.connection);
        }
        let streams = self.stream_connections().into_iter();
        let best = streams.map(|l| (l.room(), l)).max_by_key(|(room, _)| *room);
        let (room, connection) = best.unwrap_or_else(|| (self.connection.room(), self.connection.clone()));
        (room > 0 || first).then_some(connection)
    }

    /// How many bytes a READ over `connection` should ask for, and no more than `max`.
    pub(crate) fn read_block(&self, connection: &Arc<Connection>, max: u32) -> u32 {
        let max = self.throttle.as_ref().map_or(max, |throttle| throttle.block(max));
        self.scaled(connection, self.shared().lock().core.read_block(max)).min(max)
    }

    /// How many bytes a WRITE to `fh` over `connection` should carry, and no more than `max`.
    pub(crate) fn write_block(&self, connection: &Arc<Connection>, fh: &Fh, max: u32) -> u32 {
        let max = self.throttle.as_ref().map_or(max, |throttle| throttle.block(max));
        self.scaled(connection, self.shared().lock().core.write_block(fh, max)).min(max)
    }

    /// Datagrams finish what streams did not, and have the path for themselves.
    pub(crate) fn recall(&self) {
        self.shared().lock().core.recall(self.shared().now());
    }

    /// How many bytes a READ should ask for where datagrams finish what streams did not, and no more than `max`: frames are
    /// lost one by one there, and somebody waits for the last of them.
    pub(crate) fn read_rescue(&self, max: u32) -> u32 {
        self.shared().lock().core.read_packet(max)
    }

    /// The same of a WRITE to `fh`.
    pub(crate) fn write_rescue(&self, fh: &Fh, max: u32) -> u32 {
        self.shared().lock().core.write_packet(fh, max)
    }

    /// A stream's block is a multiple of a datagram's: that one knows the link, and is short
    /// because one lost frame loses all of it.
    fn scaled(&self, connection: &Arc<Connection>, datagram: u32) -> u32 {
        if !self.is_parallel_stream(connection) {
            return datagram;
        }
        datagram.saturating_mul(STREAM_BLOCK).max(STREAM_BLOCK_MIN)
    }

    /// Whether `connection` is one beside the session's own.
    pub(crate) fn is_parallel_stream(&self, connection: &Arc<Connection>) -> bool {
        !Arc::ptr_eq(connection, &self.connection)
    }

    /// A stream is given up; what was on its way over it ends with [`ClientError::Closed`].
    pub(crate) fn give_up(&self, connection: &Arc<Connection>) {
        if let Some(streams) = &self.streams {
            streams.give_up(connection);
        }
    }

    pub(crate) fn own_connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    pub(crate) fn shared(&self) -> &SharedCore {
        &self.connection.shared
    }

    /// What carries its calls; file data may go over connections beside it.
    pub fn transport(&self) -> Transport {
        self.connection.transport
    }

    /// The mounted directory.
    pub fn root(&self) -> &Fh {
        &self.root
    }

    /// The same server, mounted at another directory.
    pub(crate) fn at(&self, root: Fh) -> Session {
        Session { root, ..self.clone() }
    }

    /// Where the server is.
    pub fn addr(&self) -> SocketAddr {
        self.connection.server
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
                Ok(reply) if reply.status().is_some_and(JukeboxRetry::is) && later.wait().await.is_ok() => {}
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
    pub(crate) fn later(&self) -> JukeboxRetry {
        let state = self.shared().lock();
        // What asks for patience has answered.
        let patience = state.later_patience.unwrap_or_else(|| state.core.patience());
        drop(state);
        JukeboxRetry::new(patience).counted_by(&self.connection.shared)
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
        Arc::ptr_eq(&self.connection.shared, &other.connection.shared)
    }

    /// What the client has done so far.
    pub fn stats(&self) -> Stats {
        let mut sum = self.shared().lock().core.stats();
        for connection in self.stream_connections() {
            let stats = connection.shared.lock().core.stats();
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
    pub(crate) fn quiet(&self) -> Duration {
        self.shortest(Client::quiet)
    }

    /// On whichever connection that owes an answer it is shortest.
    fn shortest(&self, since: impl Fn(&Client, Time) -> Duration) -> Duration {
        let connections = self.stream_connections().into_iter().chain([self.connection.clone()]);
        let since = |connection: Arc<Connection>| {
            let core = &connection.shared.lock().core;
            (!core.is_idle()).then(|| since(core, connection.shared.now()))
        };
        connections.filter_map(since).min().unwrap_or_default()
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
