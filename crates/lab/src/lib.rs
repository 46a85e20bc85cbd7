//! Experiments on real sockets and in virtual time, and their reports.

pub mod attack;
pub mod bench;
pub mod demo;
pub mod drc;
pub mod raw;
mod report;
pub mod wireless;

pub use report::table::Table;
