//! A mount of the kernel's FUSE: one `/dev/fuse` descriptor, its reader threads and its notifier.
//!
//! [`Connection`] hands requests over and writes replies; it decides nothing about files. `mount` attaches
//! and detaches it, `interrupt` judges which signals end a request. Read `connection` first.

mod connection;
mod control;
mod error;
mod interrupt;
mod mount;
pub(crate) mod mount_table;
mod notifier;
mod options;
mod outstanding;

pub use connection::Connection;
pub use control::abort;
pub use error::FuseError;
pub use interrupt::{InterruptWatch, has_ended, is_exiting, is_fatal, proc_file};
pub use mount::unmount;
pub use options::MountOptions;
