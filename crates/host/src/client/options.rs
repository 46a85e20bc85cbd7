//! Options of a session.

use remora_client::ClientConfig;

use crate::Clock;

/// How to mount and call a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Configuration of the client core; the target sets the transport.
    pub config: ClientConfig,
    /// Seed of the first xid.
    pub seed: u64,
    pub clock: Clock,
}
