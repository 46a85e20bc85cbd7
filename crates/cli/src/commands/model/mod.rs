//! `remora model`. [`network_file`] reads a network; the other modules evaluate and print it.

pub(crate) mod calibrate;
pub(crate) mod check;
pub(crate) mod command;
pub(crate) mod environment;
pub(crate) mod example;
pub(crate) mod flags;
pub(crate) mod network_file;
pub(crate) mod network_writer;
pub(crate) mod serve;
pub(crate) mod simulate;
pub(crate) mod sweep;
pub(crate) mod tables;
