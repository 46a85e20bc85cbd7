//! Sockets to a server: connecting streams, binding datagram sockets, and their options.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::sleep;

use crate::tcp::{KeepAlive, harden};
use crate::{Clock, reserved};

/// How long to wait before a broken stream is made again, at first and at most, when one breaks
/// after the other.
pub(crate) const RECONNECT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How long a connection may take to be made.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(10);
/// A stream on which nothing has come for so long is asked whether its other end still is
/// there, every so often, and so many times: a server that lost power says no good-bye.
pub(crate) const KEEP_ALIVE: KeepAlive =
    KeepAlive { idle: Duration::from_secs(30), between: Duration::from_secs(10), count: 3 };
/// How often it is looked whether there is a way, where datagrams have none: more often than a stream is tried, which
/// would be the first to find one, and be taken for good.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// A connection without delays of its own, that notices when its other end has gone; from `port` if that is free.
pub(crate) async fn connect(server: SocketAddr, port: Option<u16>) -> io::Result<TcpStream> {
    let stream = tokio::time::timeout(CONNECT_MAX, reserved::connect(server, port))
        .await
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer within 10 s")))?;
    harden(&stream, &KEEP_ALIVE)?;
    Ok(stream)
}

/// The same for a first connection: who is on a network that is about to come back waits for that. Nobody
/// there who listens is an answer.
pub(crate) async fn connect_in_time(server: SocketAddr) -> io::Result<TcpStream> {
    loop {
        match connect(server, None).await {
            Err(e) if is_away(&e) => sleep(RECONNECT.0).await,
            answer => return answer,
        }
    }
}

/// Whether a network that is about to come back may change that.
pub(crate) fn is_away(e: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable, TimedOut};
    matches!(e.kind(), TimedOut | HostUnreachable | NetworkUnreachable | NetworkDown)
}

/// The MTU of the path as the kernel knows it, less what IPv6 headers have more than IPv4's: 20
/// bytes, and 8 of a fragment's.
pub(crate) fn path_mtu(socket: &UdpSocket, server: SocketAddr) -> rustix::io::Result<u32> {
    if server.is_ipv4() { sockopt::ip_mtu(socket) } else { sockopt::ipv6_mtu(socket).map(|mtu| mtu.saturating_sub(28)) }
}

/// As [`bind`], for a first connection: where there is no way to the server at present, one is waited for. What is in the way is
/// the error when that has taken so long.
pub(crate) async fn bind_in_time(server: SocketAddr, patience: Duration) -> std::io::Result<UdpSocket> {
    let clock = Clock::start();
    let end = clock.now() + patience;
    loop {
        let now = clock.now();
        match bind(server).await {
            Err(e) if is_away(&e) && now < end => tokio::time::sleep(LOOK.min(end.since(now))).await,
            done => return done,
        }
    }
}

pub(crate) async fn bind(server: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = reserved::bind(server).await?;
    socket.connect(server).await?;
    // Best effort: a whole window of replies may come at once.
    let _ = sockopt::set_socket_recv_buffer_size(&socket, 4 << 20);
    Ok(socket)
}

/// Small segments, such as requests and the end of a file, that are lost again and again are sent
/// again at the same pace, not at half the pace each time (Linux, tcp(7); RFC 6298 has the other).
/// A system that does not have it does without.
pub(crate) fn tune(stream: &TcpStream) {
    let _ = sockopt::set_tcp_thin_linear_timeouts(stream, true);
}
