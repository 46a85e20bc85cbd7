//! One connection: its QUIC state, its estimator, and the objects it sends and receives.
//!
//! Read `connection` (state, timers), then `transmit` (packets to send), `outbox` and `inbox` (objects), `frame` and
//! `feedback` (stamps and reports), `liveness` (handshake and idle timers).

mod connection;
mod feedback;
mod frame;
mod inbox;
mod liveness;
mod outbox;
mod transmit;

pub(crate) use connection::{NewPeer, Peer, PeerPhase};
pub(crate) use feedback::ObjectBytes;
pub(crate) use frame::DatagramMessage;
pub use inbox::OBJECT_COST;
pub(crate) use inbox::{ByteBudget, Inbox, StopReason, StreamRead, cost};
pub(crate) use outbox::Answer;
pub(crate) use transmit::segment;
