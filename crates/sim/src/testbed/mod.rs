//! The papers' testbed (NFS/W 95, section 3; NFS/W 97, section 4) as a configuration: an IBM
//! RS/6000 server, an RT-PC base station, a PS/2 and an RT-PC as mobiles, a radio of 1 Mbit/s
//! between them, and errors injected by the mobiles' drivers.
//!
//! The papers measure times but do not state the speeds of processors, disks and devices. The
//! constants below are one set that yields the papers' times without errors and then their
//! reductions; `docs/results/testbed.md` justifies each of them and has the results. [`paper`] has the
//! papers' results.

pub mod paper;
mod setup;

pub use setup::{BLOCK, Measured, Treatment, copy_config, measure, reduction};
