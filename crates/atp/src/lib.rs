//! ATP 02: transport of objects with priorities and deadlines.
//!
//! Three sans-I/O layers: [`scheduler`] selects the object for each packet and rejects objects whose deadlines
//! cannot be met; [`estimate`] measures the bandwidth of the path; [`session`] sends the objects over QUIC. All
//! three, and the programs above, use the types of [`object`]. [`stream`] carries TCP byte streams in objects.

pub mod estimate;
pub mod object;
pub mod scheduler;
pub mod session;
pub mod stream;

pub use object::{
    Command, Dest, Final, Gone, OnShortage, Options, Outcome, Priority, Probability, Progress, QueueId, Rejection,
    RequestId, Side, State, Upcall, Why,
};
pub use scheduler::{Config, Pick, Policy, Scheduler};
