//! Background load: paced UDP packets between two stations, like `udpsend` and `udprecv` of Copy 89, section 3.2,
//! with verified figures.
//!
//! * Due times are computed from the start (`plan`), so late wake-ups do not accumulate. Packets that could not be
//!   sent are counted, not made up for.
//! * Each packet has a number and a run id, so that the receiver counts losses, duplicates and reordering (`tally`)
//!   of several runs at once.
//! * At its end a run asks the receiver for its counters ([`Carried`]): the load is what was carried.
//!
//! Bounded: [`Plan::new`] has the limits; a receiver remembers [`RUNS_MAX`] runs. An answer is never longer than
//! its question, which prevents amplification.

mod datagram;
mod plan;
mod receive;
mod send;
mod tally;

pub use plan::{ANSWER_MAX, DURATION_MAX, Law, PACKETS_PER_S_MAX, PAYLOAD_MAX, PAYLOAD_MIN, Plan, PlanError, headers};
pub use receive::{RUNS_MAX, Run, Runs, listen, receive};
pub use send::{Sent, connect, send};
pub use tally::Carried;
