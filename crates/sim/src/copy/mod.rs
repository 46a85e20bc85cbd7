//! File copies across the emulated channel, which the papers time (NFS/W 95, section 5; NFS/W 97,
//! section 5), in virtual time: one or several mobiles on one radio, with or without the link
//! protocol, with hand-offs.
//!
//! `config` describes a copy and `run` runs it; a `copier` is the user of each mobile's client, with the
//! extra calls of `remora cp` in `command`. `small` adds small files to a copy.

mod command;
mod config;
mod copier;
mod run;
pub mod small;

pub use config::{CopyConfig, CopyError, Direction, HandOff, Manner, SWITCH_NOTICE, link_on};
pub use run::{CopyResult, MobileCopy, run, run_traced};
