//! A world of a server, its clients and the network between them.
//!
//! `simulation` runs it. A `client_node` is a client core with its user, perhaps on a `slow_host` or
//! with the xids of a `timeout_cycle`; a
//! `server_node` is a server core with daemons, whose times come from `disk` or, for writes, `ufs`, and
//! whose flushes are in `group_commit`. `transfer` moves whole files for users. Read `simulation` first.

mod client_node;
pub mod disk;
mod group_commit;
mod server_node;
mod simulation;
pub(crate) mod slow_host;
mod timeout_cycle;
pub(crate) mod transfer;
pub mod ufs;

pub use client_node::{ClientNode, User};
pub use server_node::{Execution, Intake, ServerConfig, ServerNode, ServerStats};
pub use simulation::{Fault, Stuck, World};
pub use slow_host::SlowHost;
