//! Simulated worlds in virtual time: clock, nodes, faults, checkers.
//!
//! A [`World`] runs the real cores of [`remora_server`] and [`remora_client`] on a simulated
//! network and disk: a minute takes milliseconds, and a seed reproduces a run exactly.
//!
//! * `events`, [`net`] and [`world`] are the parts of a world. Read them first.
//! * [`swarm`] draws worlds from seeds, and an oracle checks the results. The program `swarm` runs
//!   thousands.
//! * [`copy`] times file copies across the emulated channel, with one or several mobiles, with or
//!   without the link protocol; [`copy::small`] saves small files meanwhile. The programs `copy`
//!   and `small` print tables.
//! * [`testbed`] is the papers' testbed with its slow hosts. The program `testbed` compares it with
//!   the papers' tables.
//! * [`drc`] has the load and the examples of DRC 89.
//! * [`atp`] has the experiments of ATP 02: trace, workloads, baselines, oracle. [`atp_swarm`] is a
//!   swarm of ATP endpoints; the program `atp_swarm` runs thousands.
//! * [`mount`] runs cache managers of several machines before one server.
//! * [`network`] simulates the topologies of the analytic model, packet by packet.
//! * [`saturation`] saturates the link protocol. The program `link` prints the shares.

#![allow(missing_docs, reason = "used inside the workspace only")]

pub mod atp;
pub mod atp_swarm;
pub mod copy;
pub mod drc;
mod events;
pub mod mount;
pub mod net;
pub mod network;
pub mod programs;
pub mod saturation;
pub mod swarm;
pub mod testbed;
pub mod world;

pub use events::{EventQueue, NodeId, Packet, PacketKind, Trace};
pub use world::{ClientNode, Execution, Fault, Intake, ServerConfig, ServerNode, ServerStats, Stuck, User, World};
