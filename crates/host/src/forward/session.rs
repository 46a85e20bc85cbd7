//! The session with the gateway, made again whenever it ends.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use remora_atp::session::{Config as Session, Identity, PublicKey, Refusal};
use remora_atp::stream::{Config, Target};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use super::{ForwardError, News, Shared};
use crate::atp::{AtpEndpoint, AtpError, Notice, Settings};
use crate::carrier::Carrier;
use crate::gateway::{IDLE_MAX, stream_object_max};

/// How long to wait before a session is made again, at first and at most, when one ends after the
/// other.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How often it is looked what the link carries.
const LOOK: Duration = Duration::from_secs(1);
/// How often the name of a gateway that does not answer is looked up again.
const LOOK_UP: Duration = Duration::from_secs(30);

/// An endpoint of ours, and whom it talks to.
pub(super) struct Link {
    endpoint: AtpEndpoint,
    settings: Settings,
    identity: Identity,
    gateway: Name,
    key: PublicKey,
    streams: Config,
    look_up: Duration,
}

/// The gateway's name, and how its addresses are found.
#[derive(Clone)]
struct Name {
    target: Target,
    find: fn(&Target) -> io::Result<Vec<SocketAddr>>,
}

impl Link {
    pub(super) async fn bind(
        gateway: Target,
        key: PublicKey,
        identity: Identity,
        streams: Config,
        hold: Duration,
    ) -> Result<Link, ForwardError> {
        let mut session = Session { hold, idle: IDLE_MAX, early: false, ..Session::default() };
        session.object_max = stream_object_max();
        session.window = session.window.max(streams.window.saturating_mul(2));
        let each = 2 * u64::from(streams.window);
        session.buffer_peer = session.buffer_peer.max(each * streams.streams as u64);
        session.buffer_total = session.buffer_total.max(session.buffer_peer);
        let gateway = Name { target: gateway, find };
        let addrs = gateway.resolve().await?;
        let settings = Settings { session, ..Settings::receiver(SocketAddr::from(([0u16; 8], 0))) };
        let endpoint = AtpEndpoint::bind_towards(&addrs, settings.clone(), identity.clone())?;
        Ok(Link { endpoint, settings, identity, gateway, key, streams, look_up: LOOK_UP })
    }

    pub(super) fn public_key(&self) -> PublicKey {
        self.endpoint.public_key()
    }

    pub(super) async fn close(self) {
        self.endpoint.close().await;
    }

    /// Keeps a session until a key is in the way, which waiting does not mend.
    pub(super) async fn run(&mut self, shared: &Shared) -> ForwardError {
        let mut pause = RECONNECT.0;
        loop {
            // A name that is not found now may be found when the network is back.
            if let Ok(addrs) = self.gateway.resolve().await {
                if !addrs.iter().all(|addr| self.endpoint.can_reach(*addr)) {
                    self.begin_anew(&addrs);
                }
                let ended = tokio::select! {
                    ended = self.session(shared, &addrs) => ended,
                    found = self.elsewhere(shared, &addrs) => {
                        self.begin_anew(&found);
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

    /// Waits until the gateway, which does not answer at `tried`, has an address that was not tried.
    async fn elsewhere(&self, shared: &Shared, tried: &[SocketAddr]) -> Vec<SocketAddr> {
        loop {
            tokio::time::sleep(self.look_up).await;
            if shared.current.borrow().is_some() {
                continue;
            }
            // If it is not found now, the attempt goes on.
            let Ok(found) = self.gateway.resolve().await else { continue };
            // It may have answered meanwhile.
            if shared.current.borrow().is_none() && found.iter().any(|addr| !tried.contains(addr)) {
                return found;
            }
        }
    }

    /// Gives up all attempts, with the endpoint that made them. The next may be towards another family of addresses.
    fn begin_anew(&mut self, addrs: &[SocketAddr]) {
        // Where the system gives no other one the one that is there has to do.
        if let Ok(endpoint) = AtpEndpoint::bind_towards(addrs, self.settings.clone(), self.identity.clone()) {
            self.endpoint = endpoint;
        }
    }

    /// Makes a session and serves it until it ends; whether anything came over it.
    async fn session(&self, shared: &Shared, addrs: &[SocketAddr]) -> Result<bool, ForwardError> {
        debug!(?addrs, "connecting to the gateway");
        let remote = match self.endpoint.connect_any(addrs, self.key).await {
            Ok(remote) => remote,
            Err(why @ (AtpError::Connect(_) | AtpError::Refused(_) | AtpError::Down(_))) => {
                return over(shared, why, 0);
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
        over(shared, why, connections).map(|_| heard)
    }

    /// Serves a session until it ends; whether anything came over it.
    async fn serve(&self, shared: &Shared, carrier: &Arc<Carrier>) -> Result<bool, ForwardError> {
        let remote = carrier.remote();
        let mut heard = false;
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while remote.ended().is_none() {
            tokio::select! {
                received = self.endpoint.recv() => {
                    let received = received?;
                    heard = true;
                    // Of the last session there may be something left.
                    if received.from.id() == remote.id() && carrier.handle(received.object).is_err() {
                        return Ok(false);
                    }
                }
                notice = self.endpoint.notice() => notify(shared, carrier, notice?),
                _ = look.tick() => carrier.look_ahead(),
            }
        }
        Ok(heard)
    }
}

/// A session is over, or did not come about: an error if a key is in the way, else it is told.
fn over(shared: &Shared, why: AtpError, connections: usize) -> Result<bool, ForwardError> {
    if let AtpError::Refused(why @ (Refusal::WrongKey | Refusal::NotAdmitted)) = why {
        return Err(ForwardError::Refused(why));
    }
    shared.say(News::Down { why: why.to_string(), connections });
    Ok(false)
}

/// Tells what happens. Connections go over a session from when the gateway has answered: until then
/// they wait, whatever becomes of the attempt.
fn notify(shared: &Shared, carrier: &Arc<Carrier>, notice: Notice) {
    let (about, news) = match notice {
        Notice::Up { peer, .. } => (peer, News::Up),
        Notice::Silent { peer } => (peer, News::Silent),
        Notice::Heard { peer } => (peer, News::Heard),
        _ => return,
    };
    if about != carrier.remote().id() {
        return;
    }
    if news == News::Up {
        shared.set_current(Some(carrier.clone()));
    }
    shared.say(news);
}

impl Name {
    /// All addresses that the gateway may have, of which there is at least one.
    async fn resolve(&self) -> Result<Vec<SocketAddr>, ForwardError> {
        let failed = |source| ForwardError::Resolve { host: self.target.host().to_owned(), source };
        let Name { target, find } = self.clone();
        let found = spawn_blocking(move || find(&target)).await.unwrap_or_else(|e| Err(io::Error::other(e)));
        let mut found = found.map_err(failed)?;
        // What name servers say of names that they block; it is nobody's.
        found.retain(|addr| !addr.ip().is_unspecified());
        let none = || io::Error::new(io::ErrorKind::NotFound, "it has no address that one can send to");
        if found.is_empty() { Err(failed(none())) } else { Ok(found) }
    }
}

/// What the system knows of a name.
fn find(target: &Target) -> io::Result<Vec<SocketAddr>> {
    (target.host(), target.port()).to_socket_addrs().map(Iterator::collect)
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
