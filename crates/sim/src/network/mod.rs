//! The networks of the analytic model, simulated packet by packet: the same topology with random
//! arrivals and sizes, and the media's protocols instead of formulas. [`Comparison`] has both
//! results.
//!
//! A discrete-event simulation of shared Ethernet (IEEE 802.3 clause 4, half duplex), token rings,
//! switches, wireless cells with the two-state channel of NFS/W 95, gateways with unbounded
//! buffers, hosts with processor times, and windowed copies. A seed gives the same run on every
//! machine.
//!
//! Read `run` and `event`, then `simulation` and the media; `copies` has file copies, `series` the
//! statistics, `selection` the part of a network that a figure depends on, `answer` the figures that
//! no formula gives, `check` the validation of all answers.

pub mod answer;
pub mod check;
mod copies;
mod draw;
mod ethernet;
mod event;
mod media;
mod ring;
mod run;
mod selection;
mod series;
mod simulation;
#[cfg(test)]
mod tests;
mod wifi;

pub use run::{Comparison, ComparisonLine, CopyRun, MediumRun, Options, Run, Simulated, Subject, TooMuch};
pub use selection::{Selection, Wanted};
pub use series::Stat;
pub use simulation::run;
