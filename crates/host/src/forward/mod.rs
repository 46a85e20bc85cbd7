//! The mobile's side of a gateway: local TCP ports whose connections travel as ATP objects to a
//! [`Gateway`](crate::gateway::Gateway), which turns them into TCP again.
//!
//! During an outage or an address change, connections pause. They end when the gateway ends or has lost the
//! session; new connections then use the next session. A local program's connection is accepted before the gateway
//! has answered, and reset if the gateway refuses it.

mod listener;
mod session;
mod shared;

pub use listener::Forward;
pub use shared::{ForwardError, ForwardEvent, ForwardRoute, ForwardSettings, ForwardStatus};
