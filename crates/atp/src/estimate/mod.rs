//! Bandwidth estimation of one path, sans I/O.
//!
//! [`Estimator`] wraps one of two algorithms: the one of ATP 02 (section 3.1, Figure 3; [`Kind::Paper`]), which
//! runs once a second, and Remora's ([`Kind::Rate`]), which measures every packet that the receiver reports. The
//! session reports packets sent, acknowledged and received. The estimator gives the scheduler a [`Forecast`], and
//! the session the departure time of the next packet ([`Gate`]), a window, and [`Probe`]s to send.
//!
//! All byte counts include the IP and UDP headers, which take the link's time too.
//!
//! Use it like a `remora_base::Core`: mutate once, drain the probes and the forecast, then read the timeout. `now`
//! never decreases.
//!
//! Read `interface` and `forecast` first, then `rate` (the default algorithm) with `dispersal`, `byte_time`,
//! `rate_bound`, `pacer`, `in_flight`, `blackout`, `outage`, `share` and `packet_pairs`; `paper` is the other algorithm.

mod blackout;
mod byte_time;
mod dispersal;
mod estimator;
mod forecast;
mod in_flight;
mod interface;
mod outage;
mod pacer;
mod packet_pairs;
mod paper;
mod rate;
mod rate_bound;
mod share;

pub use estimator::Estimator;
pub(crate) use forecast::combine;
pub use forecast::{Forecast, Knowledge};
pub(crate) use interface::ACK_DELAY_MAX;
pub use interface::{Arrival, Config, Demand, Direction, Gate, Kind, Probe, Stats};
pub use outage::{Outage, PastOutages};
