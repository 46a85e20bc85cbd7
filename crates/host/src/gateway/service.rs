//! The gateway and its settings.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use remora_atp::session::{Bottleneck, Config, Guests, Identity, PublicKey};
use remora_atp::stream::{self, Target};
use tokio::time::{MissedTickBehavior, interval};

use super::nfs::{self, NfsServer};
use super::report::{GatewayStatus, PerMobile};
use super::route;
use crate::atp::{AtpEndpoint, AtpError, AtpNotice, EndpointSettings as Endpoint, Received};

/// Interval at which sessions and forecasts are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which the report is updated.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);
/// Idle timeout of sessions: practically none, because quiet connections are normal.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// Memory of an object beyond its bytes.
const FRAME: u64 = 512;

/// Settings of a gateway.
#[derive(Debug)]
pub struct GatewaySettings {
    /// The UDP address to listen on.
    pub listen: SocketAddr,
    pub identity: Identity,
    /// The keys of mobiles to admit.
    pub guests: Guests,
    /// Maximum number of mobiles.
    pub mobiles_max: usize,
    /// Time after which a silent mobile and its connections are lost.
    pub hold: Duration,
    pub service: Service,
}

/// Service of a gateway.
#[derive(Clone, Debug)]
pub enum Service {
    /// Connects mobiles to these targets only.
    Targets {
        targets: BTreeSet<Target>,
        /// Bounds for each mobile.
        streams: stream::Config,
        /// Maximum connections of all mobiles.
        connections_max: usize,
    },
    /// Carries their NFS calls to this server.
    Nfs(NfsServer),
}

/// An event for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GatewayEvent {
    /// A mobile has connected.
    Came { key: PublicKey, addr: SocketAddr },
    /// A mobile has left; its connections were reset.
    Left { key: PublicKey, why: String },
}

/// A gateway. Dropping it ends all connections.
pub struct Gateway {
    endpoint: AtpEndpoint,
    service: Running,
    keys: PerMobile<PublicKey>,
    report: Arc<Mutex<GatewayStatus>>,
}

enum Running {
    Targets(route::TargetRouter),
    Nfs(nfs::Relays),
}

impl Gateway {
    /// Binds the socket. Nothing is carried before [`run`](Gateway::run).
    pub fn bind(settings: GatewaySettings) -> Result<Gateway, AtpError> {
        let GatewaySettings { listen, identity, guests, mobiles_max, hold, service } = settings;
        let mut session = Config {
            guests,
            // Each mobile has its own link.
            bottleneck: Bottleneck::PerPeer,
            peers: mobiles_max,
            hold,
            idle: IDLE_MAX,
            early: false,
            ..Config::default()
        };
        reserve_buffers(&mut session, &service);
        let settings = Endpoint { session, ..Endpoint::receiver(listen) };
        let service = match service {
            Service::Targets { targets, streams, connections_max } => {
                Running::Targets(route::TargetRouter::new(targets, streams, connections_max))
            }
            Service::Nfs(server) => Running::Nfs(nfs::Relays::new(server)),
        };
        let endpoint = AtpEndpoint::bind(settings, identity)?;
        Ok(Gateway { endpoint, service, keys: PerMobile::new(), report: Arc::default() })
    }

    /// The bound address.
    pub fn local_addr(&self) -> SocketAddr {
        self.endpoint.local_addr()
    }

    /// The gateway's public key, which mobiles pin.
    pub fn public_key(&self) -> PublicKey {
        self.endpoint.public_key()
    }

    /// Returns a function that reports the state while it runs.
    pub fn watch(&self) -> impl Fn() -> GatewayStatus + Send + Sync + use<> {
        let report = self.report.clone();
        move || *report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs until the future is dropped, which resets all connections; [`close`](Gateway::close) then informs the
    /// mobiles. Calls `tell` with events.
    pub async fn run(&mut self, mut tell: impl FnMut(GatewayEvent)) -> AtpError {
        let mut look = interval(CHECK_INTERVAL);
        let mut report = interval(REPORT_INTERVAL);
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
                    Ok(AtpNotice::Up { peer, key, addr }) => {
                        self.keys.insert(peer, key);
                        tell(GatewayEvent::Came { key, addr });
                    }
                    Ok(AtpNotice::Down { peer, why }) => {
                        self.clear();
                        // A mobile that was not admitted is not reported.
                        self.keys.remove(&peer).into_iter().for_each(|key| tell(GatewayEvent::Left { key, why: why.clone() }));
                    }
                    Ok(_) => {}
                    Err(e) => return e,
                },
                _ = look.tick() => {
                    self.clear();
                    self.update_forecast();
                }
                _ = report.tick() => self.publish(),
            }
        }
    }

    /// Closes all sessions, within a second.
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

    fn update_forecast(&self) {
        if let Running::Targets(router) = &self.service {
            router.update_forecast();
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

/// Sizes the session's buffers for all that mobiles may send, so that no object is ever refused: a delivered object
/// was accepted.
fn reserve_buffers(session: &mut Config, service: &Service) {
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

/// Maximum size of a data frame, with a margin.
pub(crate) const fn stream_object_max() -> u32 {
    64 << 10
}
