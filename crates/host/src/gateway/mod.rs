//! The gateway: ATP objects on the mobiles' side, TCP on the other (ATP 02, section 2).
//!
//! A [`Gateway`] admits mobiles by key. It connects them to TCP targets from a list (see
//! [`forward`](crate::forward)), or carries their NFS calls to a server without ATP (`nfs`).
//!
//! ```text
//! mobile =====objects===== gateway -----TCP----- target
//!            comes and goes            stays
//! ```
//!
//! Bounded: mobiles, connections of each and of all, bytes of each connection, and the time for which a silent
//! mobile is held.

mod nfs;
mod report;
mod route;
mod service;

pub use nfs::NfsServer;
pub use report::GatewayStatus;
pub(crate) use report::add;
pub use service::{Gateway, GatewayEvent, GatewaySettings, Service};
pub(crate) use service::{IDLE_MAX, stream_object_max};
