//! The session with the gateway, re-established whenever it ends.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use remora_atp::session::{Config as Session, Identity, PublicKey, Refusal};
use remora_atp::stream::{Config, Target};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use super::shared::{ForwardError, ForwardEvent, ForwardState};
use crate::atp::{AtpEndpoint, AtpError, AtpNotice, EndpointSettings};
use crate::carrier::Carrier;
use crate::gateway::{IDLE_MAX, stream_object_max};

/// First and longest pause before a session is re-established.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Interval at which the bandwidth forecast is read.
const FORECAST_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which the name of a silent gateway is resolved again.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(30);

/// A local endpoint and its gateway.
pub(super) struct GatewaySession {
    endpoint: AtpEndpoint,
    settings: EndpointSettings,
    identity: Identity,
    gateway: Name,
    key: PublicKey,
    streams: Config,
    resolve_interval: Duration,
}

/// The gateway's name, and its resolver.
#[derive(Clone)]
struct Name {
    target: Target,
    find: fn(&Target) -> io::Result<Vec<SocketAddr>>,
}

impl GatewaySession {
    pub(super) async fn bind(
        gateway: Target,
        key: PublicKey,
        identity: Identity,
        streams: Config,
        hold: Duration,
    ) -> Result<GatewaySession, ForwardError> {
        let mut session = Session { hold, idle: IDLE_MAX, early: false, ..Session::default() };
        session.object_max = stream_object_max();
        session.window = session.window.max(streams.window.saturating_mul(2));
        let each = 2 * u64::from(streams.window);
        session.buffer_peer = session.buffer_peer.max(each * streams.streams as u64);
        session.buffer_total = session.buffer_total.max(session.buffer_peer);
        let gateway = Name { target: gateway, find };
        let addrs = gateway.resolve().await?;
        let settings = EndpointSettings { session, ..EndpointSettings::receiver(SocketAddr::from(([0u16; 8], 0))) };
        let endpoint = AtpEndpoint::bind_towards(&addrs, settings.clone(), identity.clone())?;
        Ok(GatewaySession { endpoint, settings, identity, gateway, key, streams, resolve_interval: RESOLVE_INTERVAL })
    }

    pub(super) fn public_key(&self) -> PublicKey {
        self.endpoint.public_key()
    }

    pub(super) async fn close(self) {
        self.endpoint.close().await;
    }

    /// Keeps a session until a key mismatch, which waiting does not solve.
    pub(super) async fn run(&mut self, shared: &ForwardState) -> ForwardError {
        let mut pause = RECONNECT.0;
        loop {
            // A name may resolve when the network is back.
            if let Ok(addrs) = self.gateway.resolve().await {
                if !addrs.iter().all(|addr| self.endpoint.can_reach(*addr)) {
                    self.restart(&addrs);
                }
                let ended = tokio::select! {
                    ended = self.session(shared, &addrs) => ended,
                    found = self.other_addresses(shared, &addrs) => {
                        self.restart(&found);
                        Ok(false)
                    }
                };
                match ended {
                    Ok(true) => pause = RECONNECT.0,
                    Ok(false) => {}
                    Err(e) => return e,
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RECONNECT.1);
        }
    }

    /// Waits until the gateway, which does not answer at `tried`, has another address.
    async fn other_addresses(&self, shared: &ForwardState, tried: &[SocketAddr]) -> Vec<SocketAddr> {
        loop {
            tokio::time::sleep(self.resolve_interval).await;
            if shared.current.borrow().is_some() {
                continue;
            }
            // If the name does not resolve, the attempt goes on.
            let Ok(found) = self.gateway.resolve().await else { continue };
            // It may have answered meanwhile.
            if shared.current.borrow().is_none() && found.iter().any(|addr| !tried.contains(addr)) {
                return found;
            }
        }
    }

    /// Replaces the endpoint, which ends all attempts. The next may need another address family.
    fn restart(&mut self, addrs: &[SocketAddr]) {
        // If the system has no other endpoint, keep this one.
        if let Ok(endpoint) = AtpEndpoint::bind_towards(addrs, self.settings.clone(), self.identity.clone()) {
            self.endpoint = endpoint;
        }
    }

    /// Establishes a session and serves it until it ends; returns whether anything was received.
    async fn session(&self, shared: &ForwardState, addrs: &[SocketAddr]) -> Result<bool, ForwardError> {
        debug!(?addrs, "connecting to the gateway");
        let remote = match self.endpoint.connect_any(addrs, self.key).await {
            Ok(remote) => remote,
            Err(why @ (AtpError::Connect(_) | AtpError::Refused(_) | AtpError::Down(_))) => {
                return session_ended(shared, why, 0);
            }
            Err(e) => return Err(e.into()),
        };
        let carrier = Carrier::opener(remote, self.streams);
        let heard = self.serve(shared, &carrier).await?;
        let connections = carrier.connections();
        shared.set_current(None);
        let why = carrier.remote().ended().unwrap_or(AtpError::Closed);
        debug!(%why, connections, "session ended");
        carrier.remote().close();
        session_ended(shared, why, connections).map(|_| heard)
    }

    /// Serves a session until it ends; returns whether anything was received.
    async fn serve(&self, shared: &ForwardState, carrier: &Arc<Carrier>) -> Result<bool, ForwardError> {
        let remote = carrier.remote();
        let mut heard = false;
        let mut look = interval(FORECAST_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while remote.ended().is_none() {
            tokio::select! {
                received = self.endpoint.recv() => {
                    let received = received?;
                    heard = true;
                    // Objects of the previous session may remain.
                    if received.from.id() == remote.id() && carrier.handle(received.object).is_err() {
                        return Ok(false);
                    }
                }
                notice = self.endpoint.notice() => notify(shared, carrier, notice?),
                _ = look.tick() => carrier.update_forecast(),
            }
        }
        Ok(heard)
    }
}

/// Handles the end of a session: an error for a key mismatch, else an event.
fn session_ended(shared: &ForwardState, why: AtpError, connections: usize) -> Result<bool, ForwardError> {
    if let AtpError::Refused(why @ (Refusal::WrongKey | Refusal::NotAdmitted)) = why {
        return Err(ForwardError::Refused(why));
    }
    shared.say(ForwardEvent::Down { why: why.to_string(), connections });
    Ok(false)
}

/// Reports an event. Connections use a session once the gateway has answered; until then they wait.
fn notify(shared: &ForwardState, carrier: &Arc<Carrier>, notice: AtpNotice) {
    let (about, news) = match notice {
        AtpNotice::Up { peer, .. } => (peer, ForwardEvent::Up),
        AtpNotice::Silent { peer } => (peer, ForwardEvent::Silent),
        AtpNotice::Heard { peer } => (peer, ForwardEvent::Heard),
        _ => return,
    };
    if about != carrier.remote().id() {
        return;
    }
    if news == ForwardEvent::Up {
        shared.set_current(Some(carrier.clone()));
    }
    shared.say(news);
}

impl Name {
    /// All addresses of the gateway, at least one.
    async fn resolve(&self) -> Result<Vec<SocketAddr>, ForwardError> {
        let failed = |source| ForwardError::Resolve { host: self.target.host().to_owned(), source };
        let Name { target, find } = self.clone();
        let found = spawn_blocking(move || find(&target)).await.unwrap_or_else(|e| Err(io::Error::other(e)));
        let mut found = found.map_err(failed)?;
        // Name servers answer with it for blocked names.
        found.retain(|addr| !addr.ip().is_unspecified());
        let none = || io::Error::new(io::ErrorKind::NotFound, "it has no address that one can send to");
        if found.is_empty() { Err(failed(none())) } else { Ok(found) }
    }
}

/// Resolves a name with the system's resolver.
fn find(target: &Target) -> io::Result<Vec<SocketAddr>> {
    (target.host(), target.port()).to_socket_addrs().map(Iterator::collect)
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
