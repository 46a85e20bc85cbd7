//! Virtual-time world: clock, nodes, faults, checkers.
//!
//! [`World`] runs real cores, those of [`remora_server`] and [`remora_client`], on a network and
//! a disk that exist only here, in no time but their own: a minute takes milliseconds, and a
//! seed gives the same minute every time.
//!
//! * [`swarm`] draws worlds from seeds ([`scenario`]), has actors work in them ([`workload`])
//!   and asks the [`oracle`] what it thinks of the result. The program `swarm` runs thousands.
//! * [`script`] runs one small, precisely scripted world: a race from a paper.
//! * [`copy`] times files across the emulated channel, from one mobile or several, with or without
//!   the link protocol. The program `copy` prints a table.
//! * [`small`] saves small files meanwhile. The program `small` prints how long that takes.
//! * [`testbed`] is that of the papers, slow [`hosts`] and all. The program `testbed` prints the
//!   papers' tables beside what it gives.
//! * [`drc`] is the load of DRC 89 on its two servers.
//! * [`atp`] is the experiments of ATP 02: its trace, workloads and baselines, and an oracle.
//! * [`atp_swarm`] is a swarm for ATP's session: endpoints on a link where all goes wrong. The
//!   program `atp_swarm` runs thousands.
//! * [`network`] runs the topologies that the analytic model solves, packet by packet.
//! * [`saturation`] loads the link protocol alone. The program `link` prints who gets how much.

#![allow(missing_docs, reason = "used inside the workspace only")]

mod agenda;
pub mod atp;
pub mod atp_swarm;
mod client_node;
pub mod copy;
mod describe;
pub mod disk;
pub mod drc;
mod flushes;
pub mod hosts;
pub mod net;
pub mod network;
pub mod oracle;
mod packet_log;
pub mod programs;
pub mod saturation;
pub mod scenario;
pub mod script;
mod server_node;
pub mod small;
pub mod swarm;
pub mod testbed;
mod trace;
mod transfer;
pub mod workload;
mod world;

pub use agenda::Agenda;
pub use client_node::{ClientNode, User};
pub use packet_log::{Packet, PacketKind};
pub use server_node::{Execution, Intake, ServerConfig, ServerNode, ServerStats};
pub use trace::{NodeId, Trace};
pub use world::{Fault, Stuck, World};
