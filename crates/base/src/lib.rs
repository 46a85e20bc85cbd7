//! The ground every part of Remora stands on: [`Time`], seeded random [`Rng`] streams,
//! byte [`Rate`]s and the [`Core`] trait.
//!
//! Nothing here touches a clock, a socket or a thread; nothing outside this crate may be
//! imported but data structures.

mod core;
mod rate;
mod rng;
mod time;

pub use crate::core::{Core, Path, Peer, Transmit};
pub use rate::Rate;
pub use rng::Rng;
pub use time::Time;
