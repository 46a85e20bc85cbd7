//! Connections to a server: over UDP, TCP and ATP.
//!
//! [`connection`] is a client core with its driver, [`driver`] or [`atp`]; [`shared_core`] is what the two share with
//! sessions. [`connect`] makes sockets, [`reconnect`] makes them again, [`roaming`] follows the machine to other
//! networks. [`parallel_streams`] carry file data where single frames are lost; [`jukebox_retry`] repeats requests that
//! a server puts off.

pub(crate) mod atp;
pub(crate) mod connect;
pub(crate) mod connection;
pub(crate) mod driver;
pub(crate) mod jukebox_retry;
pub(crate) mod parallel_streams;
pub(crate) mod reconnect;
pub(crate) mod roaming;
pub(crate) mod shared_core;
