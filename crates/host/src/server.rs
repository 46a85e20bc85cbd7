//! The NFS server on real sockets: several cores, a pool of executor threads, UDP, TCP and ATP.
//!
//! ```text
//!  UDP task ------\                                /-- executor thread --\
//!  TCP task -------> admission -> shard's core ---+--- executor thread ---+-> core -> reply path
//!  TCP task ------/    (waits)    (behind a lock)  \-- executor thread --/
//! ```
//!
//! Read in this order: `net` (sockets), `admission` (what may be in progress), `shards` (the cores), `executor`
//! (disk work), `lifecycle` (start and shutdown).
//!
//! **Shards.** Clients belong by address to one of 8 shards, each with a core behind a mutex that is held for the core's
//! short calls only: decoding, hashing, disk work, system calls and waiting happen outside. A core owned by one task would
//! cost each request two more switches between threads, which take longer (microseconds) than the core's calls (below
//! one). The thread that finishes a job also writes the reply to the socket, so a request changes threads once. The
//! exception: while the connection's task copies a large request from that socket, the kernel blocks writers, and the
//! task writes the reply afterwards.
//!
//! **Admission.** A request that reaches a core holds a permit for itself and for its bytes, reply included, until the
//! socket has taken the reply. A stream that waits for a permit is not read, so TCP slows the client down. A datagram
//! without a permit is dropped, and the client resends it. So a core never refuses a request for lack of capacity, and
//! everything that waits is bounded:
//!
//! | what                                  | bound                                          |
//! |---------------------------------------|------------------------------------------------|
//! | requests in progress                  | the core's `in_flight_max`, and by host        |
//! | their bytes, unsent replies included  | the core's `in_flight_bytes_max`; for a single |
//! |                                       | host a quarter of it                           |
//! | the same for one connection           | [`ServeLimits::connection_bytes_max`]               |
//! | half-received requests over 16 KiB    | [`ServeLimits::receive_bytes_max`] in all, by host  |
//! | peers that may use no export          | a sixteenth of each, together                  |
//! | anything else of a busy connection    | 40 KiB                                         |
//! | an idle connection                    | [`IDLE_CONNECTION_BYTES_MAX`]                  |
//! | a client that does not read replies   | [`ServeLimits::stall_max`]; 30 s while its address  |
//! |                                       | holds nearly all it may, 5 s while capacity is |
//! |                                       | short, 2 s while its host exceeds its share    |
//! | a request that arrives incompletely   | [`ServeLimits::partial_max`], plus 1 s for each KiB |
//!
//! **Memory.** A call is charged its bytes and the data that it asks for; once its reply exists, the reply's size. A call
//! that is refused for its address is charged its bytes. `admission::host_shares` divides the memory among hosts so that a
//! newcomer always finds some.
//!
//! **Objects.** Over ATP ([`Objects`]) each call and each reply is an object, with the urgency of the call. They pass the
//! same admission to the same cores. A client is disconnected if its waiting calls exceed the limit of half-received
//! requests; it reconnects and sends them again.
//!
//! **Groups.** With a [`GroupLookup`] a call whose user is not known waits beside the cores, with its permit, while one of a
//! few threads of their own looks the user up.
//!
//! **Datagrams** are answered from the address and port that they were sent to, even if the socket is bound to every
//! address (IP_PKTINFO).

mod access_sink;
mod admission;
mod executor;
mod groups;
mod lifecycle;
mod net;
mod options;
mod shards;
mod statistics;

pub use access_sink::AccessSink;
pub use executor::Queueing;
pub use groups::lookup::GroupLookup;
pub use lifecycle::descriptors::{Descriptors, raise_limit};
pub use lifecycle::serving::{Serving, Shutdown, Watch};
pub use options::{InheritedSockets, Objects, ServeLimits, ServerOptions, StartError};
pub use statistics::{BudgetUse, Budgets, ServerMetrics, ServerSnapshot, SocketStats};

/// Most user memory of an idle TCP connection, in bytes: its task, buffers and table entries. The test `serve_memory`
/// measures about two thirds of this with 10,000 connections.
pub const IDLE_CONNECTION_BYTES_MAX: usize = 4096;
