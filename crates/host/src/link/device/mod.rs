//! The network device of an end, and what the kernel does with packets before and after it.
//!
//! Read [`tun`] first, the device with its addresses and routes, then [`link_monitor`] (it was set down), [`forwarding`]
//! (the kernel forwards for other hosts) and [`classifier`] (destination, flow and class of a packet).

mod classifier;
mod forwarding;
mod link_monitor;
mod tun;

pub(super) use classifier::{Classifier, PacketHeaders, addresses};
pub(super) use link_monitor::DeviceChange;
pub(super) use tun::Device;
