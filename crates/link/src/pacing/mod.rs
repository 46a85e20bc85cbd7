//! Departure times of frames, chosen so that no queue builds up in the device below.
//!
//! Read `pacer`, then its estimators: `delivery_rate`, `bdp_probe`, `standing_queue`. `outage_probe` schedules the
//! probes of a silent destination.

pub(crate) mod bdp_probe;
pub(crate) mod delivery_rate;
pub(crate) mod outage_probe;
pub(crate) mod pacer;
pub(crate) mod standing_queue;
