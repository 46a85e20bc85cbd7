//! The experiments of ATP 02, section 4, in virtual time: objects with priorities and deadlines
//! over a link whose bandwidth comes and goes.
//!
//! [`Trace`] is the link, [`Workload`] what is sent, a [`Scheme`] who sends it, [`optimum`] what
//! could have been delivered by one who knows the future.

mod baseline;
#[cfg(test)]
mod blackout;
mod endpoints;
mod experiment;
mod ledger;
pub mod message;
mod oracle;
mod pipe;
mod trace;
mod workload;
mod world;

pub use baseline::{SetUpError, Streams, Tcp, TcpConfig};
pub use endpoints::{Endpoints, EndpointsError};
pub use experiment::{
    BULK_RATE, ExperimentError, LEAD, Protocol, ROUND_TRIP, Sends, bulk, objects, run, saturating, steady_rate,
};
pub use ledger::{Fate, Ledger, Told};
pub use oracle::{Optimum, OracleError, optimum};
pub use trace::{Trace, TraceError};
pub use workload::{Class, Object, Workload};
pub use world::{End, Link, Pace, Run, Scheme, Second, WhenDown, WorldError};
