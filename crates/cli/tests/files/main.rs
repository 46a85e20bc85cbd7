//! The commands on files, against `remora serve` and against servers unlike it.

mod atp;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod config;
mod known_servers;
mod odd_fs;
mod odd_names;
mod odd_servers;
