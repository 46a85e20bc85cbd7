//! The endpoint: connections, their scheduler, and the calls of the program and of the network.
//!
//! Read `state` (state and API), then `input` (datagrams, timeouts), `output` (datagrams to send), `admission` (which
//! connections a full endpoint keeps).

mod admission;
#[cfg(feature = "fuzzing")]
mod forgery;
mod input;
mod output;
mod state;

#[cfg(feature = "fuzzing")]
pub use forgery::{Forged, ForgedEnd};
pub use output::Batch;
pub use state::{ConnectError, Endpoint};
