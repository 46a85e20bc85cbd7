//! The gateway: objects of ATP on the mobiles' side, TCP beyond (ATP 02, section 2).
//!
//! A [`Gateway`] lets mobiles in by their keys. It either connects them to TCP targets out of a list
//! (the other end of [`forward`](crate::forward)), or carries their NFS calls to a server that
//! knows nothing of ATP (`nfs`).
//!
//! ```text
//!  mobile =====objects===== gateway -----TCP----- target
//!            comes and goes            stays
//! ```
//!
//! Everything that waits is bounded: mobiles, connections of each and of all, bytes of each
//! connection, and how long a silent mobile's connections are held.

mod nfs;
mod route;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use remora_atp::session::{Bottleneck, Config, Guests, Identity, PeerId, PublicKey};
use remora_atp::stream::{self, Stats, Target};
use tokio::time::{MissedTickBehavior, interval};

use crate::atp::{AtpEndpoint, AtpError, Notice, Received, Settings as Endpoint};

pub use nfs::NfsServer;

/// How often it is looked whether mobiles have gone, and what their links carry.
const LOOK: Duration = Duration::from_secs(1);
/// How often the report is written anew.
const REPORT: Duration = Duration::from_millis(200);
/// A peer that is there is never idle for too long: its connections may have nothing to say.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// Bytes of an object beyond those of its connection.
const FRAME: u64 = 512;

/// What a gateway is to be.
#[derive(Debug)]
pub struct Settings {
    /// Where mobiles find it, over UDP.
    pub listen: SocketAddr,
    /// Who it is.
    pub identity: Identity,
    /// The mobiles that are let in.
    pub guests: Guests,
    /// Mobiles at once.
    pub mobiles_max: usize,
    /// How long a silent mobile is held, with its connections.
    pub hold: Duration,
    /// What it does for them.
    pub service: Service,
}

/// What a gateway does for mobiles.
#[derive(Clone, Debug)]
pub enum Service {
    /// It connects them to these targets, and to no others.
    Targets {
        /// Where they may go.
        targets: BTreeSet<Target>,
        /// Bounds for each mobile.
        streams: stream::Config,
        /// Connections of all mobiles together.
        connections_max: usize,
    },
    /// It carries their NFS calls to this server.
    Nfs(NfsServer),
}

/// What a gateway has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Mobiles connected.
    pub mobiles: usize,
    /// Connections of theirs that are not over, or to the NFS server.
    pub connections: usize,
    /// Connections, ends and bytes since the start; for NFS, `sent` and `received` count replies
    /// and calls.
    pub stats: Stats,
    /// Calls carried; 0 but for NFS.
    pub calls: u64,
    /// Mobiles turned away for their keys or for want of room.
    pub turned_away: u64,
    /// Mobiles sent away because they broke the rules.
    pub violations: u64,
}

/// What happens, for a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// A mobile is there.
    Came {
        /// Its key.
        key: PublicKey,
        /// Where it is.
        addr: SocketAddr,
    },
    /// It is there no more, and its connections are cut off.
    Left {
        /// Its key.
        key: PublicKey,
        /// Why, for people.
        why: String,
    },
}

/// A gateway; with it everything ends that it carries.
pub struct Gateway {
    endpoint: AtpEndpoint,
    service: Running,
    keys: PerMobile<PublicKey>,
    report: Arc<Mutex<Report>>,
}

enum Running {
    Targets(route::Router),
    Nfs(nfs::Relays),
}

impl Gateway {
    /// Opens the socket. Nothing is carried before [`run`](Gateway::run).
    pub fn bind(settings: Settings) -> Result<Gateway, AtpError> {
        let Settings { listen, identity, guests, mobiles_max, hold, service } = settings;
        let mut session = Config {
            guests,
            // Mobiles are behind links of their own.
            bottleneck: Bottleneck::PerPeer,
            peers: mobiles_max,
            hold,
            idle: IDLE_MAX,
            early: false,
            ..Config::default()
        };
        make_room(&mut session, &service);
        let settings = Endpoint { session, ..Endpoint::receiver(listen) };
        let service = match service {
            Service::Targets { targets, streams, connections_max } => {
                Running::Targets(route::Router::new(targets, streams, connections_max))
            }
            Service::Nfs(server) => Running::Nfs(nfs::Relays::new(server)),
        };
        let endpoint = AtpEndpoint::bind(settings, identity)?;
        Ok(Gateway { endpoint, service, keys: PerMobile::new(), report: Arc::default() })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.endpoint.local_addr()
    }

    /// The key that mobiles are to be told.
    pub fn public_key(&self) -> PublicKey {
        self.endpoint.public_key()
    }

    /// For looking at what it does while it runs.
    pub fn watch(&self) -> impl Fn() -> Report + Send + Sync + use<> {
        let report = self.report.clone();
        move || *report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries until the future is dropped; then all connections are cut off and mobiles told, for
    /// which [`close`](Gateway::close) waits. `tell` hears what happens.
    pub async fn run(&mut self, mut tell: impl FnMut(News)) -> AtpError {
        let mut look = interval(LOOK);
        let mut report = interval(REPORT);
        for ticks in [&mut look, &mut report] {
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        loop {
            tokio::select! {
                received = self.endpoint.recv() => match received {
                    Ok(received) => self.take(received),
                    Err(e) => return e,
                },
                notice = self.endpoint.notice() => match notice {
                    Ok(Notice::Up { peer, key, addr }) => {
                        self.keys.insert(peer, key);
                        tell(News::Came { key, addr });
                    }
                    Ok(Notice::Down { peer, why }) => {
                        self.clear();
                        // One that was not let in has not come either.
                        self.keys.remove(&peer).into_iter().for_each(|key| tell(News::Left { key, why: why.clone() }));
                    }
                    Ok(_) => {}
                    Err(e) => return e,
                },
                _ = look.tick() => {
                    self.clear();
                    self.look_ahead();
                }
                _ = report.tick() => self.publish(),
            }
        }
    }

    /// Tells the mobiles that it goes, for a second at most.
    pub async fn close(mut self) {
        match &mut self.service {
            Running::Targets(router) => router.end(),
            Running::Nfs(relays) => relays.end(),
        }
        self.publish();
        self.endpoint.close().await;
    }

    fn take(&mut self, received: Received) {
        let remote = received.from.clone();
        let fine = match &mut self.service {
            Running::Targets(router) => router.take(received),
            Running::Nfs(relays) => relays.take(received),
        };
        if !fine {
            self.report.lock().unwrap_or_else(PoisonError::into_inner).violations += 1;
            remote.close();
        }
    }

    fn clear(&mut self) {
        match &mut self.service {
            Running::Targets(router) => router.clear(),
            Running::Nfs(relays) => relays.clear(),
        }
    }

    fn look_ahead(&self) {
        if let Running::Targets(router) = &self.service {
            router.look_ahead();
        }
    }

    fn publish(&self) {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.turned_away = self.endpoint.counters().turned_away;
        match &self.service {
            Running::Targets(router) => router.report(&mut report),
            Running::Nfs(relays) => relays.report(&mut report),
        }
    }
}

/// The session's buffers hold what mobiles may send, so that nothing of it is ever refused: an
/// object that is acknowledged is an object that was taken.
fn make_room(session: &mut Config, service: &Service) {
    match service {
        Service::Targets { streams, connections_max, .. } => {
            let each = u64::from(streams.window) + FRAME * 256;
            session.object_max = stream_object_max();
            session.window = session.window.max(streams.window.saturating_mul(2));
            session.buffer_peer = session.buffer_peer.max(each * streams.streams as u64);
            session.buffer_total = session.buffer_total.max(each * *connections_max as u64).max(session.buffer_peer);
        }
        Service::Nfs(_) => {
            session.object_max = nfs::RECORD_MAX as u32;
            (session.buffer_peer, session.buffer_total) = nfs::BUFFERS;
        }
    }
}

/// A data frame, with room to spare.
pub(crate) const fn stream_object_max() -> u32 {
    64 << 10
}

/// Adds up what ended sessions did and what the others do.
pub(crate) fn add(all: &mut Stats, one: Stats) {
    all.asked += one.asked;
    all.refused += one.refused;
    all.done += one.done;
    all.reset += one.reset;
    all.sent += one.sent;
    all.received += one.received;
}

/// Something for each mobile that is connected.
type PerMobile<T> = BTreeMap<PeerId, T>;
