//! Simulated mounts: cache managers of several machines before one NFS server, in virtual time.
//!
//! `world` is the server, the mounts with their client cores, and the messages between them, which are delayed,
//! reordered, lost and repeated. `system_calls` turns system calls into requests of the kernel. [`scenario`] runs programs
//! that compare each result with a model of the files, and returns what the promises of SEMANTICS.md do not allow.
//! [`crash_scenario`] kills mounts that write back to their `disk`; `disk_cache` is what can be fetched again.
//! [`offline`] has machines that work without the server, and bring their changes to it afterwards.
//!
//! [`busy_link`] stacks one mount's cache on a client before the emulated channel, and times small operations while a
//! large file crosses it. [`walks`] runs programs that use many small files there.

pub mod busy_link;
mod client;
pub mod crash_scenario;
mod disk;
mod disk_cache;
pub mod offline;
pub mod scenario;
mod system_calls;
pub mod walks;
mod world;
