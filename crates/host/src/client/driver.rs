//! The task that owns a session's socket: moves messages between it and the core.

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
use tokio::time::{Instant, sleep, sleep_until};

use super::rescue::answering_connection;
use super::roaming::Roaming;
use super::session::Shared;
use crate::reserved;
use crate::tcp::{KeepAlive, harden};

/// The search for a better connection.
type Second = Pin<Box<dyn Future<Output = TcpStream> + Send>>;

/// The largest UDP payload, and one byte to see that something was longer.
const DATAGRAM_BUFFER: usize = 65_508;
/// The largest reply taken from a stream: READ's largest block and its header.
pub(super) const RECORD_MAX: usize = (1 << 20) + (64 << 10);
/// Bytes written ahead of the stream; the core keeps the rest.
const AHEAD: usize = 256 << 10;
/// How long to wait before a broken stream is made again, at first and at most, when one breaks
/// after the other.
pub(super) const RECONNECT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How often timers are looked at while the socket takes nothing.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How many datagrams are taken before there is a look at timers and at what is to be sent.
const TAKE_MAX: usize = 64;
/// A stream on which nothing has come for so long is asked whether its other end still is
/// there, every so often, and so many times: a server that lost power says no good-bye.
const KEEP_ALIVE: KeepAlive = KeepAlive { idle: Duration::from_secs(30), between: Duration::from_secs(10), count: 3 };

/// Moves datagrams for as long as the session lives.
pub(super) async fn run_udp(shared: Arc<Shared>, socket: UdpSocket, server: SocketAddr) {
    let peer = Peer::datagram(server);
    let mut way = Roaming::new(socket, server, shared.now());
    let mut buffer = vec![0; DATAGRAM_BUFFER];
    let mut held = None;
    loop {
        let due = send_datagrams(&shared, &mut way, &mut held);
        // Addresses change in a hand-off, and whoever announced it says when it is over.
        let look = due.filter(|_| !shared.lock().core.is_held()).map(|_| way.look_at());
        tokio::select! {
            received = way.socket.recv(&mut buffer) => if let Ok(n) = received {
                take(&shared, peer, Bytes::copy_from_slice(&buffer[..n]));
                take_datagrams(&shared, &mut way, peer, &mut buffer);
                way.heard(shared.now());
            } else {
                // "Connection refused" and its like: the server may be back soon.
                refused(&shared);
                sleep(Duration::from_millis(5)).await;
            },
            _ = way.socket.writable(), if held.is_some() => {}
            () = shared.changed.notified() => {}
            () = at(&shared, due) => {
                // What has come by now counts before the timers do: this task may run late.
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

/// Takes the datagrams that have come, [`TAKE_MAX`] at most; whether there were any.
fn take_datagrams(shared: &Shared, way: &mut Roaming, peer: Peer, buffer: &mut [u8]) -> bool {
    for taken in 0..TAKE_MAX {
        let Ok(n) = way.socket.try_recv(buffer) else { return taken > 0 };
        take(shared, peer, Bytes::copy_from_slice(buffer.get(..n).unwrap_or_default()));
    }
    true
}

/// Sends what the core has; returns when it wants to be woken. What the socket has no room for
/// is `held`: a new socket has none until it was first found writable.
fn send_datagrams(shared: &Shared, way: &mut Roaming, held: &mut Option<Bytes>) -> Option<Time> {
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
            // A datagram that the kernel refuses is lost like any other.
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(_) => way.refused(),
        }
    }
    state.deliver_events();
    state.core.poll_timeout()
}

fn refused(shared: &Shared) {
    let now = shared.now();
    shared.lock().refused_since.get_or_insert(now);
}

pub(super) fn take(shared: &Shared, from: Peer, message: Bytes) {
    let mut state = shared.lock();
    state.refused_since = None;
    state.core.handle_input(shared.now(), from, message);
    state.deliver_events();
}

pub(super) fn timeout(shared: &Shared) {
    let mut state = shared.lock();
    state.core.handle_timeout(shared.now());
    state.deliver_events();
}

pub(super) async fn at(shared: &Shared, due: Option<Time>) {
    match due {
        Some(t) => sleep_until(Instant::from_std(shared.clock.instant(t))).await,
        None => std::future::pending().await,
    }
}

/// Moves records, and makes the stream again whenever it breaks.
pub(super) async fn run_tcp(shared: Arc<Shared>, first: TcpStream, server: SocketAddr) {
    let mut stream = Some(first);
    let mut connection = 0;
    let mut pause = RECONNECT.0;
    let mut port = None;
    loop {
        while let Some(s) = stream.take() {
            port = s.local_addr().ok().map(|addr| addr.port());
            connection += 1;
            let peer = Peer::stream(server, connection);
            shared.lock().core.connected(shared.now(), peer);
            let mut heard = false;
            // However it ended, there is another, or it is made again.
            stream = serve_stream(&shared, s, peer, &mut heard).await.ok().flatten();
            if heard {
                pause = RECONNECT.0;
            }
            shared.lock().core.disconnected(shared.now());
        }
        idle(&shared, pause).await;
        pause = (pause * 2).min(RECONNECT.1);
        stream = Some(connect_patiently(&shared, server, port).await);
    }
}

/// Lets `pause` go by while the core's timers run on.
pub(super) async fn idle(shared: &Shared, pause: Duration) {
    let until = sleep(pause);
    tokio::pin!(until);
    loop {
        let due = shared.lock().core.poll_timeout();
        tokio::select! {
            () = &mut until => return,
            () = shared.changed.notified() => {}
            () = at(shared, due) => timeout(shared),
        }
    }
}

/// From `port` again if that can be had: servers such as Linux's remember by address and port what they did,
/// and what is sent again over another would be done again.
async fn connect_patiently(shared: &Shared, server: SocketAddr, port: Option<u16>) -> TcpStream {
    let trip = shared.lock().core.round_trip().unwrap_or_default();
    let connecting = answering_connection(server, trip, port);
    tokio::pin!(connecting);
    loop {
        let due = shared.lock().core.poll_timeout();
        tokio::select! {
            stream = &mut connecting => return stream,
            () = shared.changed.notified() => {}
            () = at(shared, due) => timeout(shared),
        }
    }
}

/// A connection without delays of its own, that notices when its other end has gone; from `port` if that is free.
pub(super) async fn connect(server: SocketAddr, port: Option<u16>) -> io::Result<TcpStream> {
    let stream = tokio::time::timeout(CONNECT_MAX, reserved::connect(server, port))
        .await
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer within 10 s")))?;
    harden(&stream, &KEEP_ALIVE)?;
    Ok(stream)
}

/// The same for a first connection: who is on a network that is about to come back waits for that. Nobody
/// there who listens is an answer.
pub(super) async fn connect_in_time(server: SocketAddr) -> io::Result<TcpStream> {
    loop {
        match connect(server, None).await {
            Err(e) if is_away(&e) => sleep(RECONNECT.0).await,
            answer => return answer,
        }
    }
}

/// Whether a network that is about to come back may change that.
pub(super) fn is_away(e: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable, TimedOut};
    matches!(e.kind(), TimedOut | HostUnreachable | NetworkUnreachable | NetworkDown)
}

/// A stream of a session. Goes with it, and is reset if the session was closed in the middle.
struct Stream<'s> {
    tcp: TcpStream,
    shared: &'s Shared,
}

impl Stream<'_> {
    fn new(tcp: TcpStream, shared: &Shared) -> Stream<'_> {
        if shared.is_beside {
            shared.watch(tcp.as_fd().try_clone_to_owned().ok());
        }
        Stream { tcp, shared }
    }

    /// When it is closed, what the kernel still has of it is not sent, and the other end is told.
    fn give_up(&self) {
        // Fails if the connection has gone, and then there is nothing to give up.
        let _ = sockopt::set_socket_linger(&self.tcp, Some(Duration::ZERO));
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        self.shared.watch(None);
        if self.shared.is_closed() {
            self.give_up();
        }
    }
}

/// Serves one connection until it breaks, or a better one is found, which is returned; `heard`:
/// a whole record came over it.
async fn serve_stream(
    shared: &Shared,
    stream: TcpStream,
    peer: Peer,
    heard: &mut bool,
) -> io::Result<Option<TcpStream>> {
    let mut stream = Stream::new(stream, shared);
    let (mut read, mut write) = stream.tcp.split();
    let mut records = RecordReader::new(RECORD_MAX);
    let mut out = BytesMut::new();
    let mut second: Option<Second> = None;
    loop {
        let due = fill(shared, &mut out);
        let (ask, doubt) = asks(&shared.lock().core);
        tokio::select! {
            n = read.read_buf(records.buffer()) => {
                if n? == 0 {
                    return Ok(None);
                }
                second = None;
                *heard |= take_records(shared, peer, &mut records)?;
            }
            n = write.write(&out), if !out.is_empty() => out.advance(n?),
            () = shared.changed.notified() => {}
            () = at(shared, due) => {
                // What has come by now counts before the timers do: this task may run late.
                match read.try_read_buf(records.buffer()) {
                    Ok(0) => return Ok(None),
                    Ok(_) => {
                        second = None;
                        *heard |= take_records(shared, peer, &mut records)?;
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(e) => return Err(e),
                }
                timeout(shared);
            }
            () = at(shared, ask), if !shared.is_beside => {
                put(&mut out, &shared.lock().core.ask(shared.now()));
            }
            () = at(shared, doubt), if second.is_none() && !shared.is_beside => {
                let trip = shared.lock().core.round_trip().unwrap_or_default();
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

/// Hands the core what has been read; whether a whole record was in it.
fn take_records(shared: &Shared, peer: Peer, records: &mut RecordReader) -> io::Result<bool> {
    let mut whole = false;
    while let Some(record) = records.next_record().map_err(io::Error::other)? {
        whole = true;
        take(shared, peer, record);
    }
    if records.held() > 0 {
        shared.lock().core.heard_part(shared.now(), records.held());
    }
    Ok(whole)
}

/// When the core wants to ask on the present stream, and on others.
fn asks(core: &Client) -> (Option<Time>, Option<Time>) {
    (core.ask_at(), core.doubt_at())
}

fn put(out: &mut BytesMut, message: &[u8]) {
    out.extend_from_slice(&mark(message.len()));
    out.extend_from_slice(message);
}

/// Takes records from the core while there is room ahead of the stream.
fn fill(shared: &Shared, out: &mut BytesMut) -> Option<Time> {
    let mut state = shared.lock();
    while out.len() < AHEAD {
        let Some(t) = state.core.poll_transmit(shared.now()) else {
            state.deliver_events();
            return state.core.poll_timeout();
        };
        put(out, &t.payload);
    }
    // Full: the core wants to send, which only the stream can help; its other timers are
    // looked at now and then.
    state.deliver_events();
    Some(shared.now() + LOOK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_notice_when_the_other_end_has_gone() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = connect(listener.local_addr().unwrap(), None).await.unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), KEEP_ALIVE.idle);
    }
}
