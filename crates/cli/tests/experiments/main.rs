//! `remora lab`, `bench` and `load` from the outside.

mod bench;
#[path = "../common/mod.rs"]
mod common;
mod documents;
mod load;
mod wireless;
