//! The NFS client core: calls, their retransmission, the window and the block size.
//!
//! [`Client`] is a pure state machine ([`remora_base::Core`]): it turns [`Request`]s into
//! messages, sees to it that each is answered, and says so in [`Event`]s. One xid serves a
//! request for its whole life (DRC 89, section 7), so a server's duplicate request cache
//! knows every retransmission.
//!
//! How it retransmits is a [`RetryPolicy`]: the reference ports' exponential back-off, the
//! hybrid linear one of NFS/W 97, or the default, which learns from the link (`loss`).
//! [`Download`] and [`Upload`] move whole files through it.

mod call;
mod call_table;
mod config;
mod congestion;
mod loss;
mod request;
mod transfer;
mod transport;

pub use call_table::client::{Busy, Client, Event, Stats};
pub use config::{Config, WindowSize};
pub use request::{Answer, CallId, Failure, Request};
pub use transfer::{Download, Piece, TransferError, Upload, Written};
pub use transport::Transport;
pub use transport::block_size::{BlockSize, FRAME_PAYLOAD, fragments};
pub use transport::retry_policy::RetryPolicy;
