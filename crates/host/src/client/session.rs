//! A handle on a mounted server.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use remora_base::Time;
use remora_client::{Answer, CallFailure, CallLimits, Client, ClientStats, FRAME_PAYLOAD, Request, Transport, shorter};
use remora_wire::nfs3::{self, Fh};
use remora_wire::rpc::OpaqueAuth;
use remora_wire::urgency::Urgency;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::error::ClientError;
use crate::client::rate_limit::RateLimit;
use crate::client::transport::connection::Connection;
use crate::client::transport::jukebox_retry::JukeboxRetry;
use crate::client::transport::parallel_streams::ParallelStreams;
use crate::client::transport::shared_core::{CancellableCall, SharedCore};
use crate::handoff::{Listener, Signal};

/// Length of a block over a stream in blocks over UDP, and its minimum in bytes.
const STREAM_BLOCK: u32 = 3;
const STREAM_BLOCK_MIN: u32 = 14 << 10;
/// Time that a parallel stream may stall beside two smoothed RTTs, and the interval of looking.
const STALL: Duration = Duration::from_millis(200);
const STALL_LOOK: Duration = Duration::from_millis(50);

/// A mounted server. Clones share it; the last one closes it.
#[derive(Clone, Debug)]
pub struct Session {
    connection: Arc<Connection>,
    /// `None` where the transport was chosen by the user.
    streams: Option<Arc<ParallelStreams>>,
    root: Fh,
    throttle: Option<Arc<RateLimit>>,
    _ear: Arc<HandoffSubscription>,
}

/// Sizes of READs and WRITEs in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    pub read: u32,
    pub write: u32,
}

/// For whom a call is made.
struct CallerTerms {
    credential: OpaqueAuth,
    urgency: Urgency,
}

/// A call under way.
struct SentCall {
    call: CancellableCall,
    /// The parallel stream that carries it.
    stream: Option<Arc<Connection>>,
}

impl SentCall {
    /// Its reply. A stream that stalls counts as closed.
    async fn reply(&mut self) -> Result<Answer, ClientError> {
        let Some(stream) = &self.stream else { return self.call.reply().await };
        loop {
            match tokio::time::timeout(STALL_LOOK, self.call.reply()).await {
                Ok(reply) => return reply,
                Err(_) if is_stalled(stream) => return Err(ClientError::Closed),
                Err(_) => {}
            }
        }
    }
}

/// Whether a parallel stream has been silent for much longer than usual. During a hand-off all are silent.
fn is_stalled(stream: &Connection) -> bool {
    let core = &stream.shared.lock().core;
    let usual = core.smoothed_rtt().filter(|_| !core.is_held());
    usual.is_some_and(|trip| core.silence(stream.shared.now()) > STALL + trip * 2)
}

/// The reply belongs to another program than NFS.
fn other_reply(proc: nfs3::Proc) -> ClientError {
    let error = remora_wire::Error::BadDiscriminant { what: "reply", value: proc as u32 };
    ClientError::Rpc(CallFailure::Garbled(error))
}

/// Subscription to hand-off signals.
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

/// Subscribes to hand-off signals, if that is possible.
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

    /// The same session with a rate limit that sessions may share.
    pub fn throttled(self, throttle: Option<Arc<RateLimit>>) -> Session {
        Session { throttle, ..self }
    }

    /// When the rate limit admits the next request, if it does not now.
    pub(crate) fn closed_until(&self, now: Instant) -> Option<Instant> {
        self.throttle.as_ref()?.closed_until(now)
    }

    /// Counts bytes against the rate limit.
    pub(crate) fn take(&self, now: Instant, bytes: u64) {
        if let Some(throttle) = &self.throttle {
            throttle.take(now, bytes);
        }
    }

    pub(crate) fn stream_connections(&self) -> Vec<Arc<Connection>> {
        self.streams.as_ref().map(|s| s.connections()).unwrap_or_default()
    }

    /// The connection with the most room for file data. If other transfers fill all, a transfer without anything in
    /// flight (`first`) may queue one request, so that each gets its turn.
    pub(crate) fn connection_with_room(&self, first: bool) -> Option<Arc<Connection>> {
        if let Some(streams) = &self.streams {
            streams.open_if_lossy(&self.connection);
        }
        let streams = self.stream_connections().into_iter();
        let best = streams.map(|l| (l.room(), l)).max_by_key(|(room, _)| *room);
        let (room, connection) = best.unwrap_or_else(|| (self.connection.room(), self.connection.clone()));
        (room > 0 || first).then_some(connection)
    }

    /// Bytes that a READ over `connection` should ask for, at most `max`.
    pub(crate) fn read_block(&self, connection: &Arc<Connection>, max: u32) -> u32 {
        let max = self.throttle.as_ref().map_or(max, |throttle| throttle.block(max));
        self.scaled(connection, self.shared().lock().core.read_block(max)).min(max)
    }

    /// Bytes that a WRITE to `fh` over `connection` should carry, at most `max`.
    pub(crate) fn write_block(&self, connection: &Arc<Connection>, fh: &Fh, max: u32) -> u32 {
        let max = self.throttle.as_ref().map_or(max, |throttle| throttle.block(max));
        self.scaled(connection, self.shared().lock().core.write_block(fh, max)).min(max)
    }

    /// Datagrams finish a file that streams did not.
    pub(crate) fn restore_path(&self) {
        self.shared().lock().core.restore_path(self.shared().now());
    }

    /// Bytes of such a READ over UDP, at most `max`: single packets, for frames are lost independently and the end is
    /// awaited.
    pub(crate) fn read_tail(&self, max: u32) -> u32 {
        self.shared().lock().core.read_packet(max)
    }

    /// Bytes of such a WRITE to `fh` over UDP.
    pub(crate) fn write_tail(&self, fh: &Fh, max: u32) -> u32 {
        self.shared().lock().core.write_packet(fh, max)
    }

    /// A block over a stream is a multiple of one over UDP, which is short because one lost frame loses it.
    fn scaled(&self, connection: &Arc<Connection>, datagram: u32) -> u32 {
        if !self.is_parallel_stream(connection) {
            return datagram;
        }
        datagram.saturating_mul(STREAM_BLOCK).max(STREAM_BLOCK_MIN)
    }

    /// Whether `connection` is one of the parallel streams.
    pub(crate) fn is_parallel_stream(&self, connection: &Arc<Connection>) -> bool {
        !Arc::ptr_eq(connection, &self.connection)
    }

    /// Gives a stream up. Its calls end with [`ClientError::Closed`].
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

    /// The transport of calls; parallel streams may carry file data beside it.
    pub fn transport(&self) -> Transport {
        self.connection.transport
    }

    /// Whether the user left the choice of the transport to mounting, which chose UDP.
    pub fn chooses_transport(&self) -> bool {
        self.streams.is_some()
    }

    /// Handle of the mounted directory.
    pub fn root(&self) -> &Fh {
        &self.root
    }

    /// The same server with another root.
    pub(crate) fn at(&self, root: Fh) -> Session {
        Session { root, ..self.clone() }
    }

    /// Address of the server.
    pub fn addr(&self) -> SocketAddr {
        self.connection.server
    }

    /// The server for messages: `host:port`.
    pub fn server(&self) -> &str {
        &self.shared().name
    }

    /// Makes an NFS call and returns its reply with any status; see [`Session::ok`]. Repeats it while the server
    /// answers NFS3ERR_JUKEBOX, up to the patience.
    pub async fn call(&self, call: nfs3::Call) -> Result<nfs3::Reply, ClientError> {
        let mut later = self.later();
        loop {
            match self.call_once(call.clone()).await {
                Ok(reply) if reply.status().is_some_and(JukeboxRetry::is) && later.wait().await.is_ok() => {}
                done => return done,
            }
        }
    }

    /// Submits an NFS call with this credential and urgency now; the future resolves to its reply with any status.
    /// File data goes over the connection with the most room. A READ, WRITE or listing that is too long for the path is
    /// shortened, and the reply says so. Repeats the call while the server answers NFS3ERR_JUKEBOX, up to the patience. Dropping the
    /// future cancels a call that was not sent yet. Needs the runtime.
    pub fn call_as(
        &self,
        credential: OpaqueAuth,
        urgency: Urgency,
        call: nfs3::Call,
    ) -> impl Future<Output = Result<nfs3::Reply, ClientError>> + Send + use<> {
        let session = self.clone();
        let caller = CallerTerms { credential, urgency };
        let sent = session.submit_as(&caller, &call);
        async move { session.finish(sent?, &caller, call).await }
    }

    fn submit_as(&self, caller: &CallerTerms, call: &nfs3::Call) -> Result<SentCall, ClientError> {
        let CallerTerms { credential, urgency } = caller;
        let is_bulk = match call {
            nfs3::Call::Read(args) => args.count > FRAME_PAYLOAD,
            nfs3::Call::Write(args) => args.data.len() > FRAME_PAYLOAD as usize,
            _ => false,
        };
        let best = if is_bulk { self.connection_with_room(true) } else { None };
        if let Some(stream) = best.filter(|connection| self.is_parallel_stream(connection)) {
            match stream.shared.submit_as(credential, *urgency, call.clone()) {
                // It has just been given up.
                Err(ClientError::Closed) => {}
                submitted => return Ok(SentCall { call: submitted?, stream: Some(stream) }),
            }
        }
        Ok(SentCall { call: self.connection.shared.submit_as(credential, *urgency, call.clone())?, stream: None })
    }

    async fn finish(
        &self,
        mut sent: SentCall,
        caller: &CallerTerms,
        mut call: nfs3::Call,
    ) -> Result<nfs3::Reply, ClientError> {
        let mut later = self.later();
        loop {
            let proc = call.proc();
            match sent.reply().await {
                Ok(Answer::Nfs(reply)) => {
                    let is_deferred = reply.status().is_some_and(JukeboxRetry::is);
                    if !is_deferred || later.wait().await.is_err() {
                        return Ok(reply);
                    }
                }
                Ok(_) => return Err(other_reply(proc)),
                Err(ClientError::Rpc(CallFailure::Fragments)) => match shorter(&call, self.call_limits()) {
                    Some(shorter) => call = shorter,
                    None => return Err(ClientError::Rpc(CallFailure::Fragments)),
                },
                Err(ClientError::Rpc(CallFailure::TimedOut) | ClientError::Closed) if sent.stream.is_some() => {
                    sent.stream.iter().for_each(|stream| self.give_up(stream));
                }
                Err(ClientError::Rpc(CallFailure::TimedOut)) => {
                    return Err(ClientError::Silent { server: self.server().to_owned(), what: "" });
                }
                Err(e) => return Err(e),
            }
            sent = self.submit_as(caller, &call)?;
        }
    }

    /// The least urgency with which the congestion window admits file data now. Needs the runtime.
    pub fn bulk_room(&self) -> Option<Urgency> {
        match self.connection_with_room(false) {
            Some(_) => Some(Urgency::Bulk),
            None if self.shared().lock().core.urgent_room() > 0 => Some(Urgency::Sync),
            None => None,
        }
    }

    /// Blocks of file data that suit the link now, at most `max`.
    pub fn blocks(&self, max: Blocks) -> Blocks {
        let connection = self.stream_connections().into_iter().next().unwrap_or_else(|| self.connection.clone());
        Blocks {
            read: self.read_block(&connection, max.read),
            write: self.write_block(&connection, &self.root, max.write),
        }
    }

    /// Limits of calls over the session's own connection.
    fn call_limits(&self) -> CallLimits {
        let core = &self.shared().lock().core;
        let listing = core.reply_max().unwrap_or(u32::MAX);
        CallLimits { read: core.read_block(u32::MAX), write: core.write_block(&self.root, u32::MAX), listing }
    }

    /// How long the server may be silent, or answer NFS3ERR_JUKEBOX, after its first reply; `None`: without limit.
    pub fn set_patience(&self, patience: Option<Duration>) {
        let mut state = self.shared().lock();
        state.later_patience = Some(patience);
        // It may have answered MOUNT already.
        state.deliver_events();
        drop(state);
        self.shared().changed.notify_one();
    }

    /// Retries for NFS3ERR_JUKEBOX.
    pub(crate) fn later(&self) -> JukeboxRetry {
        let state = self.shared().lock();
        // Such a reply is the server's first at the latest.
        let patience = state.later_patience.unwrap_or_else(|| state.core.patience());
        drop(state);
        JukeboxRetry::new(patience).counted_by(&self.connection.shared)
    }

    /// How long the server has answered nothing but NFS3ERR_JUKEBOX.
    pub fn deferral(&self) -> Duration {
        self.shared().deferrals.lock().unwrap_or_else(PoisonError::into_inner).lasts()
    }

    async fn call_once(&self, call: nfs3::Call) -> Result<nfs3::Reply, ClientError> {
        let proc = call.proc();
        match self.shared().ask(Request::Nfs(call), "").await? {
            Answer::Nfs(reply) => Ok(reply),
            _ => Err(other_reply(proc)),
        }
    }

    /// Makes an NFS call and fails unless its status is OK.
    pub async fn ok(&self, call: nfs3::Call) -> Result<nfs3::Reply, ClientError> {
        let reply = self.call(call).await?;
        match reply.status() {
            None => Ok(reply),
            Some(status) => Err(status.into()),
        }
    }

    /// Whether both sessions share their counters.
    pub fn counts_with(&self, other: &Session) -> bool {
        Arc::ptr_eq(&self.connection.shared, &other.connection.shared)
    }

    /// Counters of the client.
    pub fn stats(&self) -> ClientStats {
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

    /// Takes a hand-off signal, as from the local protocol of [`handoff`](crate::handoff).
    pub fn hand_off(&self, signal: Signal) {
        hand_off(self.shared(), self.streams.as_deref(), signal);
    }

    /// Largest reply in bytes that arrives; see [`Client::reply_max`].
    pub fn reply_max(&self) -> Option<u32> {
        self.shared().lock().core.reply_max()
    }

    /// Share of frames lost independently; see [`Client::loss`].
    pub fn loss(&self) -> Option<f64> {
        self.shared().lock().core.loss()
    }

    /// Full frames per second of the slowest hop; see [`Client::frames_per_second`].
    pub fn frames_per_second(&self) -> Option<f64> {
        self.shared().lock().core.frames_per_second()
    }

    /// How long the server has owed a reply.
    pub fn silence(&self) -> Duration {
        self.shortest(Client::silence)
    }

    /// How long nothing at all has arrived while a reply was due ([`Client::quiet`]).
    pub(crate) fn quiet(&self) -> Duration {
        self.shortest(Client::quiet)
    }

    /// The shortest on any connection that awaits a reply.
    fn shortest(&self, since: impl Fn(&Client, Time) -> Duration) -> Duration {
        let connections = self.stream_connections().into_iter().chain([self.connection.clone()]);
        let since = |connection: Arc<Connection>| {
            let core = &connection.shared.lock().core;
            (!core.is_idle()).then(|| since(core, connection.shared.now()))
        };
        connections.filter_map(since).min().unwrap_or_default()
    }

    /// Whether one more round trip does not matter ([`Client::is_near`]).
    pub fn is_near(&self) -> bool {
        self.shared().lock().core.is_near()
    }

    /// Minimum RTT of small calls.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.shared().lock().core.min_rtt()
    }

    /// Congestion window and smoothed RTT, for display.
    pub fn pace(&self) -> (u32, Option<Duration>) {
        let state = self.shared().lock();
        (state.core.window(), state.core.smoothed_rtt())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use remora_client::{ClientConfig, WindowSize};
    use remora_wire::nfs3::{Call, Proc, ReadArgs, Reply, Status};
    use remora_wire::rpc::{AuthUnix, CallHeader, Outcome, ReplyHeader};
    use remora_wire::{Reader, Xdr};
    use tokio::net::UdpSocket;

    use super::*;
    use crate::Clock;
    use crate::client::options::Options;

    async fn session_to(socket: &UdpSocket) -> Session {
        let config = ClientConfig { window: WindowSize::Fixed(1), ..ClientConfig::new(Transport::Udp) };
        let options = Options { config: config.clone(), seed: 1, clock: Clock::start() };
        let server = socket.local_addr().unwrap();
        let connection = Connection::open(Transport::Udp, server, config, &options).await.unwrap();
        Session::new(connection, None, Fh(Bytes::from_static(b"root")))
    }

    /// Receives a call and answers it with this status.
    async fn answer(socket: &UdpSocket, status: Status) -> CallHeader {
        let mut buffer = [0; 2000];
        let (n, from) = socket.recv_from(&mut buffer).await.unwrap();
        let call = CallHeader::decode(&mut Reader::new(Bytes::copy_from_slice(&buffer[..n]))).unwrap();
        let mut reply = Vec::new();
        ReplyHeader { xid: call.xid, outcome: Outcome::Success }.encode(&mut reply);
        Reply::failed(Proc::from_number(call.proc).unwrap(), status).encode(&mut reply);
        socket.send_to(&reply, from).await.unwrap();
        call
    }

    #[tokio::test]
    async fn deferred_call_is_repeated_with_its_credential() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let session = session_to(&socket).await;
        let credential = OpaqueAuth::unix(&AuthUnix { uid: 7, ..AuthUnix::default() });
        let call = session.call_as(credential.clone(), Urgency::Foreground, Call::GetAttr(session.root().clone()));
        let serving = async {
            let deferred = answer(&socket, Status::Jukebox).await;
            (deferred, answer(&socket, Status::Stale).await)
        };
        let (reply, (deferred, repeated)) = tokio::join!(call, serving);
        assert_eq!(reply.unwrap().status(), Some(Status::Stale));
        assert!(deferred.xid != repeated.xid && [deferred.cred, repeated.cred] == [credential.clone(), credential]);
    }

    #[tokio::test]
    async fn dropped_call_is_not_sent_later() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let session = session_to(&socket).await;
        let read = |offset| {
            let args = ReadArgs { fh: session.root().clone(), offset, count: 8192 };
            session.call_as(OpaqueAuth::none(), Urgency::Bulk, Call::Read(args))
        };
        assert_eq!(session.bulk_room(), Some(Urgency::Bulk));
        let first = read(0);
        assert_eq!(session.bulk_room(), Some(Urgency::Sync), "the window is one request");
        drop(read(8192));
        let (reply, _) = tokio::join!(first, answer(&socket, Status::Stale));
        assert_eq!(reply.unwrap().status(), Some(Status::Stale));
        assert!(session.bulk_room() == Some(Urgency::Bulk) && session.shared().lock().core.is_idle());
    }
}
