//! `remora cp`: what it copies, how it resumes, and what it makes of damage.

#[path = "../common/mod.rs"]
mod common;
mod damaged;
mod flags;
mod partial_uploads;
mod paths;
mod recovery;
mod sparse;
mod trees;
