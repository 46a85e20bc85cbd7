//! The session with the gateway, made again whenever it ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use remora_atp::session::{Config as Session, Identity, PublicKey, Refusal};
use remora_atp::stream::{Config, Target};
use tokio::time::{MissedTickBehavior, interval};

use super::{ForwardError, News, Shared};
use crate::atp::{AtpEndpoint, AtpError, Notice, Settings};
use crate::carrier::Carrier;
use crate::gateway::{IDLE_MAX, stream_object_max};

/// How long to wait before a session is made again, at first and at most, when one ends after the
/// other.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How often it is looked what the link carries.
const LOOK: Duration = Duration::from_secs(1);

/// An endpoint of ours, and whom it talks to.
pub(super) struct Link {
    endpoint: AtpEndpoint,
    gateway: Target,
    key: PublicKey,
    streams: Config,
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
        let addrs = resolve(&gateway).await?;
        let settings = Settings { session, ..Settings::receiver(SocketAddr::from(([0u16; 8], 0))) };
        let endpoint = AtpEndpoint::bind_towards(&addrs, settings, identity)?;
        Ok(Link { endpoint, gateway, key, streams })
    }

    pub(super) fn public_key(&self) -> PublicKey {
        self.endpoint.public_key()
    }

    pub(super) async fn close(self) {
        self.endpoint.close().await;
    }

    /// Keeps a session until a key is in the way, which waiting does not mend.
    pub(super) async fn run(&self, shared: &Shared) -> ForwardError {
        let mut pause = RECONNECT.0;
        loop {
            // A name that is not found now may be found when the network is back.
            if let Ok(addrs) = resolve(&self.gateway).await {
                match self.session(shared, &addrs).await {
                    Ok(true) => pause = RECONNECT.0,
                    Ok(false) => {}
                    Err(e) => return e,
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RECONNECT.1);
        }
    }

    /// Makes a session and serves it until it ends; whether anything came over it.
    async fn session(&self, shared: &Shared, addrs: &[SocketAddr]) -> Result<bool, ForwardError> {
        let remote = match self.endpoint.connect_any(addrs, self.key).await {
            Ok(remote) => remote,
            Err(why @ (AtpError::Refused(_) | AtpError::Down(_))) => return over(shared, why, 0),
            Err(e) => return Err(e.into()),
        };
        let carrier = Carrier::opener(remote, self.streams);
        let heard = self.serve(shared, &carrier).await?;
        let connections = carrier.connections();
        shared.set_current(None);
        let why = carrier.remote().ended().unwrap_or(AtpError::Closed);
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

/// All addresses of the gateway, of which there is at least one.
async fn resolve(gateway: &Target) -> Result<Vec<SocketAddr>, ForwardError> {
    let failed = |source| ForwardError::Resolve { host: gateway.host().to_owned(), source };
    let found = tokio::net::lookup_host((gateway.host(), gateway.port())).await.map_err(failed)?;
    let found: Vec<_> = found.collect();
    if found.is_empty() { Err(failed(std::io::ErrorKind::NotFound.into())) } else { Ok(found) }
}
