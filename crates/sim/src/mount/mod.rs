//! Simulated mounts: cache managers of several machines before one NFS server, in virtual time.
//!
//! `world` is the server, the mounts, and the calls between them, which are delayed and reordered. `system_calls`
//! turns system calls into requests of the kernel. [`scenario`] runs programs that compare each result with a model of
//! the files, and returns what the promises of SEMANTICS.md do not allow.

pub mod scenario;
mod system_calls;
mod world;
