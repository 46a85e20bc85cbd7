//! States of the connection to the server: connected, weakly connected, disconnected (Coda).

/// State of the connection to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Connectivity {
    #[default]
    Connected,
    /// The link is slow, or drops.
    Weak,
    /// Cached objects are used without the server, and changes go to the log.
    Disconnected {
        /// By [`Cache::go_offline`](crate::Cache::go_offline); only [`Cache::go_online`](crate::Cache::go_online) ends it.
        is_asked: bool,
    },
}
