//! Mobiles' connections to TCP targets.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use remora_atp::stream::{Config, End, Refused, Stats, Target};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::debug;

use super::{PerMobile, Report, add};
use crate::atp::Received;
use crate::carrier::{Ask, Carrier, Tcp, pump};
use crate::clock::timeout;

/// How long a target may take to answer.
const CONNECT_MAX: Duration = Duration::from_secs(20);

/// Who is connected, and where they may go.
pub(super) struct Router {
    targets: Arc<BTreeSet<Target>>,
    config: Config,
    /// Of all mobiles.
    connections: Arc<Semaphore>,
    mobiles: PerMobile<Arc<Carrier>>,
    /// What mobiles did that have left.
    past: Stats,
}

impl Router {
    pub(super) fn new(targets: BTreeSet<Target>, config: Config, connections_max: usize) -> Router {
        let connections = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
        Router { targets: Arc::new(targets), config, connections, mobiles: PerMobile::new(), past: Stats::default() }
    }

    /// Takes in an object; false if its mobile breaks the rules.
    pub(super) fn take(&mut self, received: Received) -> bool {
        let Received { from, object, .. } = received;
        let carrier = match self.mobiles.entry(from.id()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) if from.ended().is_none() => place.insert(Carrier::acceptor(from, self.config)),
            // What it says last is of no use to anybody.
            Entry::Vacant(_) => return true,
        };
        let carrier = carrier.clone();
        let Ok(asks) = carrier.handle(object) else { return false };
        for ask in asks {
            let carrier = carrier.clone();
            match self.admit(&ask.target).inspect_err(|why| debug!(to = %ask.target, ?why, "refused")) {
                Ok(permit) => drop(tokio::spawn(serve(carrier, ask, permit))),
                Err(why) => carrier.refuse(&ask.door, why),
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

    /// Forgets mobiles that have gone.
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

    /// Cuts everything off.
    pub(super) fn end(&mut self) {
        let past = &mut self.past;
        std::mem::take(&mut self.mobiles).values().for_each(|carrier| settle(past, carrier));
    }

    pub(super) fn look_ahead(&self) {
        self.mobiles.values().for_each(Carrier::look_ahead);
    }

    pub(super) fn report(&self, report: &mut Report) {
        report.mobiles = self.mobiles.len();
        report.connections = self.mobiles.values().map(|c| c.connections()).sum();
        report.stats = self.past;
        self.mobiles.values().for_each(|c| add(&mut report.stats, c.stats()));
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.end();
    }
}

/// A session is over: its connections are cut off, and counted as such.
fn settle(past: &mut Stats, carrier: &Carrier) {
    let cut = carrier.connections() as u64;
    let stats = carrier.stats();
    add(past, Stats { reset: stats.reset + cut, ..stats });
    carrier.end();
}

/// Connects to the target and carries until the connection is over.
async fn serve(carrier: Arc<Carrier>, ask: Ask, permit: OwnedSemaphorePermit) {
    let Ask { target, door } = ask;
    let connected = tokio::select! {
        connected = connect(&target) => connected,
        // The mobile does not want it any more.
        _ = door.ended() => return,
    };
    match connected {
        Ok(tcp) => {
            debug!(to = %target, "connected");
            let end: End = pump(&carrier, &door, tcp, true).await;
            debug!(to = %target, ?end, "connection ended");
        }
        Err(why) => {
            debug!(to = %target, ?why, "cannot connect");
            carrier.refuse(&door, why);
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
