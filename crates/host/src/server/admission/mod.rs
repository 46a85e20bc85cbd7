//! Admission: what may wait or run at the same time, for each host, each connection and all clients.
//!
//! [`request_size`] says how much memory a request takes, [`host_shares`] how much a host may hold, [`permits`] combines
//! both with the bounds of a connection, and [`eviction`] chooses the connection that gives way when all are taken.

pub(super) mod eviction;
mod host_shares;
pub(super) mod permits;
pub(super) mod request_size;
