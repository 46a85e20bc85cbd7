//! Experiments on real sockets and in virtual time, and their reports.

pub mod atp;
pub mod attack;
pub mod bench;
pub mod copy;
pub mod demo;
pub mod drc;
mod error;
pub mod json;
pub mod model;
pub mod nfs_atp;
pub mod raw;
mod report;
pub mod simulate;
pub mod wireless;

pub use report::page::{Html, Page};
pub use report::table::Table;
