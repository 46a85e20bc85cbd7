//! The NFS server on real sockets: cores by client, a pool of disk threads, UDP and TCP.
//!
//! ```text
//!  UDP task ------\                               /-- executor thread --\
//!  TCP task -------> admission -> core (a lock) -+--- executor thread ---+-> core -> socket
//!  TCP task ------/    waits       of 8           \-- executor thread --/   (the same one)
//! ```
//!
//! **A lock for some, not an owner.** Clients fall by address into 8 shards, each with a core of
//! its own behind a mutex held for its own short calls only: reading messages and hashing them,
//! disk work, system calls and waiting all happen outside. So no lock of the core's is everybody's,
//! and what all share beside it (queues, lanes, groups that wait for a flush) is lock-free or
//! spread over many locks. A core owned by one task would cost each request two more hand-overs
//! between threads, and a hand-over (some microseconds) is dearer than the calls themselves
//! (below one). The thread that finished a job also writes the reply to the socket, so a request
//! changes threads once; but while the connection's task copies a large request out of that socket,
//! which keeps everybody else from it, the reply is left for that task to write.
//!
//! **Admission.** Before a request reaches the core it holds a `Permit` for itself and for
//! the bytes it keeps in memory, its reply included, until that reply is in the socket's
//! hands. Streams wait for their permit, and while one waits it is not read: TCP holds the
//! client back. Datagrams without a permit are dropped, which their clients know how to take.
//! So the core never has to turn a request away, and everything that waits is bounded:
//!
//! | what                                  | bound                                          |
//! |---------------------------------------|------------------------------------------------|
//! | requests being executed or answered   | the core's `in_flight_max`, and by host        |
//! | their bytes, unsent replies included  | the core's `in_flight_bytes_max`, a host that  |
//! |                                       | is alone a quarter of it                       |
//! | the same for one connection           | [`Limits::connection_bytes_max`]               |
//! | half-received requests over 16 KiB    | [`Limits::receive_bytes_max`] together, by host|
//! | peers that may use no export          | a sixteenth of each, all of them together      |
//! | anything else of a busy connection    | 40 KiB                                         |
//! | an idle connection                    | [`IDLE_CONNECTION_BYTES_MAX`]                  |
//! | a client that does not read replies   | [`Limits::stall_max`], 5 s while room is short |
//! |                                       | and 30 s while it is for its address; 2 s      |
//! |                                       | while its host is over its share               |
//! | a request that does not get complete  | [`Limits::partial_max`], 1 s more for each KiB |
//!
//! **Memory.** `shares` divides it among hosts so that a newcomer finds room, however much others hold. A call is
//! charged what it may need: its bytes and the data that it asks for. Once its reply is there, it is charged what that
//! holds. A call that is refused for its peer's address is charged its bytes. Of a large request 16 KiB must have
//! arrived before room is taken for it, all of it at once: connections with half a request each never wait for one
//! another.
//!
//! **Objects.** Over ATP ([`Objects`]) each call is an object and each reply one, as urgent as the
//! call; they pass the same admission into the same cores. A client that has more waiting for its
//! permits than half-received requests may take is sent away, and finds its calls again when it
//! comes back, as one that does not take its replies.
//!
//! **Datagrams** are answered from the address and port they were sent to, also where the
//! socket is bound to every address (IP_PKTINFO).

mod admission;
mod executor;
mod lifecycle;
mod net;
mod options;
mod shards;
mod statistics;

pub use executor::Queueing;
pub use lifecycle::descriptors::{Descriptors, raise_limit};
pub use lifecycle::serving::{Serving, Shutdown, Watch};
pub use options::{Limits, Objects, Options, StartError};
pub use statistics::{Snapshot, SocketStats};

/// Most user memory that a TCP connection takes while nothing is under way on it, in bytes:
/// its task, buffers, and its places in the tables. The test `serve_memory` measures it with
/// 10,000 of them: about two thirds of this.
pub const IDLE_CONNECTION_BYTES_MAX: usize = 4096;
