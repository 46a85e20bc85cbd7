//! The driver of a connection: a task that moves messages between its socket and the core.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use remora_base::{Core, Peer, Time};
use remora_client::Client;
use remora_wire::record::{RecordReader, mark};
use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::sleep;

use crate::client::transport::connect::{RECONNECT, bind_in_time};
use crate::client::transport::reconnect::{answering_connection, unasked_connection};
use crate::client::transport::roaming::RoamingSocket;
use crate::client::transport::shared_core::SharedCore;

/// The search for a second connection.
type Second = Pin<Box<dyn Future<Output = TcpStream> + Send>>;

/// Largest UDP payload, and one byte to detect a longer one.
const DATAGRAM_BUFFER: usize = 65_508;
/// Largest reply over a stream: a READ of the largest block.
pub(crate) const RECORD_MAX: usize = (1 << 20) + (64 << 10);
/// Room for short replies in the receive buffer of a stream, in bytes.
const SPARE: usize = 16 << 10;
/// Bytes written ahead of the stream; the core keeps the rest.
const AHEAD: usize = 256 << 10;
/// Time between connections to a server that closes each after a few replies: at most 100 a second.
const RECONNECT_UNASKED: Duration = Duration::from_millis(10);
/// Interval of the timers while the socket is full.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
/// Wait for a route before the next attempt.
const ROUTE_MAX: Duration = Duration::from_secs(30);
/// Datagrams received before timers and transmissions are checked.
const TAKE_MAX: usize = 64;
/// Drives a UDP socket while the session lives.
pub(crate) async fn run_udp(shared: Arc<SharedCore>, socket: UdpSocket, server: SocketAddr) {
    let peer = Peer::datagram(server);
    let mut way = RoamingSocket::new(socket, server, shared.now());
    let mut buffer = vec![0; DATAGRAM_BUFFER];
    let mut held = None;
    loop {
        let due = send_datagrams(&shared, &mut way, &mut held);
        // Addresses change in a hand-off; its end is announced.
        let look = due.filter(|_| !shared.lock().core.is_held()).map(|_| way.look_at());
        tokio::select! {
            received = way.socket.recv(&mut buffer) => if let Ok(n) = received {
                take(&shared, peer, Bytes::copy_from_slice(&buffer[..n]));
                take_datagrams(&shared, &mut way, peer, &mut buffer);
                way.heard(shared.now());
            } else {
                // ECONNREFUSED and the like: the server may be back soon.
                refused(&shared);
                sleep(Duration::from_millis(5)).await;
            },
            _ = way.socket.writable(), if held.is_some() => {}
            () = shared.changed.notified() => {}
            () = at(&shared, due) => {
                // This task may run late: what has arrived counts before the timers.
                if take_datagrams(&shared, &mut way, peer, &mut buffer) {
                    way.heard(shared.now());
                }
                timeout(&shared);
            }
            () = at(&shared, look) => if way.look(shared.now()).await {
                shared.moved();
            },
        }
    }
}

/// Takes the datagrams that have arrived, at most [`TAKE_MAX`]. Returns whether there were any.
fn take_datagrams(shared: &SharedCore, way: &mut RoamingSocket, peer: Peer, buffer: &mut [u8]) -> bool {
    for taken in 0..TAKE_MAX {
        match way.socket.try_recv(buffer) {
            Ok(n) => take(shared, peer, Bytes::copy_from_slice(buffer.get(..n).unwrap_or_default())),
            Err(e) => {
                if e.kind() == io::ErrorKind::ConnectionRefused {
                    refused(shared);
                }
                return taken > 0;
            }
        }
    }
    true
}

/// Sends what the core has and returns its timeout. `held` is what the socket had no room for: a new socket has none
/// until it was first writable.
fn send_datagrams(shared: &SharedCore, way: &mut RoamingSocket, held: &mut Option<Bytes>) -> Option<Time> {
    let mut state = shared.lock();
    let now = shared.now();
    while let Some(message) = held.take().or_else(|| state.core.poll_transmit(now).map(|t| t.payload)) {
        match way.try_send(&message) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                *held = Some(message);
                state.deliver_events();
                return Some(now + LOOK);
            }
            // A datagram that the kernel refuses is lost.
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(_) => way.refused(),
        }
    }
    state.deliver_events();
    state.core.poll_timeout()
}

fn refused(shared: &SharedCore) {
    let now = shared.now();
    shared.lock().refused_since.get_or_insert(now);
}

pub(crate) fn take(shared: &SharedCore, from: Peer, message: Bytes) {
    let mut state = shared.lock();
    state.refused_since = None;
    state.core.handle_input(shared.now(), from, message);
    state.deliver_events();
}

pub(crate) fn timeout(shared: &SharedCore) {
    let mut state = shared.lock();
    state.core.handle_timeout(shared.now());
    state.deliver_events();
}

pub(crate) async fn at(shared: &SharedCore, due: Option<Time>) {
    match due {
        Some(t) => shared.clock.until(t).await,
        None => std::future::pending().await,
    }
}

/// Drives a UDP socket from the time on when there is a route to the server.
pub(crate) async fn run_udp_later(shared: Arc<SharedCore>, server: SocketAddr) {
    loop {
        match beside_timers(&shared, bind_in_time(server, ROUTE_MAX)).await {
            Ok(socket) => return run_udp(shared, socket, server).await,
            Err(_) => idle(&shared, RECONNECT.1).await,
        }
    }
}

/// Drives a TCP connection and reconnects when it breaks. Without a first one it begins with a reconnect.
pub(crate) async fn run_tcp(shared: Arc<SharedCore>, first: Option<TcpStream>, server: SocketAddr) {
    let mut stream = first;
    let mut connection = 0;
    let mut pause = RECONNECT.0;
    let mut port = None;
    let mut way = Reconnection { was_asked: false, asks_first: true };
    let mut pipeline = Pipeline::unbounded();
    loop {
        while let Some(s) = stream.take() {
            port = s.local_addr().ok().map(|addr| addr.port());
            connection += 1;
            let peer = Peer::stream(server, connection);
            shared.lock().core.connected(shared.now(), peer);
            pipeline.begin();
            // A second connection, or none.
            stream = serve_stream(&shared, s, peer, &mut pipeline).await.ok().flatten();
            let has_replied = pipeline.end(stream.is_none());
            way.ended(has_replied);
            way.was_asked = stream.is_some();
            if has_replied {
                pause = way.pause();
            }
            shared.lock().core.disconnected(shared.now());
        }
        idle(&shared, pause).await;
        pause = (pause * 2).min(RECONNECT.1);
        stream = Some(reconnect(&shared, server, port, &mut way).await);
    }
}

/// How a broken connection is replaced. Usually several connections send a NULL side by side, and the first that is
/// answered is used. A server that closes each connection after one reply would never answer anything else, so it gets
/// no NULL while connections without one bring replies.
#[derive(Clone, Copy, Debug)]
struct Reconnection {
    /// The server has answered a NULL on the present connection.
    was_asked: bool,
    /// The next connection begins with a NULL.
    asks_first: bool,
}

impl Reconnection {
    /// A connection ended, with or without a reply other than to NULL.
    fn ended(&mut self, has_replied: bool) {
        if !has_replied {
            self.asks_first = !self.was_asked;
        }
    }

    /// Time until the next connection, after one that brought replies.
    fn pause(self) -> Duration {
        if self.asks_first { RECONNECT.0 } else { RECONNECT_UNASKED }
    }
}

/// Limit of the requests sent ahead of their replies. A server that closes each connection after a few replies has not
/// executed the requests after those, or worse, has.
#[derive(Clone, Copy, Debug)]
struct Pipeline {
    max: u64,
    sent: u64,
    replies: u64,
}

impl Pipeline {
    fn unbounded() -> Pipeline {
        Pipeline { max: u64::MAX, sent: 0, replies: 0 }
    }

    fn begin(&mut self) {
        (self.sent, self.replies) = (0, 0);
    }

    fn has_room(&self) -> bool {
        self.sent.saturating_sub(self.replies) < self.max
    }

    fn replied(&mut self) {
        self.replies += 1;
        if self.replies > self.max {
            self.max = self.replies.saturating_mul(2);
        }
    }

    /// The connection ended, perhaps broken. Returns whether it brought a reply.
    fn end(&mut self, is_broken: bool) -> bool {
        if is_broken && self.replies > 0 && self.sent > self.replies {
            self.max = self.replies;
        }
        self.replies > 0
    }
}

/// Waits for `pause` while the core's timers run.
pub(crate) async fn idle(shared: &SharedCore, pause: Duration) {
    beside_timers(shared, sleep(pause)).await;
}

/// Replaces a connection, from the same `port` if possible: servers such as Linux's recognise duplicates by address and
/// port.
async fn reconnect(shared: &SharedCore, server: SocketAddr, port: Option<u16>, way: &mut Reconnection) -> TcpStream {
    let trip = shared.lock().core.smoothed_rtt().unwrap_or_default();
    way.was_asked = false;
    if !way.asks_first
        && let Some(stream) = beside_timers(shared, unasked_connection(server, trip, port)).await
    {
        return stream;
    }
    way.was_asked = true;
    beside_timers(shared, answering_connection(server, trip, port)).await
}

/// Runs `what` while the core's timers run.
pub(crate) async fn beside_timers<T>(shared: &SharedCore, what: impl Future<Output = T>) -> T {
    tokio::pin!(what);
    loop {
        let due = shared.lock().core.poll_timeout();
        tokio::select! {
            done = &mut what => return done,
            () = shared.changed.notified() => {}
            () = at(shared, due) => timeout(shared),
        }
    }
}

/// A TCP connection. It is reset if the session was closed before its end.
struct DriverStream<'s> {
    tcp: TcpStream,
    shared: &'s SharedCore,
}

impl DriverStream<'_> {
    fn new(tcp: TcpStream, shared: &SharedCore) -> DriverStream<'_> {
        if shared.is_beside {
            shared.watch(tcp.as_fd().try_clone_to_owned().ok());
        }
        DriverStream { tcp, shared }
    }

    /// Resets the connection when it is closed.
    fn give_up(&self) {
        // Fails if the connection has gone.
        let _ = sockopt::set_socket_linger(&self.tcp, Some(Duration::ZERO));
    }
}

impl Drop for DriverStream<'_> {
    fn drop(&mut self) {
        self.shared.watch(None);
        if self.shared.is_closed() {
            self.give_up();
        }
    }
}

/// Serves a connection until it breaks, or returns a better one.
async fn serve_stream(
    shared: &SharedCore,
    stream: TcpStream,
    peer: Peer,
    pipeline: &mut Pipeline,
) -> io::Result<Option<TcpStream>> {
    let mut stream = DriverStream::new(stream, shared);
    let (mut read, mut write) = stream.tcp.split();
    let mut records = RecordReader::new(RECORD_MAX);
    let mut out = BytesMut::new();
    let mut second: Option<Second> = None;
    let mut takes_requests = true;
    loop {
        let due = if takes_requests { fill(shared, &mut out, pipeline) } else { None };
        let (ask, doubt) = asks(&shared.lock().core);
        tokio::select! {
            n = read.read_buf(records.roomy_buffer(SPARE)) => {
                if n? == 0 {
                    return Ok(None);
                }
                second = None;
                take_records(shared, peer, &mut records, pipeline)?;
            }
            n = write.write(&out), if !out.is_empty() => match n {
                Ok(n) => out.advance(n),
                // A server that closes the connection may have sent a reply before.
                Err(_) => {
                    out.clear();
                    takes_requests = false;
                }
            },
            () = shared.changed.notified() => {}
            () = at(shared, due) => {
                // This task may run late: what has arrived counts before the timers.
                match read.try_read_buf(records.roomy_buffer(SPARE)) {
                    Ok(0) => return Ok(None),
                    Ok(_) => {
                        second = None;
                        take_records(shared, peer, &mut records, pipeline)?;
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(e) => return Err(e),
                }
                timeout(shared);
            }
            () = at(shared, ask), if !shared.is_beside && takes_requests => {
                put(&mut out, &shared.lock().core.ask(shared.now()));
            }
            () = at(shared, doubt), if second.is_none() && !shared.is_beside => {
                let trip = shared.lock().core.smoothed_rtt().unwrap_or_default();
                // The present one still has its port.
                second = Some(Box::pin(answering_connection(peer.addr, trip, None)));
            }
            better = async { second.as_mut()?.await.into() }, if second.is_some() => {
                stream.give_up();
                return Ok(better);
            }
        }
    }
}

/// Passes records to the core and counts replies in `pipeline`.
fn take_records(
    shared: &SharedCore,
    peer: Peer,
    records: &mut RecordReader,
    pipeline: &mut Pipeline,
) -> io::Result<()> {
    while let Some(record) = records.next_record().map_err(io::Error::other)? {
        pipeline.replied();
        take(shared, peer, record);
    }
    if records.held() > 0 {
        shared.lock().core.heard_part(shared.now(), records.held());
    }
    Ok(())
}

/// When the core wants to send a NULL on this connection, and to try a second one.
fn asks(core: &Client) -> (Option<Time>, Option<Time>) {
    (core.ask_at(), core.doubt_at())
}

fn put(out: &mut BytesMut, message: &[u8]) {
    out.extend_from_slice(&mark(message.len()));
    out.extend_from_slice(message);
}

/// Takes records from the core while there is room ahead of the stream.
fn fill(shared: &SharedCore, out: &mut BytesMut, pipeline: &mut Pipeline) -> Option<Time> {
    let mut state = shared.lock();
    while out.len() < AHEAD && pipeline.has_room() {
        let Some(t) = state.core.poll_transmit(shared.now()) else {
            state.deliver_events();
            return state.core.poll_timeout();
        };
        put(out, &t.payload);
        pipeline.sent += 1;
    }
    // Full: only the stream can help; timers are checked at intervals.
    state.deliver_events();
    Some(shared.now() + LOOK)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use remora_client::{Answer, ClientConfig, Request, Transport};
    use remora_wire::nfs3::{Call, Fh, Proc, Reply, Status};
    use remora_wire::rpc::{CallHeader, Outcome, ReplyHeader};
    use remora_wire::{Reader, Xdr};
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;
    use crate::Clock;
    use crate::client::transport::connect::{KEEP_ALIVE, connect};

    #[tokio::test]
    async fn connections_notice_when_the_other_end_has_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = connect(listener.local_addr().unwrap(), None).await.unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), KEEP_ALIVE.idle);
    }

    /// What a server has seen that closes each connection after a few replies.
    #[derive(Default)]
    struct Seen {
        connections: AtomicU32,
        nulls: AtomicU32,
        requests: AtomicU32,
    }

    /// Answers `replies` calls on each connection in order and closes it. Closes it also after `idle` without a call.
    async fn serve_few(listener: TcpListener, replies: u32, idle: Duration, seen: Arc<Seen>) {
        while let Ok((mut stream, _)) = listener.accept().await {
            seen.connections.fetch_add(1, Relaxed);
            let seen = seen.clone();
            tokio::spawn(async move {
                let mut records = RecordReader::new(1 << 20);
                for _ in 0..replies {
                    let record = loop {
                        if let Some(record) = records.next_record().unwrap() {
                            break record;
                        }
                        let read = tokio::time::timeout(idle, stream.read_buf(records.buffer()));
                        let Ok(Ok(1..)) = read.await else { return };
                    };
                    let call = CallHeader::decode(&mut Reader::new(record)).unwrap();
                    let mut reply = Vec::new();
                    ReplyHeader { xid: call.xid, outcome: Outcome::Success }.encode(&mut reply);
                    if call.proc == 0 {
                        seen.nulls.fetch_add(1, Relaxed);
                    } else {
                        seen.requests.fetch_add(1, Relaxed);
                        Reply::failed(Proc::GetAttr, Status::Stale).encode(&mut reply);
                    }
                    stream.write_all(&[&mark(reply.len())[..], &reply].concat()).await.unwrap();
                }
            });
        }
    }

    /// A client of such a server, and what that sees.
    async fn client_of(replies: u32, idle: Duration) -> (Arc<SharedCore>, Arc<Seen>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let (seen, clock) = (Arc::<Seen>::default(), Clock::start());
        tokio::spawn(serve_few(listener, replies, idle, seen.clone()));
        let core = Client::new(ClientConfig::new(Transport::Tcp), Peer::datagram(server), 1, clock.now());
        let shared = SharedCore::new(core, clock, server.to_string(), false);
        tokio::spawn(run_tcp(shared.clone(), connect(server, None).await.ok(), server));
        (shared, seen)
    }

    async fn get(shared: Arc<SharedCore>) {
        let call = Request::Nfs(Call::GetAttr(Fh(Bytes::from_static(b"file"))));
        let asked = tokio::time::timeout(Duration::from_secs(60), shared.ask(call, ""));
        assert!(matches!(asked.await.expect("progress"), Ok(Answer::Nfs(Reply::GetAttr(Err(_))))));
    }

    #[tokio::test]
    async fn server_that_closes_after_each_reply_is_used() {
        for replies in [1, 3] {
            let (shared, seen) = client_of(replies, Duration::from_secs(60)).await;
            let mut asking = JoinSet::new();
            (0..30).for_each(|_| drop(asking.spawn(get(shared.clone()))));
            asking.join_all().await;
            let [connections, nulls, requests] =
                [&seen.connections, &seen.nulls, &seen.requests].map(|counter| counter.load(Relaxed));
            // Connections that bring replies beside that to NULL begin with one. On a busy machine a NULL or a request
            // may be sent twice.
            let nulls_max = if replies == 1 { connections / 2 } else { connections };
            assert!(nulls <= nulls_max && (30..60).contains(&requests), "{connections} {nulls} {requests}");
        }
    }

    #[tokio::test]
    async fn server_closing_idle_and_answered_connections_is_used() {
        let (shared, seen) = client_of(1, Duration::from_millis(50)).await;
        for _ in 0..3 {
            get(shared.clone()).await;
            let before = seen.connections.load(Relaxed);
            // The client reconnects, and that connection is closed, too.
            let reconnected = async {
                while seen.connections.load(Relaxed) < before + 3 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), reconnected).await.expect("new connections");
        }
    }

    #[test]
    fn connections_that_bring_replies_are_used_without_a_null() {
        let mut way = Reconnection { was_asked: false, asks_first: true };
        way.ended(true);
        assert!(way.asks_first, "as a rule it begins with a NULL");
        way.was_asked = true;
        way.ended(false);
        assert!(!way.asks_first, "the reply to the NULL was the last");
        way.was_asked = false;
        way.ended(true);
        assert!(!way.asks_first);
        way.ended(false);
        assert!(way.asks_first, "without a NULL it is no better");
    }

    #[test]
    fn pipeline_shrinks_to_what_was_answered_and_grows_again() {
        let mut pipeline = Pipeline::unbounded();
        (pipeline.sent, pipeline.replies) = (48, 1);
        assert!(pipeline.end(true));
        pipeline.begin();
        pipeline.sent = 1;
        assert!(!pipeline.has_room());
        for replies in 1..=20 {
            pipeline.replied();
            while pipeline.has_room() {
                pipeline.sent += 1;
            }
            assert!(pipeline.sent >= replies);
        }
        assert!(pipeline.sent - pipeline.replies > 10, "{pipeline:?}");
        (pipeline.sent, pipeline.replies) = (30, 20);
        let before = pipeline.max;
        pipeline.end(false);
        assert_eq!(pipeline.max, before, "it was left for a better one");
    }
}
