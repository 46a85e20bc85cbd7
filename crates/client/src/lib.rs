//! The NFS client core: call table, loss detection, congestion control, block sizes.
//!
//! [`Client`] is a pure state machine ([`remora_base::Core`]): it turns [`Request`]s into messages, retransmits them
//! until they are answered, and reports the results as [`ClientEvent`]s. A request keeps its xid over all retransmissions
//! (DRC 89, section 7), so that a server's duplicate request cache recognises them.
//!
//! The [`RetryPolicy`] is the exponential backoff of the reference ports, the hybrid linear one of NFS/W 97, or the
//! default, which infers losses (`loss`). [`Download`] and [`Upload`] move whole files.

#![allow(missing_docs, reason = "used inside the workspace only")]

mod call;
mod call_table;
mod config;
mod congestion;
mod loss;
mod request;
mod transfer;
mod transport;

pub use call_table::client::{Busy, Client, ClientEvent, ClientStats};
pub use config::{ClientConfig, WindowSize};
pub use request::{Answer, CallFailure, CallId, Request};
pub use transfer::{Download, Piece, TransferError, Upload, Written};
pub use transport::Transport;
pub use transport::block_size::{BlockSize, FRAME_PAYLOAD, fragments};
pub use transport::retry_policy::RetryPolicy;
pub use transport::shorter_call::{CallLimits, shorter};
