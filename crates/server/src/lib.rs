//! NFS server core: RPC messages in, file operations out, replies back.
//!
//! [`Server`] is a [`Core`](remora_base::Core): it takes whole messages, emits an [`Execute`] for each job that may block
//! on a disk, and takes the answers by [`Server::complete`]. It serves NFSv3 (RFC 1813, all 22 procedures), NFSACL v3
//! beside it, NFSv2 (RFC 1094, all 18) and MOUNT v3 and v1 on one port, over datagrams and streams. The duplicate request [`cache`] (DRC 89)
//! keeps a retransmitted request from being executed twice.
//!
//! ```text
//! bytes -> dispatch -> cache -> Execute{ticket, job}      (events)
//! bytes <- reply   <- cache <- complete(ticket, answer)   (job.start() and its flushes, or job.run(), on an executor)
//! ```

#![allow(missing_docs, reason = "used inside the workspace only")]

mod access;
mod access_log;
mod auth;
pub mod cache;
mod config;
mod connections;
mod cookies;
mod dispatch;
mod durability;
mod exec;
mod exports;
mod handle;
mod in_flight;
mod intake;
mod job;
mod limits;
mod mounts;
mod network;
mod paths;
mod portmap;
mod programs;
mod requests;
mod server;
mod stats;
mod v2;
mod validation;
mod version;

pub use access::{ANONYMOUS, Access, AccessError, Clients, RESERVED_PORTS, Rule, Squash, Terms};
pub use access_log::AccessRecord;
pub use config::Config;
pub use durability::Durability;
pub use exports::{Export, Exports, ExportsError};
pub use intake::{Intake, Message};
pub use job::{Answer, Execute, Job, Started, Ticket, Unflushed};
pub use limits::Limits;
pub use network::Network;
pub use paths::plain_path;
pub use programs::Programs;
pub use requests::{LATENCY_BOUNDS, LatencyHistogram, ProcedureStats, RequestStats, StatusCount};
pub use server::{JOB_OVERHEAD, Server};
pub use stats::Stats;
pub use version::Version;
