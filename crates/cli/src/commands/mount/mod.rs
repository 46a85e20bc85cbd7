//! `remora mount`, `umount`, `status`, `top`, `release`, `offline`, `online` and `conflicts`: a server's directory as a
//! local one.
//!
//! [`flags`] has the command lines and [`options`] what `-o` takes; [`command`] mounts what [`reach`] finds,
//! [`background`] does so in another process, and [`unsent_data`] and [`disk_cache`] open the stores that survive both. [`known_mounts`] finds running mounts for
//! [`umount`], [`status`], [`top`], [`release`], [`offline`] and [`conflicts`].
//! [`mount_helper`] is the command line that mount(8) uses.

mod background;
pub(crate) mod command;
pub(crate) mod conflicts;
mod connection_notice;
mod disk_cache;
pub(crate) mod flags;
mod kernel_error;
pub(crate) mod known_mounts;
pub(crate) mod mount_helper;
pub(crate) mod offline;
mod options;
mod reach;
pub(crate) mod release;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod umount;
mod unsent_data;
mod wait_notice;
