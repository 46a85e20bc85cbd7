//! Values from the command line, from files and from the state directory.

pub(crate) mod address;
pub(crate) mod duplex;
pub(crate) mod filter;
pub(crate) mod settings;
pub(crate) mod state_dir;
pub(crate) mod state_version;
pub(crate) mod text_file;
pub(crate) mod units;
