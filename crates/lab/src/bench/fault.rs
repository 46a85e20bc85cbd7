//! Why a run was given up.

use std::io;
use std::time::Duration;

use remora_wire::nfs3::{Proc, Status};
use remora_wire::rpc::Outcome;

/// Why a run was given up. A benchmark of wrong answers is worth nothing, so the first one
/// ends it.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// No connection.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(io::Error),
    /// The server closed the connection.
    #[error("the server closed the connection with calls outstanding")]
    Closed,
    /// Nothing came for so long.
    #[error("the server did not answer for {} s", .0.as_secs_f64())]
    Silent(Duration),
    /// A procedure failed.
    #[error("the server answered {proc:?} with {status:?}")]
    Status {
        /// Which.
        proc: Proc,
        /// How.
        status: Status,
    },
    /// The RPC layer refused.
    #[error("{proc:?}: {outcome}")]
    Rpc {
        /// Which procedure.
        proc: Proc,
        /// What became of the call.
        outcome: Outcome,
    },
    /// A reply that cannot be right.
    #[error("a wrong reply to {proc:?}: {what}")]
    Wrong {
        /// To which procedure.
        proc: Proc,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A message that is no reply to a call of ours.
    #[error("the server sent {0}")]
    Foreign(&'static str),
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}
