//! ATP: objects with priorities and deadlines (ATP 02), its scheduler, admission and bandwidth
//! estimate, and a session that carries them in QUIC packets.
//!
//! Three layers, each pure (no clock, socket, thread or ambient randomness): [`scheduler`]
//! decides which object gets the next packet and which objects cannot be had in time;
//! the estimators say what the link carries; the session turns both into packets. All of them
//! and every program above speak the words of [`object`]. [`stream`] makes byte streams of objects,
//! for gateways to TCP.

pub mod estimate;
pub mod object;
pub mod scheduler;
pub mod session;
pub mod stream;

pub use object::{
    Command, Dest, Final, Gone, OnShortage, Options, Outcome, Priority, Progress, QueueId, Rejection, RequestId, Side,
    State, Upcall, Why,
};
pub use scheduler::{Config, Pick, Policy, Scheduler};
