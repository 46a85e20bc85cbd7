//! What can go wrong at an endpoint, in words for people.

use std::io;
use std::net::SocketAddr;

use remora_atp::session::{ConnectError, Ending, Refusal, SetupError};

/// Why an endpoint cannot do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum AtpError {
    /// The address cannot be listened on.
    #[error("cannot bind to {addr}: {source}")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The system refuses something else: a thread, an event descriptor, random numbers.
    #[error("the system refuses what an endpoint takes: {0}")]
    Start(io::Error),
    /// The settings do not fit together.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// No connection can be made from here.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A connection did not come about.
    #[error(transparent)]
    Refused(Refusal),
    /// A connection is over.
    #[error(transparent)]
    Down(Ending),
    /// The request has ended or never was.
    #[error(transparent)]
    Gone(#[from] remora_atp::Gone),
    /// Another wait for the bandwidth to leave its bounds has taken the place of this one.
    #[error("other bounds were set since")]
    Replaced,
    /// The endpoint has been closed.
    #[error("the endpoint is closed")]
    Closed,
}
