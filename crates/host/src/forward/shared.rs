//! Settings, events and shared state of a forward.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use remora_atp::session::{Identity, PublicKey, Refusal};
use remora_atp::stream::{Config, End, Stats, Target, Terms};
use tokio::sync::{mpsc, watch};

use crate::atp::AtpError;
use crate::carrier::Carrier;

/// Settings of a forward.
#[derive(Debug)]
pub struct ForwardSettings {
    /// The gateway's UDP address. Its name is resolved for each session, and again while it does not answer.
    pub gateway: Target,
    pub key: PublicKey,
    pub identity: Identity,
    /// The local ports and their targets.
    pub routes: Vec<ForwardRoute>,
    /// Bounds on connections and windows.
    pub streams: Config,
    /// Time after which a silent gateway's connections are lost.
    pub hold: Duration,
}

/// A local port and its target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForwardRoute {
    /// The local address; port 0 for any.
    pub listen: SocketAddr,
    /// The target that the gateway connects to.
    pub target: Target,
    /// Priority and deadline of its connections.
    pub terms: Terms,
}

/// Why a forward fails.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// A local port cannot be bound.
    #[error("cannot listen on {addr}: {source}")]
    Listen { addr: SocketAddr, source: std::io::Error },
    /// The gateway's name does not resolve.
    #[error("cannot find the address of {host}: {source}")]
    Resolve { host: String, source: std::io::Error },
    /// The gateway has another key, or does not admit this one.
    #[error(transparent)]
    Refused(Refusal),
    /// ATP cannot start.
    #[error(transparent)]
    Atp(#[from] AtpError),
}

/// An event for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ForwardEvent {
    /// The gateway answers.
    Up,
    /// The gateway is silent; everything is held.
    Silent,
    /// The gateway answers again.
    Heard,
    /// The session ended and its connections were reset.
    Down {
        why: String,
        /// Number of reset connections.
        connections: usize,
    },
    /// A connection was refused or reset.
    Failed {
        target: Target,
        /// How it ended.
        end: End,
    },
}

/// State and counters of a forward.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ForwardStatus {
    /// Whether a session is established.
    pub up: bool,
    /// Number of sessions so far.
    pub sessions: u64,
    /// Connections that have not ended.
    pub connections: usize,
    pub stats: Stats,
}

/// State shared by the tasks of a forward.
#[derive(Clone)]
pub(super) struct ForwardState {
    /// The session for new connections.
    pub(super) current: watch::Sender<Option<Arc<Carrier>>>,
    pub(super) tell: mpsc::Sender<ForwardEvent>,
    pub(super) report: Arc<Mutex<ForwardStatus>>,
}

impl ForwardState {
    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, ForwardStatus> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Events are dropped if they are not read in time.
    pub(super) fn say(&self, news: ForwardEvent) {
        let _ = self.tell.try_send(news);
    }

    /// Sets the session for new connections. Resets and counts those of the previous one.
    pub(super) fn set_current(&self, next: Option<Arc<Carrier>>) {
        let mut report = self.lock();
        report.up = next.is_some();
        report.sessions += u64::from(next.is_some());
        if let Some(last) = self.current.send_replace(next) {
            let cut = last.connections() as u64;
            let stats = last.stats();
            crate::gateway::add(&mut report.stats, Stats { reset: stats.reset + cut, ..stats });
            last.end();
        }
    }

    pub(super) fn report(&self) -> ForwardStatus {
        let mut report = *self.lock();
        if let Some(carrier) = &*self.current.borrow() {
            report.connections = carrier.connections();
            crate::gateway::add(&mut report.stats, carrier.stats());
        }
        report
    }
}
