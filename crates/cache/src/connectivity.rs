//! States of the connection to the server: connected, weakly connected, disconnected (Coda).

use std::time::Duration;

use remora_base::Time;

use crate::call::CallId;
use crate::config::OfflinePolicy;

/// Silence from which the link counts as weak.
const WEAK_SILENCE: Duration = Duration::from_secs(2);

/// State of the connection to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Connectivity {
    #[default]
    Connected,
    /// The server is far, or silent for a moment.
    Weak,
    /// Cached objects are used without the server, and changes go to the log.
    Disconnected {
        /// By [`Cache::go_offline`](crate::Cache::go_offline); only [`Cache::go_online`](crate::Cache::go_online) ends it.
        is_asked: bool,
    },
}

/// The state, and the call that looks for the server.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    /// Disconnected, and whether a person asked for it.
    disconnected: Option<bool>,
    pub(crate) silence: Duration,
    /// The call that looks for the server, and when the next one is due.
    pub(crate) probe: Option<CallId>,
    pub(crate) probe_at: Option<Time>,
}

impl ConnectionState {
    pub(crate) fn new(policy: OfflinePolicy, now: Time) -> ConnectionState {
        let disconnected = policy.starts_offline.then_some(false);
        ConnectionState { disconnected, silence: Duration::ZERO, probe: None, probe_at: disconnected.map(|_| now) }
    }

    pub(crate) fn is_disconnected(&self) -> bool {
        self.disconnected.is_some()
    }

    /// Whether a person asked to be disconnected.
    pub(crate) fn is_asked(&self) -> bool {
        self.disconnected == Some(true)
    }

    pub(crate) fn set_disconnected(&mut self, asked: Option<bool>) {
        self.disconnected = asked;
    }

    pub(crate) fn connectivity(&self, is_far: bool) -> Connectivity {
        match self.disconnected {
            Some(is_asked) => Connectivity::Disconnected { is_asked },
            None if is_far || self.silence >= WEAK_SILENCE => Connectivity::Weak,
            None => Connectivity::Connected,
        }
    }
}
