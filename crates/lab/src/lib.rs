//! Experiments on real sockets and in virtual time, and their reports.

pub mod demo;
