//! The scheduler: selects the object for each packet and gives up objects whose deadlines cannot be met (ATP 02,
//! sections 2.2, 2.3, 3.2 and 3.3).
//!
//! One scheduler serves one bottleneck and all destinations behind it. It stores sizes; the session stores the
//! bytes, calls [`Scheduler::pick`] before each packet, and reports bytes written and acknowledged. Use it like a
//! `remora_base::Core`: mutate once, drain [`Scheduler::poll_upcall`] and [`Scheduler::poll_reset`], then read
//! [`Scheduler::poll_timeout`].
//!
//! Each request ends in exactly one [`Upcall::Final`](crate::Upcall::Final), including those that are rejected.
//!
//! | module | subject |
//! |---|---|
//! | `state` | the requests and the calls of the session |
//! | `queue` | one queue: its objects in the orders that the policies need |
//! | `feasibility` | policy `remora`: which objects fit, and which may precede a higher class |
//! | `paper` | policy `paper`: deadline safety and send intervals |
//! | `admission` | applies either policy to a queue: rejects, evicts, suspends, resumes |
//! | `fair` | fair queueing between queues |
//! | `rate_bounds` | the bandwidth upcall |
//! | `warning` | the upcall while the forecast is unknown |

mod admission;
mod config;
mod fair;
mod feasibility;
mod paper;
mod queue;
mod rate_bounds;
mod state;
#[cfg(test)]
mod tests;
mod warning;

pub use config::{Config, Policy, Tuning};
pub use state::{Pick, Scheduler};
