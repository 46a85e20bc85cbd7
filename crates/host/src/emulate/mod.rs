//! The emulated channel in real time, under real programs: a network namespace for the base
//! and one for each mobile, joined by the channel core through TUN devices.
//!
//! * Every IP packet a station sends is one frame of the channel; what survives is handed to
//!   the kernel on the other side. No offloads: a frame is a packet of at most the MTU.
//! * The channel reckons in logical time from [`Emulator::begin`], so lateness delays single
//!   deliveries and never accumulates. It is recorded for every delivery, and a run in which
//!   any exceeds [`Setup::lateness_max`] is not [`valid`](Report::valid).
//! * The weather depends on the seed and the time since `begin` alone; what the channel did
//!   can be computed again from the journal ([`Journal::replay`]).
//! * Nothing outlives the emulator: namespaces have no names, devices are not persistent, and
//!   programs die with it ([`inside`]), after `kill -9` too.
//!
//! It needs the rights to make namespaces and TUN devices (root).

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
pub use report::{Journal, LaneReport, Lateness, Offer, Report};
pub use selftest::{Check, self_test};
pub use setup::{EmulateError, MOBILES_MAX, Setup};
pub use station::{DEVICE, Station};
