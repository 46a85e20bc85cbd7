//! One medium with its load: selects the formula and derives its input.
//!
//! `medium` has the load and the delay of a packet, `spacing` arrivals that are not Poisson, `polling`
//! queues that take turns, `copy` the packets of a file copy. Read them in this order.

mod copy;
mod medium;
mod polling;
mod spacing;

pub(crate) use copy::{Occupancy, PacketDemand, ServerLoad};
pub(crate) use medium::{Cell, Port, Streams};
pub(crate) use spacing::Spacing;
