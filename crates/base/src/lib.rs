//! Foundations of all crates: [`Time`], seeded random [`Rng`] streams, bit [`Rate`]s, the estimators
//! [`RttEstimator`] and [`WindowedMin`], the [`Core`] trait, the [text form](key_text) of keys,
//! and the [host](host_of) of an address.
//!
//! Nothing here uses a clock, a socket or a thread; dependencies outside this crate are data
//! structures only.

mod core;
pub mod key_text;
mod rate;
mod rng;
mod rtt;
mod time;
mod windowed_min;

pub use crate::core::{Core, Path, Peer, Transmit, host_of};
pub use rate::Rate;
pub use rng::Rng;
pub use rtt::RttEstimator;
pub use time::Time;
pub use windowed_min::WindowedMin;
