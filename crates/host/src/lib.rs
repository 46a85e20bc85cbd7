//! The real world around the cores: sockets, disk executor, clocks.
//!
//! [`server`] runs the NFS server core (with [`exports`] and [`portmap`]), [`client`] the client core; [`link`]
//! runs the two ends of a poor hop, [`atp`] the endpoints of objects, and [`forward`] and [`gateway`] TCP
//! connections over those. [`relay`] runs the emulated channel between UDP sockets, [`emulate`] between network
//! namespaces; [`load`] fills either. [`mount`] runs the cache core, [`fuse`] is its connection to the kernel.
//! [`handoff`] tells clients that the link goes away; [`reserved`] has the ports that servers trust, [`signals`] the
//! signals that stay ignored, [`zone`] the zones of link-local addresses, [`json`] output for programs. The cores decide; this crate moves bytes and
//! tells the time.

#![allow(missing_docs, reason = "used inside the workspace only")]

pub mod atp;
mod carrier;
pub mod client;
pub mod clock;
pub mod emulate;
pub mod exports;
pub mod forward;
pub mod fuse;
pub mod gateway;
pub mod handoff;
pub mod json;
mod key_file;
pub mod link;
pub mod load;
pub mod mount;
mod objects;
pub mod portmap;
pub mod relay;
pub mod reserved;
pub mod server;
pub mod signals;
mod standstill;
mod tcp;
pub mod zone;

pub use clock::Clock;
pub use key_file::KeyFileError;
