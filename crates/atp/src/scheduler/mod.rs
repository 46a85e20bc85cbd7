//! The scheduler: which object gets the next packet, and which cannot be had in time
//! (ATP 02, sections 2.2, 2.3, 3.2 and 3.3).
//!
//! One scheduler serves one bottleneck and every destination behind it. It knows sizes, not
//! bytes: the session holds those, suspends [`Scheduler::pick`] before each packet, and reports what
//! it wrote and what was acknowledged. The law is `remora_base::Core`'s: mutate once, then drain
//! [`Scheduler::poll_upcall`], [`Scheduler::poll_reset`], then [`Scheduler::poll_timeout`].
//!
//! Each request ends in exactly one [`Upcall::Final`], also one that was never accepted.
//!
//! | module | what it decides |
//! |---|---|
//! | `queue` | the orders in which a queue's objects are kept |
//! | `plan` | `remora`: what fits, and what may go before a higher class |
//! | `paper` | `paper`: deadline safety and send intervals |
//! | `admit` | applies either to a queue: rejects, evicts, suspends, resumes |
//! | `fair` | shares between queues |
//! | `bounds` | the bandwidth upcall |

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

pub use config::{Config, Policy, Tuning};
pub use state::{Pick, Scheduler};
