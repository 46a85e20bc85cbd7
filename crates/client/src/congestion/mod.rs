//! Congestion control of file data: the window, the pacer, and the estimators that they use.
//!
//! Read [`window`] first; [`probe_rtt`] and [`duty_cycle`] are parts of it; [`pacer`] spaces what the window admits;
//! [`rtt`] and [`delivery_rate`] are the measurements.

pub(crate) mod delivery_rate;
pub(crate) mod duty_cycle;
pub(crate) mod pacer;
pub(crate) mod probe_rtt;
pub(crate) mod rtt;
pub(crate) mod window;
