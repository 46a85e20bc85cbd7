//! Experiments on real sockets and in virtual time, and their reports.

// Not an interface for others: docs would only repeat the names of many fields.
#![allow(missing_docs)]

pub mod atp;
pub mod attack;
pub mod bench;
pub mod copy;
pub mod drc;
pub mod model;
pub mod mount;
pub mod predict;
pub mod raw;
mod report;
pub mod wireless;

pub use report::page::{Html, Page};
pub use report::table::Table;
