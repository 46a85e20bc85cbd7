//! Machines that work without the server, and bring their changes to it afterwards.
//!
//! Each machine has a program with a directory of its own. The network between the machine and the server fails and works
//! again; the mount is killed, or its machine loses power, at any step. A program compares all results with a model of its
//! directory, and at the end the server's tree and what the other machines see of it. In a part of the worlds all machines
//! change one more directory, where conflicts arise.
//!
//! Read [`scenario`], `program` (the run of a seed, and the phases), `model` (trees and the steps that change them), `plan` (random steps),
//! `execute` (steps as system calls), `recovery` (what may have become of a tree after a crash), `shared_dir`.

mod execute;
mod model;
mod plan;
mod program;
mod recovery;
pub mod scenario;
mod shared_dir;

pub use program::run;
