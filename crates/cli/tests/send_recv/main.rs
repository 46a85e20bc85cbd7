//! `remora keys`, `send` and `recv` on loopback.

#[path = "../common/mod.rs"]
mod common;
mod partial_files;
mod transfers;
