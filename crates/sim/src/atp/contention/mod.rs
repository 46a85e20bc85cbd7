//! Contention: several hosts share a bottleneck, each with a bulk transfer and, over ATP, urgent
//! objects with deadlines. The last host joins when the others have settled.
//!
//! Each host has a receiver of its own; only the medium is shared. Read `medium` (the shared link or
//! cell), `host` (a host and its load), then `run`.

mod host;
mod medium;
mod run;

pub use host::HostKind;
pub use medium::Place;
pub use run::{BIN, ContentionRun, END, HostRun, JOIN, SETTLED, Urgent, contend};
