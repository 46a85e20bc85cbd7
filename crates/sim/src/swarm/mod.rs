//! Swarm testing: the seed also draws the world: which faults at which rates, how many clients of
//! which kind, which cache. Worlds without some faults find errors that a mixture of all faults
//! hides.
//!
//! Each run has a safety phase, in which everything may go wrong and the oracle watches; then all
//! faults end, and within [`LIVENESS`] all requests must complete and read back correctly.
//!
//! `scenario` draws a world, `workload` has its users, `oracle` checks its files, `run` runs it. Read
//! them in this order.

pub mod oracle;
mod run;
pub mod scenario;
pub mod workload;

pub use run::{LIVENESS, Outcome, run};
