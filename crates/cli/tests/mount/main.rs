//! `remora mount` of `remora serve`: a real mount, with programs that use it. Takes root and `/dev/fuse`.

#[path = "../common/mod.rs"]
mod common;
mod disk_cache;
mod files;
mod hoard;
mod interrupts;
mod kit;
mod offline;
mod outage;
mod reference;
mod two_machines;
mod usage;
mod write_back;
