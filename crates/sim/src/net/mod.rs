//! The network between the clients and the server: each client has a datagram path (a [`Hop`] with
//! faults, or the [`Radio`] shared by all mobiles) and a stream that can break.
//!
//! Read `links`, then the paths `hop` and `radio`; below the radio is the `air`, beside it the
//! `background`. `addr` has addresses and streams.

mod addr;
mod air;
mod background;
mod hop;
mod links;
mod radio;

pub use addr::{StreamState, client_addr, client_of, server_addr};
pub use air::Air;
pub(crate) use background::START;
pub use background::{BackgroundLoad, Carried, carried_alone};
pub use hop::{Arrival, CallRules, Hop, NetStats, Rule, RuleAction};
pub use links::{Medium, Network};
pub use radio::Radio;
