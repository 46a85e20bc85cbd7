//! `remora cp`: copies files to or from a server.
//!
//! Each file grows in a temporary file beside its destination and is renamed when all of it is on stable storage.
//! Read [`command`] first, which finds out what is copied to where; then [`transfer`] for files, [`tree`] for directories,
//! [`resume`] for interrupted copies, [`ui`] for flags, counts and the bar.

mod command;
mod created_objects;
pub(crate) mod flags;
pub(crate) mod resume;
pub(crate) mod transfer;
mod tree;
pub(crate) mod ui;

pub(crate) use command::run;
