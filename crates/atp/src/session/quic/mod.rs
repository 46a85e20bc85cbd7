//! The QUIC library (`noq-proto`) as ATP uses it: its settings, its clock, its congestion controller.

mod clock;
mod config;
mod quic_cc;

pub(crate) use clock::{Clock, Epoch};
pub use config::SetupError;
pub(crate) use config::{DATAGRAMS, QuicConfig};
pub(crate) use quic_cc::{DatagramSizes, QuicCc, SendWindow};
