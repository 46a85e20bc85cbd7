//! Options of a session.

use remora_client::Config;

use crate::Clock;

/// How to mount and call a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The client core's settings; the transport is the target's.
    pub config: Config,
    /// Draws the first xid.
    pub seed: u64,
    /// What the core's time counts from.
    pub clock: Clock,
}
