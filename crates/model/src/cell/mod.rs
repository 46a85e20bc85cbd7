//! One medium with its load: selects the formula and derives its input.
//!
//! `medium` computes the load and the delay of a packet, `spacing` describes arrivals that are not
//! Poisson, `polling` handles queues that take turns, and `copy` handles the packets of a file copy.
//! Read them in this order.

mod copy;
mod medium;
mod polling;
mod spacing;

pub(crate) use copy::{Occupancy, PacketDemand, ServerLoad};
pub(crate) use medium::{Cell, Port, Streams};
pub(crate) use spacing::Spacing;
