//! Sockets to a server: connecting streams, binding datagram sockets, and their options.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::sleep;

use crate::tcp::{KeepAlive, harden};
use crate::{Clock, reserved};

/// Time before a reconnect, at first and at most, while connections break one after another.
pub(crate) const RECONNECT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// Time limit of a connection attempt.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Keepalive: a server that lost power closes no connection.
pub(crate) const KEEP_ALIVE: KeepAlive =
    KeepAlive { idle: Duration::from_secs(30), between: Duration::from_secs(10), count: 3 };
/// Interval of checks for a route, over UDP. More often than TCP is tried, which would else be the first to find one.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// Connects without Nagle delays and with keepalive; from `port` if that is free.
pub(crate) async fn connect(server: SocketAddr, port: Option<u16>) -> io::Result<TcpStream> {
    let stream = tokio::time::timeout(CONNECT_MAX, reserved::connect(server, port))
        .await
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer within 10 s")))?;
    harden(&stream, &KEEP_ALIVE)?;
    Ok(stream)
}

/// Connects for the first time: waits while the network is away. A refusal is an answer.
pub(crate) async fn connect_in_time(server: SocketAddr) -> io::Result<TcpStream> {
    loop {
        match connect(server, None).await {
            Err(e) if is_away(&e) => sleep(RECONNECT.0).await,
            answer => return answer,
        }
    }
}

/// Whether the error may pass when the network is back.
pub(crate) fn is_away(e: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable, TimedOut};
    matches!(e.kind(), TimedOut | HostUnreachable | NetworkUnreachable | NetworkDown)
}

/// Path MTU as the kernel knows it, less the extra length of IPv6 headers: 20 bytes, and 8 of a fragment header.
pub(crate) fn path_mtu(socket: &UdpSocket, server: SocketAddr) -> rustix::io::Result<u32> {
    if server.is_ipv4() { sockopt::ip_mtu(socket) } else { sockopt::ipv6_mtu(socket).map(|mtu| mtu.saturating_sub(28)) }
}

/// As [`bind`], but waits for a route until `patience` is over.
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
    // Best effort: a whole window of replies may arrive at once.
    let _ = sockopt::set_socket_recv_buffer_size(&socket, 4 << 20);
    Ok(socket)
}

/// Linear instead of exponential backoff for thin streams: requests and the end of a file (Linux, tcp(7)). Best effort.
pub(crate) fn tune(stream: &TcpStream) {
    let _ = sockopt::set_tcp_thin_linear_timeouts(stream, true);
}
