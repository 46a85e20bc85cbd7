//! Virtual-time world: clock, nodes, faults, checkers.
//!
//! [`World`] runs real cores, those of [`remora_server`] and [`remora_client`], on a network and
//! a disk that exist only here, in no time but their own: a minute takes milliseconds, and a
//! seed gives the same minute every time.
//!
//! * [`swarm`] draws worlds from seeds ([`scenario`]), has actors work in them ([`workload`])
//!   and asks the [`oracle`] what it thinks of the result. The program `swarm` runs thousands.
//! * [`script`] runs one small, precisely scripted world: a race from a paper.
//! * [`copy`] times one file across the emulated channel. The program `copy` prints a table.

mod agenda;
mod client_node;
pub mod copy;
mod describe;
pub mod disk;
pub mod net;
pub mod oracle;
pub mod scenario;
pub mod script;
mod server_node;
pub mod swarm;
mod trace;
mod transfer;
pub mod workload;
mod world;

pub use agenda::Agenda;
pub use client_node::{ClientNode, User};
pub use server_node::{Intake, ServerConfig, ServerNode, ServerStats};
pub use trace::{NodeId, Trace};
pub use world::{Fault, Stuck, World};
