//! The experiments of ATP 02, section 4, in virtual time: objects with priorities and deadlines
//! over a link of varying bandwidth.
//!
//! [`Trace`] is the link, [`Workload`] the objects, a [`Scheme`] the protocol, [`optimum`] the most
//! that a sender with knowledge of the future could deliver. Read `trace`, `workload`, `world`,
//! then `experiment`; `endpoints` and `baseline` have the schemes, `oracle` the optimum.
//! `contention` has several hosts on one bottleneck.

mod baseline;
#[cfg(test)]
mod blackout;
pub mod contention;
mod endpoints;
mod experiment;
mod ledger;
pub mod message;
mod oracle;
mod pipe;
mod trace;
mod workload;
mod world;

pub use baseline::{Congestion, SetUpError, Streams, Tcp, TcpConfig};
pub use endpoints::{Endpoints, EndpointsError};
pub use experiment::{
    BULK_RATE, ExperimentError, LEAD, Protocol, ROUND_TRIP, Sends, bulk, objects, run, saturating, steady_rate,
};
pub use ledger::{Fate, FinalStatus, Ledger};
pub use oracle::{Optimum, OracleError, optimum};
pub use pipe::{Link, WhenDown};
pub use trace::{Trace, TraceError};
pub use workload::{Class, Object, Workload};
pub use world::{End, Pace, Run, Scheme, Second, WorldError};
