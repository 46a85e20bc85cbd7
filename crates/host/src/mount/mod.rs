//! `remora mount`: the host side of the cache core.
//!
//! `running_mount` begins and ends a mount. `driver` moves requests, calls and replies between the kernel, the core
//! and the server; `caller_groups` adds the groups of the calling thread. `control_server` and `control_client`
//! are the two sides of a mount's control socket in the [`runtime_dir`], with the messages of [`report`]; `log_report`
//! makes those of the change log, `hoard` has the profile and the report of hoarding.
//! [`store`] keeps unsent data on this machine's disk, and `predictor_file` what the mount has learned of programs.
//! `offline_note` is what a mount without the server begins with. [`mount_point`] has the paths and the mount table,
//! [`daemon`] the way into the background.

mod caller_groups;
pub mod control_client;
mod control_server;
pub mod daemon;
mod driver;
mod hoard;
mod log_report;
pub mod mount_point;
mod offline_note;
mod predictor_file;
pub mod report;
mod running_mount;
pub mod runtime_dir;
pub mod store;

pub use driver::ConnectionChange;
pub use hoard::{HoardSource, ProfileSource};
pub use offline_note::OfflineNote;
pub use running_mount::{KeptWork, MountEnd, MountPlan, MountRoot, MountStartError, RunningMount, wall_at_zero};
