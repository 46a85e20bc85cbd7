//! Options of TCP connections, and their state in the kernel (tcp(7)).

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::{getsockopt_impl, libc, sockopt_impl};
use rustix::net::sockopt;
use tokio::net::TcpStream;

sockopt_impl!(
    /// The kernel's information about a connection.
    TcpInfo,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    libc::tcp_info
);

/// States (`include/net/tcp_states.h` of Linux) in which the peer receives.
const ESTABLISHED: u8 = 1;
/// The peer has ended its direction.
const CLOSE_WAIT: u8 = 8;

/// The connection has ended.
pub(crate) const CLOSE: u8 = 7;

/// This end has ended its direction, without an acknowledgement yet.
const FIN_WAIT1: u8 = 4;
const LAST_ACK: u8 = 9;
const CLOSING: u8 = 11;

/// TCP keep-alive parameters.
pub(crate) struct KeepAlive {
    /// Idle time before the first probe.
    pub(crate) idle: Duration,
    /// Interval of the probes.
    pub(crate) between: Duration,
    /// Number of the probes.
    pub(crate) count: u32,
}

/// Sets TCP_NODELAY and keep-alive.
pub(crate) fn harden(stream: &TcpStream, keep_alive: &KeepAlive) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, keep_alive.idle)?;
    sockopt::set_tcp_keepintvl(stream, keep_alive.between)?;
    sockopt::set_tcp_keepcnt(stream, keep_alive.count)?;
    Ok(())
}

/// The kernel's information about a connection. After a reset it lacks the unacknowledged data.
pub(crate) fn info(socket: &impl AsFd) -> Option<libc::tcp_info> {
    let is_there = |info: &libc::tcp_info| [ESTABLISHED, CLOSE_WAIT].contains(&info.tcpi_state);
    getsockopt(socket, TcpInfo).ok().filter(is_there)
}

pub(crate) fn state(socket: &impl AsFd) -> Option<u8> {
    getsockopt(socket, TcpInfo).ok().map(|info| info.tcpi_state)
}

/// Whether the end of `socket` was acknowledged, and so all data before it, or the connection reset.
pub(crate) fn is_end_acknowledged(socket: &impl AsFd) -> bool {
    state(socket).is_none_or(|state| ![FIN_WAIT1, CLOSING, LAST_ACK].contains(&state))
}

/// Time without an acknowledgement of outstanding data, in kernel ticks.
pub(crate) fn unacknowledged_for(socket: &impl AsFd) -> Option<Duration> {
    let info = info(socket).filter(|info| info.tcpi_unacked > 0)?;
    Some(Duration::from_millis(info.tcpi_last_ack_recv.into()))
}
