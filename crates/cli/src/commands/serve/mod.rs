//! `remora serve`. [`command`] starts and ends a server, [`plan`] plans its exports, [`open_exports`] opens them.

pub(crate) mod announcement;
pub(crate) mod check;
pub(crate) mod command;
pub(crate) mod console;
pub(crate) mod counters;
pub(crate) mod export_list;
pub(crate) mod exports_file;
pub(crate) mod flags;
pub(crate) mod keys;
pub(crate) mod notices;
pub(crate) mod open_exports;
pub(crate) mod plan;
pub(crate) mod reload;
pub(crate) mod share;
pub(crate) mod warnings;
