//! What ATP is compared with, over QUIC's recovery and CUBIC (RFC 9002, RFC 9438): **stand-ins**
//! for a kernel's TCP, deterministic and in virtual time.
//!
//! * [`Tcp`]: the two schemes of ATP 02, section 4.2. A connection carries one ordered stream;
//!   the receiving program answers each object with a byte, and a send is over when that byte is
//!   back. When a connection is idle the next object is sent if less than half of its time has
//!   passed, and is discarded otherwise. One connection is "TCP", several are "M-TCP".
//! * [`Streams`]: what one would do today without ATP: one QUIC connection, a stream for each
//!   object with the object's class for its priority, reset at the deadline.

mod node;
mod streams;
mod tcp;
mod tls;

pub use node::SetUpError;
pub use streams::Streams;
pub use tcp::{Tcp, TcpConfig};
