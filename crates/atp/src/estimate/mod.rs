//! What the link carries: bandwidth estimators, packet-agnostic and pure.
//!
//! Two of them stand behind one [`Estimator`]: the one of ATP 02 (section 3.1, Figure 3;
//! `Kind::Paper`), which looks once a second, and ours (`Kind::Rate`), which looks at every packet
//! that the receiver reports. The session tells them what it sent, what was acknowledged and when
//! the receiver got it; they tell the scheduler a [`Forecast`] and the session when the next
//! packet may leave ([`Gate`]), how much may be under way, and when to send a [`Probe`].
//!
//! All bytes are those of whole IP packets: it is they that take the link's time.
//!
//! The law is that of `remora_base::Core`: mutate once, then drain the probes and the forecast,
//! then ask for the timeout. `now` never goes backwards.

mod blackout;
mod byte_time;
mod dispersal;
mod estimator;
mod forecast;
mod in_flight;
mod interface;
mod pacer;
mod packet_pairs;
mod paper;
mod rate;
mod rate_bound;

pub use estimator::Estimator;
pub(crate) use forecast::combine;
pub use forecast::{Forecast, Knowledge};
pub(crate) use interface::ACK_DELAY_MAX;
pub use interface::{Arrival, Config, Demand, Direction, Gate, Kind, Probe, Stats};
