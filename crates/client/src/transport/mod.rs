//! Transports, and what depends on them: block sizes, fixed retransmission timeouts, limits on the length of datagrams.

pub(crate) mod block_size;
pub(crate) mod kind;
pub(crate) mod pmtu_blackhole;
pub(crate) mod reassembly_budget;
pub(crate) mod retry_policy;
pub(crate) mod shorter_call;

pub use kind::Transport;
