//! Selective repeat ARQ between the two ends of a link (NFS/W 95, section 5; RFC 3366).
//!
//! Read `sender` (numbered chunks until their acknowledgement), `receiver` (order within a flow), then `flight` (the
//! fate of each transmission).

pub(crate) mod ack_delay;
pub(crate) mod ack_frequency;
pub(crate) mod flight;
pub(crate) mod receiver;
pub(crate) mod release_pacer;
pub(crate) mod reply_budget;
pub(crate) mod sender;
