//! What every TCP connection here is told, and what the system tells of one (tcp(7)).

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::{getsockopt_impl, libc, sockopt_impl};
use rustix::net::sockopt;
use tokio::net::TcpStream;

sockopt_impl!(
    /// What the system knows of a connection.
    TcpInfo,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    libc::tcp_info
);

/// The states of a connection (`include/net/tcp_states.h` of Linux) in which the other end takes what is sent.
const ESTABLISHED: u8 = 1;
/// The other end sends no more.
const CLOSE_WAIT: u8 = 8;

/// The connection is over.
pub(crate) const CLOSE: u8 = 7;

/// Those in which this end has said that it sends no more, and the other one has not acknowledged that.
const FIN_WAIT1: u8 = 4;
const LAST_ACK: u8 = 9;
const CLOSING: u8 = 11;

/// When a connection on which nothing has come is asked whether its other end still is there.
pub(crate) struct KeepAlive {
    /// After so long,
    pub(crate) idle: Duration,
    /// every so often,
    pub(crate) between: Duration,
    /// and so many times.
    pub(crate) count: u32,
}

/// No delays of its own, and an end that has gone without a word is noticed.
pub(crate) fn harden(stream: &TcpStream, keep_alive: &KeepAlive) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, keep_alive.idle)?;
    sockopt::set_tcp_keepintvl(stream, keep_alive.between)?;
    sockopt::set_tcp_keepcnt(stream, keep_alive.count)?;
    Ok(())
}

/// What the system knows of a connection that stands. Of one that was reset it has forgotten what was not acknowledged.
pub(crate) fn info(socket: &impl AsFd) -> Option<libc::tcp_info> {
    let is_there = |info: &libc::tcp_info| [ESTABLISHED, CLOSE_WAIT].contains(&info.tcpi_state);
    getsockopt(socket, TcpInfo).ok().filter(is_there)
}

/// The state of a connection.
pub(crate) fn state(socket: &impl AsFd) -> Option<u8> {
    getsockopt(socket, TcpInfo).ok().map(|info| info.tcpi_state)
}

/// Whether there is nothing more to wait for when the way out of `socket` has been shut down: the other end has acknowledged
/// that, and so all before it, or has reset the connection.
pub(crate) fn is_end_acknowledged(socket: &impl AsFd) -> bool {
    state(socket).is_none_or(|state| ![FIN_WAIT1, CLOSING, LAST_ACK].contains(&state))
}

/// How long the other end has acknowledged nothing, in steps of the kernel's tick, although there is something that it has not
/// acknowledged.
pub(crate) fn unacknowledged_for(socket: &impl AsFd) -> Option<Duration> {
    let info = info(socket).filter(|info| info.tcpi_unacked > 0)?;
    Some(Duration::from_millis(info.tcpi_last_ack_recv.into()))
}
