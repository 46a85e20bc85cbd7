//! ATP for C programs: the interface of ATP 02, Figure 2, over `remora_host::atp`.
//!
//! `include/atp.h` is the interface and its manual.
//!
//! ```text
//! C  --> ffi (pointers, panics stop here) --> calls --> Library: Table (a lock) + AtpEndpoint
//! C  <-- callbacks <-- the library's thread: finals, notices, bounds, received objects
//! ```
//!
//! - [`ffi`] has all `unsafe` code. It converts pointers to values and results to codes.
//! - [`calls`] implements the functions; [`table`] has their shared state by number, so that a wrong or stale
//!   number is an error and never a pointer.
//! - [`library`] is the thread, its start and its end.
//!
//! Bounds: objects in flight by the scheduler's settings; requests by `table::REQUESTS_MAX`; endpoints by
//! `table::PEERS_MAX`; received objects by the settings of `atp_init`.

mod calls;
mod code;
#[allow(unsafe_code, reason = "C's pointers come in here, and C's functions are called from here")]
mod ffi;
mod library;
mod table;
#[cfg(test)]
mod tests;
