//! The ground every part of Remora stands on: [`Time`], seeded random [`Rng`] streams,
//! byte [`Rate`]s, the estimators [`RttEstimator`] and [`WindowedMin`], the [`Core`] trait and
//! the unit of fairness among addresses, the [host](host_of).
//!
//! Nothing here touches a clock, a socket or a thread; nothing outside this crate may be
//! imported but data structures.

mod core;
mod host;
mod rate;
mod rng;
mod rtt;
mod time;
mod windowed_min;

pub use crate::core::{Core, Path, Peer, Transmit};
pub use host::host_of;
pub use rate::Rate;
pub use rng::Rng;
pub use rtt::RttEstimator;
pub use time::Time;
pub use windowed_min::WindowedMin;
