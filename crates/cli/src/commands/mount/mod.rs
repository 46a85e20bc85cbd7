//! `remora mount`, `umount`, `status`, `top` and `release`: a server's directory as a local one.
//!
//! [`flags`] has the command lines and [`options`] what `-o` takes; [`command`] mounts, [`background`] does so in
//! another process, and [`unsent_data`] and [`disk_cache`] open the stores that survive both. [`known_mounts`] finds running mounts for
//! [`umount`], [`status`], [`top`] and [`release`].
//! [`mount_helper`] is the command line that mount(8) uses.

mod background;
pub(crate) mod command;
mod disk_cache;
pub(crate) mod flags;
mod kernel_error;
mod known_mounts;
pub(crate) mod mount_helper;
mod options;
pub(crate) mod release;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod umount;
mod unsent_data;
mod wait_notice;
