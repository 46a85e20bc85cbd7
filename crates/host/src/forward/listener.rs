//! The mobile's end of a gateway: local TCP ports whose connections are carried as objects of ATP
//! to a [`Gateway`](crate::gateway::Gateway), which makes TCP of them again.
//!
//! While the link is away, or the mobile's address changes, connections pause. They end when the
//! gateway does, or has forgotten us; then the next session is made, and new connections go over
//! that. A local program sees its connection accepted before the gateway has said whether it can
//! be had; if it cannot, it is reset.

mod link;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use remora_atp::session::{Identity, PublicKey, Refusal};
use remora_atp::stream::{Config, End, OpenError, Refused, Stats, Target, Terms};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use crate::atp::AtpError;
use crate::carrier::{Carrier, Door, Tcp, pump};
use link::Link;

/// News that nobody has read yet; more are dropped.
const NEWS_MAX: usize = 256;
/// How long a listener rests when the system has no descriptors left.
const REST: Duration = Duration::from_millis(200);
/// How often a connection for which the session had no room is tried again.
const AGAIN: Duration = Duration::from_millis(100);

/// What a forward is to be.
#[derive(Debug)]
pub struct Settings {
    /// The gateway, over UDP. Its name is looked up for each session, and again while nobody answers.
    pub gateway: Target,
    /// The gateway's key: who has another is not talked to.
    pub key: PublicKey,
    /// Who we are.
    pub identity: Identity,
    /// The local ports.
    pub routes: Vec<Route>,
    /// Bounds.
    pub streams: Config,
    /// How long a silent gateway is waited for before its connections count as lost.
    pub hold: Duration,
}

/// A local port, and where its connections go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// The local address; port 0 for any.
    pub listen: SocketAddr,
    /// What the gateway is to connect to.
    pub target: Target,
    /// How connections are carried.
    pub terms: Terms,
}

/// Why a forward does not start, or stops.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// A local port cannot be listened on.
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The gateway's name means nothing.
    #[error("cannot find the address of {host}: {source}")]
    Resolve {
        /// The name.
        host: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The gateway has another key than the one given, or does not let ours in.
    #[error(transparent)]
    Refused(Refusal),
    /// ATP cannot start.
    #[error(transparent)]
    Atp(#[from] AtpError),
}

/// What happens, for a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// The gateway answers.
    Up,
    /// Nothing is heard of it; everything is held.
    Silent,
    /// It is heard again.
    Heard,
    /// The session is over, and its connections are cut off.
    Down {
        /// Why, for people.
        why: String,
        /// How many.
        connections: usize,
    },
    /// A connection did not come about or was cut off.
    Failed {
        /// Where it was to go.
        target: Target,
        /// How it ended.
        end: End,
    },
}

/// What a forward has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Whether there is a session.
    pub up: bool,
    /// Sessions there have been.
    pub sessions: u64,
    /// Connections that are not over.
    pub connections: usize,
    /// Connections, ends and bytes since the start.
    pub stats: Stats,
}

/// Local ports, and the session that carries their connections. With it everything ends.
pub struct Forward {
    link: Link,
    shared: Shared,
    ports: Vec<(TcpListener, Route)>,
    streams_max: usize,
    hear: mpsc::Receiver<News>,
}

/// What the tasks of a forward have in common.
#[derive(Clone)]
struct Shared {
    /// The session that new connections go over.
    current: watch::Sender<Option<Arc<Carrier>>>,
    tell: mpsc::Sender<News>,
    report: Arc<Mutex<Report>>,
}

impl Forward {
    /// Opens the ports and turns to the gateway. Local programs can connect from now on; whether the
    /// gateway answers shows in [`run`](Forward::run).
    pub async fn bind(settings: Settings) -> Result<Forward, ForwardError> {
        let Settings { gateway, key, identity, routes, streams, hold } = settings;
        let mut ports = Vec::new();
        for route in routes {
            let addr = route.listen;
            let listener = TcpListener::bind(addr).await.map_err(|source| ForwardError::Listen { addr, source })?;
            ports.push((listener, route));
        }
        let link = Link::bind(gateway, key, identity, streams, hold).await?;
        let (tell, hear) = mpsc::channel(NEWS_MAX);
        let shared = Shared { current: watch::Sender::new(None), tell, report: Arc::default() };
        Ok(Forward { link, shared, ports, streams_max: streams.streams, hear })
    }

    /// Where it listens, in the order of the routes.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(|(port, route)| port.local_addr().unwrap_or(route.listen)).collect()
    }

    /// The key that the gateway is to let in.
    pub fn public_key(&self) -> PublicKey {
        self.link.public_key()
    }

    /// For looking at what it does while it runs.
    pub fn watch(&self) -> impl Fn() -> Report + Send + Sync + use<> {
        let shared = self.shared.clone();
        move || shared.report()
    }

    /// Carries until the gateway refuses us, or the future is dropped; then all connections are cut
    /// off and the gateway is told, for which [`close`](Forward::close) waits. `tell` hears what
    /// happens.
    pub async fn run(&mut self, mut tell: impl FnMut(News)) -> ForwardError {
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

    /// Tells the gateway that we go, for a second at most.
    pub async fn close(self) {
        self.shared.set_current(None);
        self.link.close().await;
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// News are for whoever reads them in time.
    fn say(&self, news: News) {
        let _ = self.tell.try_send(news);
    }

    /// New connections go over this session. What the last one carried is cut off, and counted.
    fn set_current(&self, next: Option<Arc<Carrier>>) {
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

    fn report(&self) -> Report {
        let mut report = *self.lock();
        if let Some(carrier) = &*self.current.borrow() {
            report.connections = carrier.connections();
            crate::gateway::add(&mut report.stats, carrier.stats());
        }
        report
    }
}

/// Takes connections at a local port, one more than there is room for; the others wait with the
/// system.
async fn listen(shared: Shared, listener: TcpListener, route: Route, room: Arc<Semaphore>) {
    let mut open = JoinSet::new();
    loop {
        let tcp = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((tcp, _)) => Tcp::new(tcp),
                Err(_) => {
                    tokio::time::sleep(REST).await;
                    continue;
                }
            },
            Some(_) = open.join_next() => continue,
        };
        // One that has gone already is none.
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
async fn carry(shared: &Shared, route: &Route, tcp: Tcp) {
    let opened = tokio::select! {
        biased;
        // Nobody is left to be carried.
        () = tcp.broken() => return,
        opened = open(shared, route) => opened,
    };
    let end = match opened {
        Ok((carrier, door)) => pump(&carrier, &door, tcp, false).await,
        Err(end) => end,
    };
    if end != End::Done {
        shared.say(News::Failed { target: route.target.clone(), end });
    }
}

/// Waits for a session, and for room in it: connections that were cut off here take theirs until the other end has
/// heard of that, which an outage delays.
async fn open(shared: &Shared, route: &Route) -> Result<(Arc<Carrier>, Arc<Door>), End> {
    let mut current = shared.current.subscribe();
    loop {
        let found = current.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
        let carrier = found.ok_or(End::Refused(Refused::Failed))?;
        match carrier.open(route.target.clone(), route.terms) {
            Ok(door) => return Ok((carrier, door)),
            Err(OpenError::NoNumbers) if !carrier.is_over() => return Err(End::Refused(Refused::Failed)),
            // The session has gone meanwhile, or there will be room.
            Err(OpenError::NoNumbers | OpenError::TooMany) => tokio::time::sleep(AGAIN).await,
        }
    }
}
