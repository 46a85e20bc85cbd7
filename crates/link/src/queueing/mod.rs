//! The packets that wait: FQ-CoDel inside each destination (RFC 8290), turns by airtime among destinations.
//!
//! Read `queue`, `flows`, `codel`, then `airtime_scheduler`.

pub(crate) mod airtime_scheduler;
pub(crate) mod codel;
pub(crate) mod flows;
pub(crate) mod queue;
pub(crate) mod stopped_clock;
