//! Errors of an endpoint, for people.

use std::io;
use std::net::SocketAddr;

use remora_atp::session::{ConnectError, Ending, Refusal, SetupError};

/// Why a call of an endpoint fails.
#[derive(Debug, thiserror::Error)]
pub enum AtpError {
    /// The address cannot be bound.
    #[error("cannot bind to {addr}: {source}")]
    Bind { addr: SocketAddr, source: io::Error },
    /// Another system error: a thread, an event descriptor, random numbers.
    #[error("the system refuses what an endpoint takes: {0}")]
    Start(io::Error),
    /// The settings are inconsistent.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// No connection can be started.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A connection was not established.
    #[error(transparent)]
    Refused(Refusal),
    /// A connection ended.
    #[error(transparent)]
    Down(Ending),
    /// The request is unknown or has ended.
    #[error(transparent)]
    Gone(#[from] remora_atp::Gone),
    /// Another wait for bandwidth bounds replaced this one.
    #[error("other bounds were set since")]
    Replaced,
    /// The endpoint is closed.
    #[error("the endpoint is closed")]
    Closed,
}
