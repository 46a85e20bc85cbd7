//! ATP for C programs: the interface of ATP 02, Figure 2, over `remora_host::atp`.
//!
//! `include/atp.h` is the interface and its manual; what is here keeps what it says.
//!
//! ```text
//!  C  --> ffi (pointers, panics stop here) --> calls --> Library: Table (a lock) + AtpEndpoint
//!  C  <-- callbacks <-- the library's thread: finals, notices, bounds, received objects
//! ```
//!
//! - [`ffi`] alone has `unsafe` code. It turns pointers into values and results into codes.
//! - [`calls`] is what the functions do; [`table`] what they share, all of it by number, so that
//!   a number that is wrong or used twice is an error and never memory of another.
//! - [`library`] is the thread, its start and its end.
//!
//! Bounds: objects under way by the scheduler's settings; requests by `table::REQUESTS_MAX`;
//! endpoints by `table::PEERS_MAX`; received objects by what `atp_init` is told.

mod calls;
mod code;
#[allow(unsafe_code, reason = "C's pointers come in here, and C's functions are called from here")]
mod ffi;
mod library;
mod table;
#[cfg(test)]
mod tests;
