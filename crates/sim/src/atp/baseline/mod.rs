//! Baselines of ATP over QUIC's recovery and CUBIC (RFC 9002, RFC 9438): **stand-ins** for a
//! kernel's TCP, deterministic and in virtual time.
//!
//! * [`Tcp`]: the two schemes of ATP 02, section 4.2. A connection carries one ordered stream; the
//!   receiving program answers each object with a byte, which completes the send. An idle
//!   connection sends the next object if less than half of its deadline has passed, and discards it
//!   otherwise. One connection is "TCP", several are "M-TCP".
//!   For contention it may use BBR instead of CUBIC.
//! * [`Streams`]: today's alternative to ATP: one QUIC connection, a stream for each object with
//!   the object's class as priority, reset at the deadline.

mod bbr;
mod node;
mod streams;
mod tcp;
mod tls;

pub use node::{Congestion, SetUpError};
pub use streams::Streams;
pub use tcp::{Tcp, TcpConfig};
