//! `remora serve`: [`command`] starts and ends a server, [`exports`] holds what it shares, [`output`] prints.

pub(crate) mod check;
pub(crate) mod command;
pub(crate) mod exports;
pub(crate) mod flags;
pub(crate) mod keys;
pub(crate) mod output;
pub(crate) mod reload;
