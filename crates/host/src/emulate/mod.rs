//! The emulated channel in real time, for real programs: a network namespace for the base and one for each mobile,
//! connected by the channel core through TUN devices.
//!
//! * Each IP packet of a station is one frame of the channel; frames that survive are given to the kernel of the
//!   other station. No offloads: a frame is at most one MTU.
//! * The channel uses logical time from [`Emulator::begin`], so lateness delays single deliveries and does not
//!   accumulate. A run in which any delivery exceeds [`EmulationSetup::lateness_max`] is not [`valid`](EmulationReport::valid).
//! * The weather depends only on the seed and the time since `begin`; [`Journal::replay`] computes a run again.
//! * Nothing outlives the emulator, even after `kill -9`: namespaces have no names, devices are not persistent, and
//!   programs die with it ([`inside`]).
//!
//! It needs root, to create namespaces and TUN devices.

mod congestion;
mod emulator;
pub mod inside;
mod namespace;
mod pcap;
mod report;
mod runner;
mod selftest;
mod setup;
mod station;

pub use congestion::leave_machine;
pub use emulator::Emulator;
pub use report::{EmulationReport, Journal, LaneReport, Lateness, Offer};
pub use selftest::{Check, self_test};
pub use setup::{DEVICE, EmulateError, EmulationSetup, MOBILES_MAX, Station};
