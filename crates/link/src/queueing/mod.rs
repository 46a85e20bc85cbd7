//! Queues of waiting packets: FQ-CoDel within each destination (RFC 8290), airtime scheduling among destinations.
//!
//! Read `queue`, `flows`, `codel`, then `airtime_scheduler`.

pub(crate) mod airtime_scheduler;
pub(crate) mod codel;
pub(crate) mod flows;
pub(crate) mod queue;
pub(crate) mod stopped_clock;
