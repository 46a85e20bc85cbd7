//! What every TCP connection here is told.

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

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
