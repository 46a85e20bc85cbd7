//! Experiments on real sockets and in virtual time, and their reports.

pub mod demo;
mod report;
pub mod wireless;
