//! Connections of mobiles to TCP targets.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use remora_atp::stream::{Config, End, Refused, Stats, Target};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::debug;

use super::report::{GatewayStatus, PerMobile, add};
use crate::atp::Received;
use crate::carrier::{Carrier, StreamRequest, Tcp, pump};
use crate::clock::timeout;

/// Time limit for a connection to a target.
const CONNECT_MAX: Duration = Duration::from_secs(20);

/// The mobiles' sessions and their allowed targets.
pub(super) struct TargetRouter {
    targets: Arc<BTreeSet<Target>>,
    config: Config,
    /// Permits for the connections of all mobiles.
    connections: Arc<Semaphore>,
    mobiles: PerMobile<Arc<Carrier>>,
    /// Counters of mobiles that have left.
    past: Stats,
}

impl TargetRouter {
    pub(super) fn new(targets: BTreeSet<Target>, config: Config, connections_max: usize) -> TargetRouter {
        let connections = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
        TargetRouter {
            targets: Arc::new(targets),
            config,
            connections,
            mobiles: PerMobile::new(),
            past: Stats::default(),
        }
    }

    /// Handles an object; false on a protocol violation.
    pub(super) fn take(&mut self, received: Received) -> bool {
        let Received { from, object, .. } = received;
        let carrier = match self.mobiles.entry(from.id()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) if from.ended().is_none() => place.insert(Carrier::acceptor(from, self.config)),
            // The session has ended, so the object is dropped.
            Entry::Vacant(_) => return true,
        };
        let carrier = carrier.clone();
        let Ok(asks) = carrier.handle(object) else { return false };
        for ask in asks {
            let carrier = carrier.clone();
            match self.admit(&ask.target).inspect_err(|why| debug!(to = %ask.target, ?why, "refused")) {
                Ok(permit) => drop(tokio::spawn(serve(carrier, ask, permit))),
                Err(why) => carrier.refuse(&ask.stream, why),
            }
        }
        true
    }

    fn admit(&self, target: &Target) -> Result<OwnedSemaphorePermit, Refused> {
        if !self.targets.contains(target) {
            return Err(Refused::NotAllowed);
        }
        self.connections.clone().try_acquire_owned().map_err(|_| Refused::Full)
    }

    /// Removes mobiles that have left.
    pub(super) fn clear(&mut self) {
        let past = &mut self.past;
        self.mobiles.retain(|_, carrier| {
            let is_here = carrier.remote().ended().is_none();
            if !is_here {
                settle(past, carrier);
            }
            is_here
        });
    }

    /// Resets all connections.
    pub(super) fn end(&mut self) {
        let past = &mut self.past;
        std::mem::take(&mut self.mobiles).values().for_each(|carrier| settle(past, carrier));
    }

    pub(super) fn update_forecast(&self) {
        self.mobiles.values().for_each(Carrier::update_forecast);
    }

    pub(super) fn report(&self, report: &mut GatewayStatus) {
        report.mobiles = self.mobiles.len();
        report.connections = self.mobiles.values().map(|c| c.connections()).sum();
        report.stats = self.past;
        self.mobiles.values().for_each(|c| add(&mut report.stats, c.stats()));
    }
}

impl Drop for TargetRouter {
    fn drop(&mut self) {
        self.end();
    }
}

/// Resets and counts the connections of a session that ended.
fn settle(past: &mut Stats, carrier: &Carrier) {
    let cut = carrier.connections() as u64;
    let stats = carrier.stats();
    add(past, Stats { reset: stats.reset + cut, ..stats });
    carrier.end();
}

/// Connects to the target and carries the connection to its end.
async fn serve(carrier: Arc<Carrier>, ask: StreamRequest, permit: OwnedSemaphorePermit) {
    let StreamRequest { target, stream } = ask;
    let connected = tokio::select! {
        connected = connect(&target) => connected,
        // The mobile has closed it.
        _ = stream.ended() => return,
    };
    match connected {
        Ok(tcp) => {
            debug!(to = %target, "connected");
            let end: End = pump(&carrier, &stream, tcp, true).await;
            debug!(to = %target, ?end, "connection ended");
        }
        Err(why) => {
            debug!(to = %target, ?why, "cannot connect");
            carrier.refuse(&stream, why);
        }
    }
    drop(permit);
}

async fn connect(target: &Target) -> Result<Tcp, Refused> {
    let connecting = async {
        let found: Vec<_> = tokio::net::lookup_host((target.host(), target.port())).await.map_err(unknown)?.collect();
        TcpStream::connect(&found[..]).await.map_err(|e| refusal(&e))
    };
    let tcp = timeout(CONNECT_MAX, connecting).await.unwrap_or(Err(Refused::Silent))?;
    Tcp::new(tcp).map_err(|_| Refused::Failed)
}

fn unknown(_: io::Error) -> Refused {
    Refused::Unknown
}

fn refusal(e: &io::Error) -> Refused {
    match e.kind() {
        io::ErrorKind::ConnectionRefused => Refused::Closed,
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Refused::Silent,
        _ => Refused::Failed,
    }
}
