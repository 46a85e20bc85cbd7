//! Experiments on real sockets and in virtual time, and their reports.

pub mod bench;
pub mod demo;
pub mod drc;
mod report;
pub mod wireless;
