//! The local ports and their connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use remora_atp::session::PublicKey;
use remora_atp::stream::{End, OpenError, Refused};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use super::session::GatewaySession;
use super::shared::{ForwardError, ForwardEvent, ForwardRoute, ForwardSettings, ForwardState, ForwardStatus};
use crate::carrier::{Carrier, StreamHandle, Tcp, pump};

/// Maximum number of events that wait; more are dropped.
const NEWS_MAX: usize = 256;
/// Pause of a listener when no descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Pause before a connection is opened again for which the session had no free stream.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Local ports, and the session that carries their connections. Dropping it ends all.
pub struct Forward {
    link: GatewaySession,
    shared: ForwardState,
    ports: Vec<(TcpListener, ForwardRoute)>,
    streams_max: usize,
    hear: mpsc::Receiver<ForwardEvent>,
}

impl Forward {
    /// Binds the ports and starts to connect. Local programs can connect at once; [`run`](Forward::run) reports
    /// whether the gateway answers.
    pub async fn bind(settings: ForwardSettings) -> Result<Forward, ForwardError> {
        let ForwardSettings { gateway, key, identity, routes, streams, hold } = settings;
        let mut ports = Vec::new();
        for route in routes {
            let addr = route.listen;
            let listener = TcpListener::bind(addr).await.map_err(|source| ForwardError::Listen { addr, source })?;
            ports.push((listener, route));
        }
        let link = GatewaySession::bind(gateway, key, identity, streams, hold).await?;
        let (tell, hear) = mpsc::channel(NEWS_MAX);
        let shared = ForwardState { current: watch::Sender::new(None), tell, report: Arc::default() };
        Ok(Forward { link, shared, ports, streams_max: streams.streams, hear })
    }

    /// The bound addresses, in the order of the routes.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(|(port, route)| port.local_addr().unwrap_or(route.listen)).collect()
    }

    /// This forward's key, which the gateway must admit.
    pub fn public_key(&self) -> PublicKey {
        self.link.public_key()
    }

    /// Returns a function that reports the state while it runs.
    pub fn watch(&self) -> impl Fn() -> ForwardStatus + Send + Sync + use<> {
        let shared = self.shared.clone();
        move || shared.report()
    }

    /// Runs until the gateway refuses this key or the future is dropped, which resets all connections;
    /// [`close`](Forward::close) then informs the gateway. Calls `tell` with events.
    pub async fn run(&mut self, mut tell: impl FnMut(ForwardEvent)) -> ForwardError {
        let room = Arc::new(Semaphore::new(self.streams_max));
        let mut ports = JoinSet::new();
        for (listener, route) in std::mem::take(&mut self.ports) {
            ports.spawn(listen(self.shared.clone(), listener, route, room.clone()));
        }
        let session = self.link.run(&self.shared);
        tokio::pin!(session);
        loop {
            tokio::select! {
                end = &mut session => return end,
                Some(news) = self.hear.recv() => tell(news),
            }
        }
    }

    /// Closes the session, within a second.
    pub async fn close(self) {
        self.shared.set_current(None);
        self.link.close().await;
    }
}

/// Accepts connections at a local port, one beyond the maximum; the rest wait in the system's queue.
async fn listen(shared: ForwardState, listener: TcpListener, route: ForwardRoute, room: Arc<Semaphore>) {
    let mut open = JoinSet::new();
    loop {
        let tcp = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((tcp, _)) => Tcp::new(tcp),
                Err(_) => {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
            Some(_) = open.join_next() => continue,
        };
        // It was closed before it was accepted.
        let Ok(tcp) = tcp else { continue };
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let (shared, route) = (shared.clone(), route.clone());
        open.spawn(async move {
            carry(&shared, &route, tcp).await;
            drop(permit);
        });
    }
}

/// Carries a connection to its end.
async fn carry(shared: &ForwardState, route: &ForwardRoute, tcp: Tcp) {
    let opened = tokio::select! {
        biased;
        // The local program has gone.
        () = tcp.broken() => return,
        opened = open(shared, route) => opened,
    };
    let end = match opened {
        Ok((carrier, stream)) => pump(&carrier, &stream, tcp, false).await,
        Err(end) => end,
    };
    if end != End::Done {
        shared.say(ForwardEvent::Failed { target: route.target.clone(), end });
    }
}

/// Waits for a session with room. Connections that were reset here keep their room until the other end knows, which
/// an outage delays.
async fn open(shared: &ForwardState, route: &ForwardRoute) -> Result<(Arc<Carrier>, Arc<StreamHandle>), End> {
    let mut current = shared.current.subscribe();
    loop {
        let found = current.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
        let carrier = found.ok_or(End::Refused(Refused::Failed))?;
        match carrier.open(route.target.clone(), route.terms) {
            Ok(stream) => return Ok((carrier, stream)),
            Err(OpenError::NoNumbers) if !carrier.is_over() => return Err(End::Refused(Refused::Failed)),
            // The session has ended, or room will become free.
            Err(OpenError::NoNumbers | OpenError::TooMany) => tokio::time::sleep(RETRY_PAUSE).await,
        }
    }
}
