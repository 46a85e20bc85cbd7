//! The load of DRC 89, sections 3 and 5: a client writes 1 MB into a file that it has truncated, to
//! a slow server.
//!
//! The client and server cores are the real ones. The calls are version 3's with FILE_SYNC, which
//! has the stability of every write of version 2. `load` runs it on the paper's machines, `writer`
//! is the writing process, `crowd` the load of many clients, `script` runs scripted worlds, and `example` the paper's Example 1. Read
//! them in this order.

mod crowd;
pub mod example;
mod load;
pub mod script;
mod writer;

pub use crowd::{Crowd, CrowdOutcome, run_crowd};
pub use load::{Client, Config, DrcError, Machine, NAME, NFSDS, Outcome, Timers, contents, prepare, run};
pub use writer::{BIODS, BLOCK, Process, Step, WRITES, is_intact, truncate_call, write_call};
