//! Programs on mounted file systems over an emulated link: `remora mount`, sshfs and the kernel's client.
//!
//! Each run has its own link, server and mount, so that every work begins with cold caches. Read `work` (what
//! programs do), `bench` (one run), `study` (all runs), `cell` (their figures), then `bars` and `outcome` (the report).

mod bars;
mod bench;
mod cell;
mod files;
mod options;
mod outcome;
mod page;
mod session;
mod study;
mod tables;
mod work;

pub use bars::{Met, Verdict};
pub use options::{JOBS_MAX, MountSystem, Options, SEEDS_MAX};
pub use outcome::MountReport;
pub use study::run;
pub use work::{Measure, Work};
