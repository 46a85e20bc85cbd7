//! The real world around the cores: sockets, disk executor, clocks.
//!
//! [`server`] runs the NFS server core, [`client`] the client core; [`relay`] runs the
//! emulated channel between UDP sockets. The cores decide; this crate moves bytes and tells
//! the time.

pub mod atp;
mod carrier;
pub mod client;
mod clock;
pub mod emulate;
pub mod exports;
pub mod forward;
pub mod gateway;
pub mod handoff;
pub mod link;
pub mod load;
mod objects;
pub mod portmap;
pub mod relay;
pub mod reserved;
pub mod server;
mod tcp;

pub use clock::Clock;
