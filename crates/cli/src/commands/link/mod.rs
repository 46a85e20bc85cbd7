//! `remora link`. [`settings`] combines flags and [`config_file`]; [`daemon`] runs an end.

pub(crate) mod command;
pub(crate) mod config_file;
pub(crate) mod daemon;
pub(crate) mod dashboard;
pub(crate) mod flags;
pub(crate) mod settings;
pub(crate) mod status;
