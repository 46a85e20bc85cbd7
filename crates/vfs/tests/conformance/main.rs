//! What every file system here must do, asked of the memory and of the local disk; then what
//! each does beyond, and whether the two agree.

mod agreement;
mod behaviour;
mod bench;
#[cfg(target_os = "linux")]
mod callers;
mod dedicated_thread;
#[cfg(target_os = "linux")]
mod deep;
mod listing;
#[cfg(target_os = "linux")]
mod local_disk;
mod memory;
#[cfg(target_os = "linux")]
mod several_names;
