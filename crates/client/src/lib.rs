//! The NFS client core: calls, their retransmission, the window and the block size.
//!
//! [`Client`] is a pure state machine ([`remora_base::Core`]): it turns [`Request`]s into
//! messages, sees to it that each is answered, and says so in [`Event`]s. One xid serves a
//! request for its whole life (DRC 89, section 7), so a server's duplicate request cache
//! knows every retransmission.
//!
//! How it retransmits is a [`RetryPolicy`]: the reference ports' exponential back-off, the
//! hybrid linear one of NFS/W 97, or the default, which learns from the link ([`adaptive`]).
//! [`Download`] and [`Upload`] move whole files through it.

pub mod adaptive;
mod block;
mod client;
mod config;
mod drain;
mod fragments;
mod loss;
mod pacer;
mod pauses;
mod pending;
mod probes;
mod remains;
mod request;
mod retry;
mod rtt;
mod transfer;
mod window;

pub use block::{BlockSize, FRAME_PAYLOAD, fragments};
pub use client::{Busy, Client, Event, Stats};
pub use config::{Config, Transport, WindowSize};
pub use request::{Answer, CallId, Failure, Request};
pub use retry::RetryPolicy;
pub use transfer::{Download, Piece, TransferError, Upload, Written};
