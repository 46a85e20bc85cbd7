//! Experiments on real sockets and in virtual time, and their reports.

// No interface for others: a comment that repeats a name would be the only documentation of many fields.
#![allow(missing_docs)]

pub mod atp;
pub mod attack;
pub mod bench;
pub mod copy;
pub mod drc;
pub mod model;
pub mod raw;
mod report;
pub mod wireless;

pub use report::json;
pub use report::page::{Html, Page};
pub use report::table::Table;
