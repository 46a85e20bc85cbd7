//! Tests of the contract on both file systems, of what each guarantees beyond it, and of their agreement.

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
